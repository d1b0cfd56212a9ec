"""NumPy on arrays that are larger than memory: sort, matrix product, FFT. Prints their digests."""
import hashlib

import numpy as np


def show(name, array):
    print(name, hashlib.sha256(np.ascontiguousarray(array)).hexdigest(), flush=True)


chance = np.random.default_rng(4)
numbers = chance.random(24_000_000)
show("random", numbers)
numbers.sort()
show("sorted", numbers)
show("order", np.argsort(numbers[::7] * 1000 % 1, kind="stable"))
square = numbers[:9_000_000].reshape(3000, 3000)
product = square @ square.T
show("product", product)
wave = np.fft.fft(numbers[: 1 << 23] - 0.5)
show("spectrum", wave)
show("wave", np.fft.ifft(wave).real)
show("sorted", numbers)
