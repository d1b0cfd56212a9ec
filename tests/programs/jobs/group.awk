# Groups and an index of all lines: awk's arrays.
{
  text[NR] = $0
  count[substr($1, 1, 5)]++
  last[substr($2, 1, 4)] = NR
}
END {
  n = asorti(count, keys)
  for (i = 1; i <= n; i += 997) print keys[i], count[keys[i]]
  for (i = 0; i < NR; i++) {
    at = (i * 7919) % NR + 1
    sum = (sum * 31 + length(text[at]) + index(text[at], "7")) % 1000003
  }
  print sum
  n = asorti(last, keys)
  for (i = 1; i <= n; i += 499) print keys[i], last[keys[i]]
}
