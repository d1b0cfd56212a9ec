"""The table at the end of `run`: compare.py RUN.json...

One column a run; the first is the yardstick.
"""

import json
import sys

MIB = 1 << 20


def moved(run):
    return f"{run['model_share']:.2f}, {run['verdict']}"


def waiting(run):
    if run["source"] == "mmap":
        return "in page faults"
    return f"{run['waiting_seconds']:.2f} s, {100 * run['waiting_seconds'] / run['seconds']:.0f} %"


def main():
    runs = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    first = runs[0]
    rows = [
        ("tokens/s", [f"{r['tokens_per_second']:.2f}" for r in runs]),
        (f"of {first['source']}'s speed",
         [f"{100 * r['tokens_per_second'] / first['tokens_per_second']:.0f} %" for r in runs]),
        ("model share read per token", [moved(r) for r in runs]),
        ("read from storage, MiB", [f"{r['read_bytes'] / MIB:.0f}" for r in runs]),
        ("waiting for bytes", [waiting(r) for r in runs]),
        ("peak memory for weights, MiB", [f"{r['peak_growth_bytes'] / MIB:.0f}" for r in runs]),
        ("same text", ["yes" if r["tokens"] == first["tokens"] else "NO" for r in runs]),
    ]
    print(f"\n{first['model']}, {first['model_bytes'] / MIB:.0f} MiB of weights; budget "
          f"{first['budget_bytes'] / MIB:.0f} MiB; {first['passes']} tokens after the first")
    print(f"{'':30}" + "".join(f"{r['source']:>18}" for r in runs))
    for label, cells in rows:
        print(f"{label:30}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
