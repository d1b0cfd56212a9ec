# 300 fibers, each with its own stack and its own strings, are resumed in turns.
require 'digest'

FIBERS = 300
fibers = Array.new(FIBERS) do |number|
  Fiber.new do
    strings = Array.new(1600) { |i| "fiber #{number} string #{i} " * 20 }
    round = 0
    loop do
      length = strings.each_with_index.sum { |text, i| text.length * (i % 7 + round) }
      strings[round * 13 % strings.size] += "round #{round}"
      Fiber.yield [number, round, length]
      round += 1
    end
  end
end

total = Digest::SHA256.new
3.times do
  FIBERS.times { |i| total.update(fibers[i * 617 % FIBERS].resume.join(' ')) }
end
puts total.hexdigest
reader, writer = IO.pipe
child = fork do
  reader.close
  writer.write(fibers[7].resume.join(' '))
end
writer.close
puts reader.read
Process.wait(child)
puts fibers[7].resume.join(' ')
