"""Sums gcovr's summary by folder, and compares the sums with the bars of scripts/coverage.

usage: folders.py SUMMARY.json [--bars]     Exit status 1: --bars was given, and a bar is missed.
"""
import json
import sys
from collections import Counter

CORE = ("src/residency", "src/mover", "src/policy", "src/tier")
BARS = {"core": (95, 85), "all": (93, 80)}


def sums(files: list[dict]) -> dict[str, Counter]:
    """Covered and total lines and branches of each folder, of the core and of all."""
    out: dict[str, Counter] = {}
    for file in files:
        folder = file["filename"].rsplit("/", 1)[0]
        groups = [folder, "all"] + (["core"] if folder in CORE else [])
        for group in groups:
            counts = out.setdefault(group, Counter())
            for key in ("line_covered", "line_total", "branch_covered", "branch_total"):
                counts[key] += file[key]
    return out


def per_cent(counts: Counter, what: str) -> float:
    """A folder without lines, or without branches, has nothing that a test could miss."""
    total = counts[f"{what}_total"]
    return 100 * counts[f"{what}_covered"] / total if total else 100.0


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as summary:
        table = sums(json.load(summary)["files"])
    if "all" not in table:
        print("coverage: the summary has no files; did the tests run?", file=sys.stderr)
        return 1
    missed = False
    print(f"{'folder':16} {'lines':>8} {'branches':>9}")
    for group in [*sorted(set(table) - set(BARS)), *BARS]:
        counts = table.get(group, Counter())
        lines, branches = per_cent(counts, "line"), per_cent(counts, "branch")
        bar = BARS.get(group)
        below = bar is not None and (lines < bar[0] or branches < bar[1])
        missed = missed or below
        note = f"   bars: {bar[0]} % and {bar[1]} %{', MISSED' if below else ''}" if bar else ""
        print(f"{group:16} {lines:7.1f}% {branches:8.1f}%{note}")
    return 1 if missed and "--bars" in sys.argv[2:] else 0


if __name__ == "__main__":
    sys.exit(main())
