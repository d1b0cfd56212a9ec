"""pandas: data frames, grouped, joined and sorted."""
import hashlib

import numpy as np
import pandas as pd

index = np.arange(800_000)
frame = pd.DataFrame({"id": index, "owner": index * 48271 % 65521, "price": index * 69621 % 9973})
frame["name"] = "name of " + (frame["id"] * 7919 % 1000003).astype(str)
grouped = frame.groupby(frame["owner"] % 1000).agg({"price": "sum", "name": "min", "id": "count"})
print(grouped.to_csv())
print(frame.sort_values(["name", "id"]).head(2000).to_csv())
other = pd.DataFrame({"id": index * 7919 % len(index), "weight": frame["owner"]})
joined = frame.merge(other, on="id").sort_values("id")
print(hashlib.sha256(joined["weight"].to_numpy()).hexdigest(), len(joined))
