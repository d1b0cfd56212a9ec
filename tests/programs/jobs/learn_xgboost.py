"""XGBoost: boosted trees."""
import hashlib

import numpy as np
import xgboost

chance = np.random.default_rng(13)
points = chance.random((120_000, 80), dtype=np.float32)
wanted = points[:, 0] * 3 + points[:, 1] * points[:, 2]
data = xgboost.DMatrix(points, wanted)
model = xgboost.train({"tree_method": "hist", "nthread": 2, "seed": 1, "max_depth": 7}, data, 10)
print(hashlib.sha256(model.predict(data)).hexdigest())
