"""Draws the rates of all sides, and the ratios of the rows: FILE.png and FILE.svg.

usage: draw.py REPORT.json FILE
"""
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "tiermem"  # The same figures make the same file.
import matplotlib.pyplot as plt  # noqa: E402

with open(sys.argv[1]) as file:
    report = json.load(file)
sides = [side for side in report["sides"] if "skipped" not in side]
ratios = [row for row in report["results"] if row.get("ratio")]
tables = {}
for side in sides:
    tables.setdefault(side["table"], []).append(side)
parts = [*tables, *(["ratios"] if ratios else [])]
if not parts:
    sys.exit(0)
heights = [len(rows) + 2 for rows in tables.values()] + ([0.7 * len(ratios) + 2] if ratios else [])
figure, axes = plt.subplots(len(parts), 1, squeeze=False, figsize=(9, 0.3 * sum(heights)),
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
if ratios:
    axis = axes[-1, 0]
    names = [f"{row['name']}, {row['peer'].partition(' (')[0]}" for row in reversed(ratios)]
    for at, row in enumerate(reversed(ratios)):
        axis.plot([row["ratio_low"], row["ratio_high"]], [at, at], color="#4a5568")
        axis.plot(row["ratio"], at, "o", color="#2b6cb0", markersize=4)
        if row.get("bar"):
            axis.plot(row["bar"], at, "|", color="#c53030", markersize=8)
    axis.axvline(1, color="#a0aec0", linewidth=1)
    axis.set_xscale("log")
    axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    axis.set_yticks(range(len(names)), names, fontsize=6)
    axis.set_ylim(-1, len(names))
    axis.set_title("ratio to the best peer, with its 95 %; |: the bar", loc="left", fontsize=9)
for axis in axes[:, 0]:
    axis.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[2] + ".png", dpi=120)
figure.savefig(sys.argv[2] + ".svg", metadata={"Date": None})
