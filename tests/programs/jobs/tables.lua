-- Tables of strings and of numbers: filled, read in a scattered order, sorted.
local count = tonumber(arg[1])
local text = {}
for i = 0, count - 1 do
  text["key" .. i] = string.rep(string.char(97 + i % 26), 60 + i % 50) .. i
end
local sum = 0
for i = 0, count - 1 do
  local value = text["key" .. (i * 7919 % count)]
  sum = (sum * 31 + #value + value:byte(3)) % 1000003
end
print("sum", sum)
local rows = {}
for i = 0, count - 1 do
  rows[#rows + 1] = {text["key" .. i]:sub(-4), i, i * 48271 % 65521}
end
table.sort(rows, function(a, b)
  if a[3] ~= b[3] then return a[3] < b[3] end
  return a[2] < b[2]
end)
for i = 1, #rows, 5 do
  sum = (sum * 33 + rows[i][3] + rows[i][2]) % 1000003
  if i % 5001 == 1 then print(rows[i][1], rows[i][2], rows[i][3]) end
end
print("sum", sum)
