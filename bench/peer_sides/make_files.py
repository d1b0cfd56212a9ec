"""Writes tensors of 64 MiB as model.safetensors, model.pt and model.bin, and prints the exclusive or of
their 64-bit words.

usage: make_files.py DIRECTORY BYTES      BYTES: a multiple of 8
"""
import sys

import numpy as np
import torch
from safetensors.torch import save_file

directory, left = sys.argv[1], int(sys.argv[2])
chance = np.random.Generator(np.random.SFC64(7))  # Incompressible.
tensors = {}
while left > 0:
    part = min(left, 64 << 20)
    words = chance.integers(0, 1 << 64, part // 8, np.uint64)
    tensors[f"layer.{len(tensors)}"] = torch.from_numpy(words.view(np.uint8)).view(torch.bfloat16)
    left -= part
save_file(tensors, directory + "/model.safetensors")
torch.save(tensors, directory + "/model.pt")
total = 0
with open(directory + "/model.bin", "wb") as file:
    for tensor in tensors.values():
        words = tensor.view(torch.uint8).numpy()
        total ^= int(np.bitwise_xor.reduce(words.view(np.uint64)))
        words.tofile(file)
print(f"{total:016x}")
