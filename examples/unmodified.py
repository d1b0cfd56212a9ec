"""A program without knowledge of tiermem: writes, changes and sums 256 MiB of numbers.

usage: python3 examples/unmodified.py
       tiermem run --dram 64M -- python3 examples/unmodified.py
"""
import array
import resource
import time

BLOCKS, NUMBERS = 64, 512 * 1024  # 4 MiB each.

begin = time.monotonic()
blocks = [array.array("Q", range(i, i + NUMBERS)) for i in range(BLOCKS)]
for block in blocks:
    block[0] += 1
total = sum(block[0] + block[-1] + block[NUMBERS // 2] for block in blocks)
seconds = time.monotonic() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f"sum {total}, {seconds:.1f} s, at most {peak} MiB in memory")
