"""scikit-learn: a forest, clusters, and principal components."""
import hashlib

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier

chance = np.random.default_rng(11)
points = chance.random((80_000, 60))
classes = (points[:, 0] * 3 + points[:, 1] * points[:, 2] * 4).astype(int)
forest = RandomForestClassifier(6, max_depth=12, random_state=0, n_jobs=2).fit(points, classes)
print(hashlib.sha256(forest.predict(points)).hexdigest())
clusters = MiniBatchKMeans(20, n_init=1, random_state=0, batch_size=4096).fit_predict(points)
print(hashlib.sha256(clusters).hexdigest())
turned = PCA(8, svd_solver="full").fit_transform(points)
print(hashlib.sha256(np.ascontiguousarray(np.round(np.abs(turned), 6))).hexdigest())
