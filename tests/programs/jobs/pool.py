"""multiprocessing with the start method fork: children read and change an array of 512 MiB that
they have from their parent, which sees none of the changes. Prints digests of both."""
import hashlib
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor

PARTS = 32
PART = 16 << 20
array = bytearray(PARTS * PART)


def work(part):
    view = memoryview(array)[part * PART:(part + 1) * PART]
    before = hashlib.sha256(view).hexdigest()
    for at in range(0, PART, 4096):
        view[at] ^= 0xFF  # In the child's own copy.
    return part, before, hashlib.sha256(view).hexdigest()


def main():
    pool = random.Random(8).randbytes(PART + PARTS * 4096)
    for part in range(PARTS):
        array[part * PART:(part + 1) * PART] = pool[part * 4096:part * 4096 + PART]
    # Unlike multiprocessing.Pool, this class reports a killed child.
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as workers:
        for line in workers.map(work, range(PARTS)):
            print(*line)
    print(hashlib.sha256(array).hexdigest())


if __name__ == "__main__":
    main()
