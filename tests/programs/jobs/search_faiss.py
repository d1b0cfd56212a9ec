"""Faiss: lists of an inverted file, and a graph (HNSW) that is built and searched at random."""
import hashlib

import faiss
import numpy as np

faiss.omp_set_num_threads(1)  # Two threads would insert in a different order each time.
points = np.random.default_rng(14).random((300_000, 96), dtype=np.float32)
coarse = faiss.IndexFlatL2(96)
lists = faiss.IndexIVFFlat(coarse, 96, 256)
lists.train(points[:20_000])
lists.add(points)
distance, nearest = lists.search(points[::300], 10)
print(hashlib.sha256(nearest).hexdigest())
graph = faiss.IndexHNSWFlat(96, 12)
graph.hnsw.efConstruction = 20
graph.add(points[:25_000])
distance, nearest = graph.search(points[:25_000:5], 10)
print(hashlib.sha256(nearest).hexdigest())
