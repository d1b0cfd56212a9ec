"""Polars: data frames, grouped, joined and sorted."""
import polars

index = polars.Series("id", range(2_000_000), dtype=polars.Int64)
frame = polars.DataFrame({"id": index}).with_columns(
    owner=polars.col("id") * 48271 % 65521, price=polars.col("id") * 69621 % 9973,
    name="name of " + (polars.col("id") * 7919 % 1000003).cast(polars.String))
print(frame.group_by(polars.col("owner") % 1000).agg(
    polars.len(), polars.col("price").sum(), polars.col("name").min()).sort("owner").write_csv())
print(frame.sort("name", "id").head(2000).write_csv())
other = frame.select(id=polars.col("id") * 7919 % 2_000_000, weight=polars.col("owner"))
joined = frame.join(other, on="id").sort("id")
print(joined.select((polars.col("price") * polars.col("weight") % 1009).sum()).item(), len(joined))
