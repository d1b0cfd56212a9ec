"""PyArrow: tables, sorted, joined, written as Parquet and read; its own pool of memory (mimalloc)."""
import hashlib
import io

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

pyarrow.set_cpu_count(2)
index = np.arange(1_500_000)
table = pyarrow.table({"id": index, "owner": index * 48271 % 65521, "price": index * 69621 % 9973,
                       "name": pyarrow.array([f"name of {i * 7919 % 1000003}" for i in index[:300_000]] * 5)})
order = table.sort_by([("name", "ascending"), ("id", "ascending")])
print(hashlib.sha256(order["id"].to_numpy()).hexdigest())
groups = table.group_by("owner").aggregate([("price", "sum"), ("id", "count")]).sort_by("owner")
print(hashlib.sha256(groups["price_sum"].to_numpy()).hexdigest())
file = io.BytesIO()
pyarrow.parquet.write_table(order, file, compression="zstd")
file.seek(0)
again = pyarrow.parquet.read_table(file)
print(again.equals(order), again.num_rows)
