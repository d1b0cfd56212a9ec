"""Draws the rates of all sides: FILE.png and FILE.svg.

usage: draw.py REPORT.json FILE
"""
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "tiermem"  # The same figures make the same file.
import matplotlib.pyplot as plt  # noqa: E402

with open(sys.argv[1]) as report:
    sides = [side for side in json.load(report)["sides"] if "skipped" not in side]
tables = {}
for side in sides:
    tables.setdefault(side["table"], []).append(side)
if not tables:
    sys.exit(0)
heights = [len(rows) + 2 for rows in tables.values()]
figure, axes = plt.subplots(len(tables), 1, squeeze=False, figsize=(9, 0.3 * sum(heights)),
                            gridspec_kw={"height_ratios": heights})
for axis, (table, rows) in zip(axes[:, 0], tables.items()):
    for at, side in enumerate(reversed(rows)):
        least, middle, greatest = (f(side["GB/s"]) for f in (min, statistics.median, max))
        axis.barh(at, middle, color="#2b6cb0" if "tiermem" in side["name"] else "#a0aec0",
                  xerr=[[middle - least], [greatest - middle]], ecolor="#4a5568")
        axis.text(greatest + 0.05, at, f"{middle:.2f}", va="center", fontsize=8)
    axis.margins(x=0.1)  # Room for the figures.
    axis.set_yticks(range(len(rows)), [side["name"] for side in reversed(rows)], fontsize=8)
    axis.set_title(f"{table}, GB/s: median, least and greatest", loc="left", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[2] + ".png", dpi=120)
figure.savefig(sys.argv[2] + ".svg", metadata={"Date": None})
