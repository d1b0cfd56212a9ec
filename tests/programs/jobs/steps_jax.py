"""JAX: compiled steps on large arrays."""
import hashlib

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(a, b):
    return jnp.tanh(a @ b) * 0.5 + a[::-1] * 0.25, jnp.roll(b, 1, 0) * 0.999


a = jax.random.normal(jax.random.key(1), (1500, 1500))
b = jax.random.normal(jax.random.key(2), (1500, 1500)) * 0.02
kept = []
for _ in range(16):
    a, b = step(a, b)
    kept += [a, b]
total = hashlib.sha256()
for array in kept:
    total.update(np.round(np.asarray(array), 3) + 0.0)
values = jnp.sort(jax.random.uniform(jax.random.key(3), (4_000_000,)))
total.update(np.asarray(values))
print(total.hexdigest())
