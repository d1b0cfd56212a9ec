#!/usr/bin/env python3
"""Runs examples/unmodified.py three times: with all the memory it wants, with too little and swap, and
with too little and `tiermem run`. The last two have the same control group and so the same memory.

usage: examples/beside_swap.py TIERMEM       TIERMEM: the program, such as build/release/tiermem
Without root there is no control group and no swap: the script skips that run and says so.
Exit status: 0; 1 a run failed, or the sums differ.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "programs"))
sys.dont_write_bytecode = True

import limits  # noqa: E402

PROGRAM = ["python3", os.path.join(ROOT, "examples", "unmodified.py")]
MIB = 1 << 20
DRAM = 64  # MiB, for the program's bytes under tiermem.
GROUP = 96  # MiB, including the interpreter and tiermem's own memory.
SWAP_BYTES = 1 << 30


class Failed(Exception):
    """The message of a run that failed."""


def run(what, command, group):
    """Prints the command and its output. Returns its sum, seconds and MiB."""
    shown = " ".join(os.path.relpath(word, ROOT) if word.startswith(ROOT) else word for word in command)
    print(f"\n{what}:\n  {shown}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                          preexec_fn=group.enter if group else None)
    print("  " + done.stdout.strip(), flush=True)
    told = re.search(r"sum (\d+), ([\d.]+) s, at most (\d+) MiB", done.stdout)
    if done.returncode != 0 or told is None:
        raise Failed(f"{shown} ended with status {done.returncode}")
    return told[1], float(told[2]), int(told[3])


def with_swap():
    """Runs with swap; returns None and the reason if that is not possible."""
    group = limits.Group.make(GROUP * MIB)
    if group is None:
        return None, "a control group with a memory limit cannot be made (root can make one)"
    try:
        with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "build")) as folder, \
                limits.swap(folder, SWAP_BYTES):
            return run(f"In {GROUP} MiB, the rest in swap", PROGRAM, group), ""
    except limits.Unavailable as unavailable:
        return None, str(unavailable)
    finally:
        group.remove()


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    try:
        results = {"all memory": run("With all the memory that it wants", PROGRAM, None)}
        swapped, why = with_swap()
        if swapped:
            results["swap"] = swapped
        group = limits.Group.make(GROUP * MIB)
        where = f"In {GROUP} MiB" if group else "Without a limit for the whole process"
        try:
            results["tiermem"] = run(
                f"{where}, the rest in tiermem's file on the disk",
                [os.path.abspath(sys.argv[1]), "run", "--dram", f"{DRAM}M", "--", *PROGRAM], group)
        finally:
            if group:
                group.remove()
    except Failed as failed:
        print(f"beside_swap: {failed}", file=sys.stderr)
        return 1
    print("\nThe same program, the same sum, the same disk:")
    for name, (_, seconds, mib) in results.items():
        print(f"  {name:<12} {seconds:6.1f} s   {mib:4} MiB in memory at most")
    if not swapped:
        print(f"  swap         not run: {why}")
    if len({result[0] for result in results.values()}) != 1:
        print("beside_swap: the sums differ", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
