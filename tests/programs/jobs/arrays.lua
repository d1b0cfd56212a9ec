-- Arrays of numbers, 2 MiB each, which LuaJIT maps one by one. (Its small objects are not tiered: it takes
-- mappings of 128 KiB for these.)
local ffi = require("ffi")
local count, length = 90, 262144
local arrays = {}
local state = 7
for i = 0, count - 1 do
  local array = ffi.new("double[?]", length)
  for j = 0, length - 1 do
    state = (state * 48271 + 11) % 2147483647
    array[j] = state / 7
  end
  arrays[i] = array
end
local text = {}
for i = 0, 99999 do text[i] = "text " .. i * 48271 % 65521 end
for round = 0, 3 do
  for i = 0, count - 1 do
    local from, to = arrays[(i * 31 + round) % count], arrays[i]
    for j = 0, length - 1 do to[j] = to[j] * 0.5 + from[length - 1 - j] * 0.25 end
  end
end
for i = 0, count - 1, 9 do
  local sum = 0
  for j = 0, length - 1 do sum = (sum + arrays[i][j] * (j % 7 + 1)) % 1000003 end
  print(i, string.format("%.6f", sum), text[i * 997])
end
