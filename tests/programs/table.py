"""Table: results as text, as Markdown, and as JSON that later runs add to."""
import json
import os
import re

# These lines enclose the table of the common programs, and that of all others.
COMMON = ("<!-- programs: made by tests/programs/run -->\n", "<!-- /programs -->\n")
OTHERS = ("<!-- more programs: made by tests/programs/run -->\n", "<!-- /more programs -->\n")
MIB = 1 << 20


def _seconds(result, manner):
    run = result["runs"].get(manner)
    if run is None:
        return "–"
    if run.get("too_slow"):
        return f"> {run['limit_s']:.0f}"
    if run.get("failure"):
        return "failed"
    if run.get("refused"):
        return "–"
    return f"{run['seconds']:.1f}"


def _ratio(result, other):
    runs = result["runs"]
    ours, theirs = runs.get("tiermem"), runs.get(other)
    if not ours or not theirs or any(
            run.get("failure") or run.get("refused") for run in (ours, theirs)):
        return "–"
    if ours.get("too_slow"):
        return "–" if theirs.get("too_slow") else f"> {ours['limit_s'] / theirs['seconds']:.2f}"
    if theirs.get("too_slow"):
        return f"< {ours['seconds'] / theirs['limit_s']:.2f}"
    return f"{ours['seconds'] / theirs['seconds']:.2f}"


def _processor(result, manner):
    run = result["runs"].get(manner, {})
    if run.get("failure") or run.get("refused") or "processor_s" not in run:
        return "–"
    return f"{run['processor_s']:.1f}"


def _same(ours):
    if ours.get("refused"):
        return "refused"
    if ours.get("not_tiered"):
        return "yes, not tiered" if ours.get("same") else "no"
    return "yes" if ours.get("same") else "–" if ours.get("too_slow") else "no"


def _mib(bytes_):
    return "–" if bytes_ is None else f"{bytes_ / MIB:.0f}"


def rows(results):
    heads = ["program", "need MiB", "budget MiB", "plain s", "tiermem s", "swap s", "zswap s",
             "tiermem ÷ swap", "plain CPU s", "tiermem CPU s", "written MiB", "read MiB",
             "peak RSS MiB", "same output"]
    table = []
    for result in results:
        if result.get("skipped"):
            table.append([result["name"]] + ["–"] * (len(heads) - 2) + ["skipped"])
            continue
        ours = result["runs"].get("tiermem", {})
        table.append([
            result["name"], _mib(result["need"]), _mib(result["budget"]),
            *[_seconds(result, manner) for manner in ("plain", "tiermem", "swap", "zswap")],
            _ratio(result, "swap"), _processor(result, "plain"), _processor(result, "tiermem"),
            _mib(ours.get("written_bytes")), _mib(ours.get("read_bytes")), _mib(ours.get("peak")),
            _same(ours)])
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


def write_markdown(path, results, caption, common):
    """Writes each table with results between its marks in the file. A file without marks is replaced as a
    whole. `common` has the names of the common programs."""
    text = None
    if os.path.exists(path):
        with open(path) as file:
            before = file.read()
        if COMMON[0] in before and OTHERS[0] in before:
            text = before
    if text is None:
        text = caption + "\n\n" + markdown(results)
    else:
        for marks, wanted in ((COMMON, True), (OTHERS, False)):
            part = [result for result in results if (result["name"] in common) == wanted]
            if part:
                ours = marks[0] + caption + "\n\n" + markdown(part) + marks[1]
                text = re.sub(re.escape(marks[0]) + ".*?" + re.escape(marks[1]), lambda _: ours,
                              text, flags=re.DOTALL)
    with open(path, "w") as file:
        file.write(text)


def merge_json(path, results, order):
    """Adds results to the file, which keeps those of other programs. Returns all, in `order`."""
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
