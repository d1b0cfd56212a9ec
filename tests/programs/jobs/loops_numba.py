"""Numba: loops compiled at run time, over arrays in a scattered order."""
import hashlib

import numba
import numpy as np


@numba.njit
def scatter(a, b, rounds):
    pages = len(a) // 512
    for turn in range(rounds):
        for page in range(pages):
            source = (page * 7919 + turn) % pages * 512
            for i in range(512):
                b[page * 512 + i] = b[page * 512 + i] * 0.5 + a[source + 511 - i]
        a, b = b, a
    return a


@numba.njit(parallel=True)
def square(a):
    out = np.empty_like(a)
    for i in numba.prange(len(a)):
        out[i] = a[i] * a[i] + i % 7
    return out


a = np.random.default_rng(16).random(10_000_000)
out = square(scatter(a, np.zeros_like(a), 4))
print(hashlib.sha256(out).hexdigest())
