"""Program: how to create its input, how to run it, and which output must be the same with tiermem; and
the helpers that the lists of programs share.

Every output is the same in every run: it depends on no clock, no unseeded random numbers and no order of
threads. Sizes are chosen for 1 to 15 seconds and 150 MiB or more, on two slow processors.
"""
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = os.path.join(HERE, "jobs")
NUMPY = os.path.join(HERE, "requirements-numpy.txt")
PINNED = os.path.join(HERE, "requirements-all.txt")


class Skip(Exception):
    """The reason why the program cannot run on this machine."""


@dataclass(frozen=True)
class Program:
    name: str
    about: str
    prepare: Callable     # (folder): creates the input, once. Raises Skip.
    run: Callable         # (session, folder): runs the program. Returns the digest of its output.
    common: bool = False  # `scripts/test --full` runs the program too.
    refusal: str = ""     # Words of the message with which `tiermem run` refuses it; empty: it runs.
    not_tiered: str = ""  # Words of the message at its end, if nothing of it can be tiered.


def tool(*names):
    """Returns the path of the first of these tools that is installed."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise Skip(f"{names[0]} is not installed")


def digest(*paths):
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                total.update(chunk)
    return total.hexdigest()


def once(folder, name, make):
    """Returns the input `name`. make(path) creates it unless an earlier run has."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        make(path + ".part")
        os.rename(path + ".part", path)
    return path


def job(command, output="output.txt", stdout=True, environment=None, tools=()):
    """Returns a run of one command. `{folder}` is the input's folder, `{out}` this run's output."""
    def run(session, folder):
        path = os.path.join(session.folder, output)
        words = [word.format(folder=folder, out=path, jobs=JOBS, **{
            name.replace("-", "_"): tool(name) for name in tools}) for word in command]
        session.run(words, environment, path if stdout else None)
        return digest(path)
    return run


def installed(*names):
    return lambda folder: [tool(name) for name in names]


def environment(folder, *requirements):
    """Installs a Python with the packages of these files in the folder."""
    wanted = digest(*requirements)
    mark = os.path.join(folder, "venv", "ready")
    if not os.path.exists(mark) or open(mark).read() != wanted:
        for command in ([sys.executable, "-m", "venv", f"{folder}/venv"],
                        [f"{folder}/venv/bin/python", "-m", "pip", "install", "--quiet",
                         "--disable-pip-version-check", "--only-binary", ":all:",
                         *[word for path in requirements for word in ("-r", path)]]):
            if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
                raise Skip("its Python packages cannot be had here; see the lines above")
        with open(mark, "w") as file:
            file.write(wanted)


def packages(*names):
    """Prepares a Python beside the programs' folders, with these packages from PyPI and NumPy."""
    def prepare(folder):
        shared = os.path.join(os.path.dirname(folder), "python")
        python = os.path.join(shared, "bin", "python")
        if not os.path.exists(python):
            subprocess.run([sys.executable, "-m", "venv", shared], check=True)
        mark = os.path.join(shared, "-".join(names) + ".ready")
        wanted = digest(PINNED)
        if os.path.exists(mark) and open(mark).read() == wanted:
            return
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--only-binary", ":all:", "--constraint", PINNED, "numpy", *names],
                          stdin=subprocess.DEVNULL).returncode != 0:
            raise Skip("its Python packages cannot be had here; see the lines above")
        with open(mark, "w") as file:
            file.write(wanted)
    return prepare


def python_job(script, threads=2):
    """Returns a run of jobs/`script` by the Python of packages()."""
    def run(session, folder):
        path = os.path.join(session.folder, "output.txt")
        python = os.path.join(os.path.dirname(folder), "python", "bin", "python")
        session.run([python, os.path.join(JOBS, script)], {
            "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads),
            "NUMBA_NUM_THREADS": str(threads), "POLARS_MAX_THREADS": str(threads),
            "RAYON_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0"}, path)
        return digest(path)
    return run
