"""DuckDB: a table in memory, grouped, joined and sorted."""
import duckdb

base = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "2GB"})
base.execute("""CREATE TABLE item AS SELECT i AS id, i * 48271 % 65521 AS owner, i * 69621 % 9973 AS price,
    'name of ' || (i * 7919 % 1000003) AS name FROM range(2000000) t(i)""")
for question in (
        "SELECT owner % 1000 AS part, count(*), sum(price), min(name), max(name) FROM item GROUP BY part ORDER BY part",
        "SELECT * FROM item ORDER BY name, id LIMIT 2000",
        "SELECT count(*), sum(a.price * b.owner % 1009) FROM item a JOIN item b ON a.id = b.id * 7919 % 2000000",
        "SELECT count(*), sum(n) FROM (SELECT name, count(*) AS n FROM item GROUP BY name)"):
    for row in base.execute(question).fetchall():
        print(*row)
