"""Table: results as text, as Markdown, and as JSON that later runs add to."""
import json
import os
import re

MARKS = ("<!-- programs: made by tests/programs/run -->\n", "<!-- /programs -->\n")
MIB = 1 << 20


def _seconds(result, manner):
    run = result["runs"].get(manner)
    if run is None:
        return "–"
    if run.get("too_slow"):
        return f"> {run['limit_s']:.0f}"
    if run.get("failure"):
        return "failed"
    return f"{run['seconds']:.1f}"


def _ratio(result, other):
    runs = result["runs"]
    ours, theirs = runs.get("tiermem"), runs.get(other)
    if not ours or not theirs or any(run.get("failure") for run in (ours, theirs)):
        return "–"
    if ours.get("too_slow"):
        return "–" if theirs.get("too_slow") else f"> {ours['limit_s'] / theirs['seconds']:.2f}"
    if theirs.get("too_slow"):
        return f"< {ours['seconds'] / theirs['limit_s']:.2f}"
    return f"{ours['seconds'] / theirs['seconds']:.2f}"


def _mib(bytes_):
    return "–" if bytes_ is None else f"{bytes_ / MIB:.0f}"


def rows(results):
    heads = ["program", "need MiB", "budget MiB", "plain s", "tiermem s", "swap s", "zswap s",
             "tiermem ÷ swap", "evicted MiB", "peak RSS MiB", "same output"]
    table = []
    for result in results:
        if result.get("skipped"):
            table.append([result["name"]] + ["–"] * 9 + ["skipped"])
            continue
        ours = result["runs"].get("tiermem", {})
        table.append([
            result["name"], _mib(result["need"]), _mib(result["budget"]),
            *[_seconds(result, manner) for manner in ("plain", "tiermem", "swap", "zswap")],
            _ratio(result, "swap"), _mib(ours.get("evicted")), _mib(ours.get("peak")),
            "yes" if ours.get("same") else "–" if ours.get("too_slow") else "no"])
    return heads, table


def text(results):
    heads, table = rows(results)
    widths = [max(len(row[i]) for row in [heads, *table]) for i in range(len(heads))]
    lines = []
    for row in [heads, *table]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def markdown(results):
    heads, table = rows(results)
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def write_markdown(path, results, caption):
    """Between the marks, where the file has them; else the whole file."""
    ours = MARKS[0] + caption + "\n\n" + markdown(results) + MARKS[1]
    if os.path.exists(path):
        with open(path) as file:
            before = file.read()
        if MARKS[0] in before:
            ours = re.sub(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), lambda _: ours,
                          before, flags=re.DOTALL)
    with open(path, "w") as file:
        file.write(ours)


def merge_json(path, results, order):
    """Results of programs that were not run now are kept. Returns all, in `order`."""
    kept = {}
    if os.path.exists(path):
        with open(path) as file:
            kept = {result["name"]: result for result in json.load(file)}
    kept.update((result["name"], result) for result in results)
    merged = sorted(kept.values(), key=lambda result: order.index(result["name"])
                    if result["name"] in order else len(order))
    with open(path, "w") as file:
        json.dump(merged, file, indent=1)
        file.write("\n")
    return merged
