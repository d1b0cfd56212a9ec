#!/usr/bin/env python3
"""Draws the curves of `tiermem bench scaling --json REPORT.json`: FILE.svg and FILE.png.

usage: bench/draw_scaling.py REPORT.json FILE
Needs matplotlib (package python3-matplotlib). Bars are from the least to the greatest sample of a point.
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "tiermem"  # The same figures make the same file.
matplotlib.rcParams["svg.fonttype"] = "none"
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator  # noqa: E402

COLOURS = ["#1f6fb4", "#d1662a", "#3b9150", "#8a4fb0"]
AXES = {"extents": ("size of an extent", "GB/s"),
        "depth": ("transfers at once (option depth)", "GB/s"),
        "buffers": ("live buffers", "ns each"),
        "callers": ("threads", "a second, all together"),
        "budget": ("DRAM, % of what is used", "views a second"),
        "budget scans": ("DRAM, % of what is used", "GB/s")}


def short(number: float, sweep: str) -> str:
    """Formats as 64K or 10M: bytes in powers of 1024, other numbers of 1000."""
    base = 1024 if sweep == "extents" else 1000
    for unit in ("", "K", "M"):
        if number < base:
            return f"{number:g}{unit}"
        number /= base
    return f"{number:g}G"


def panels(report: dict) -> dict:
    """Returns the curves of each panel, and the points of each curve."""
    found: dict = {}
    for row in report["results"]:
        if "sweep" not in row:
            continue
        panel = "budget scans" if (row["sweep"], row["unit"]) == ("budget", "GB/s") else row["sweep"]
        found.setdefault(panel, {}).setdefault(row["curve"], []).append(
            (row["at"], row["value"], row["least"], row["greatest"]))
    return found


def draw(axis, panel: str, curves: dict) -> None:
    sweep = panel.split()[0]
    for colour, (name, points) in zip(COLOURS, curves.items()):
        at, middle, least, greatest = zip(*sorted(points))
        axis.errorbar(at, middle, yerr=[[m - low for m, low in zip(middle, least)],
                                        [high - m for m, high in zip(middle, greatest)]],
                      marker="o", markersize=4, linewidth=1.6, elinewidth=0.8, capsize=2,
                      color=colour, label=name)
    axis.set_xscale("log", base=2 if sweep in ("extents", "depth", "callers") else 10)
    places = sorted({at for points in curves.values() for at, *_ in points})
    # Labels that would overlap are omitted; the points stay.
    shown = [at for at in places if sweep != "budget" or at not in (90, 95)]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([short(at, sweep) for at in shown])
    values = [value for points in curves.values() for _, value, *_ in points]
    if max(values) > 20 * min(values):
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(bottom=0)
    axis.set_xlabel(AXES[panel][0])
    axis.set_ylabel(AXES[panel][1])
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    found = panels(report)
    if not found:
        print(f"draw_scaling: {sys.argv[1]} has no curves; see tiermem bench scaling", file=sys.stderr)
        return 1
    rows = (len(found) + 1) // 2
    figure, axes = plt.subplots(rows, 2, squeeze=False, figsize=(10, 3.6 * rows))
    for axis, (panel, curves) in zip(axes.flat, found.items()):
        draw(axis, panel, curves)
    for axis in axes.flat[len(found):]:
        axis.set_visible(False)
    figure.text(0.01, 0.003, f"{report['machine']}; {report['commit']}", fontsize=8, color="#666666")
    figure.tight_layout(rect=(0, 0.015, 1, 1))
    figure.savefig(sys.argv[2] + ".svg", metadata={"Date": None})
    figure.savefig(sys.argv[2] + ".png", dpi=110)
    return 0


if __name__ == "__main__":
    sys.exit(main())
