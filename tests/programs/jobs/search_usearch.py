"""usearch: a graph (HNSW) in memory of its own, built and searched at random."""
import hashlib

import numpy as np
from usearch.index import Index

points = np.random.default_rng(15).random((25_000, 1024), dtype=np.float32)
index = Index(ndim=1024, metric="l2sq", dtype="f32", connectivity=8, expansion_add=12,
              expansion_search=24)
index.add(np.arange(len(points)), points, threads=1)
found = index.search(points[::20], 10, threads=1)
print(hashlib.sha256(np.ascontiguousarray(found.keys)).hexdigest())
