"""Languages: interpreters and run-time systems with heaps of their own."""
import os
import shutil
import subprocess

from common import make_lines
from program import JOBS, Program, Skip, installed, job, once, tool


def compiled(name, *command):
    """Compiles the program `name` in the folder, where the compiler also leaves files."""
    def prepare(folder):
        words = [command[0], *[word.format(folder=folder, jobs=JOBS) for word in command[1:]]]
        tool(words[0])

        def make(path):
            done = subprocess.run([word.replace("{path}", path) for word in words],
                                  cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True)
            if done.returncode != 0:
                raise Skip(f"{command[0]} fails: {done.stderr[-500:]}")
        once(folder, name, make)
    return prepare


def prepare_erlang(folder):
    tool("erlc")
    shutil.copy(os.path.join(JOBS, "tables.erl"), folder)
    subprocess.run(["erlc", "-o", folder, os.path.join(folder, "tables.erl")], check=True)


def prepare_java(folder):
    tool("java")
    if not os.path.exists(os.path.join(folder, "Objects.class")):
        subprocess.run([tool("javac"), "-d", folder, f"{JOBS}/Objects.java"], check=True)


def prepare_ocaml(folder):
    shutil.copy(os.path.join(JOBS, "tables.ml"), folder)  # The compiler writes next to the source.
    compiled("tables", "ocamlopt", "-O3", "{folder}/tables.ml", "-o", "{{path}}")(folder)


def make_json(path):
    with open(path, "w") as file:
        file.write("[\n")
        for i in range(250000):
            file.write(f'{{"id": {i}, "owner": {i * 48271 % 65521}, "name": "name of {i * 69621 % 9973}",'
                       f' "tags": ["tag {i % 97}", "tag {i % 89}"], "price": {i % 1009}.5}},\n')
        file.write("{}]\n")


PROGRAMS = [
    Program("php", "PHP: arrays with string keys", installed("php"),
            job(["php", "-d", "memory_limit=-1", "{jobs}/table.php"])),
    Program("ruby", "Ruby: 300 fibers (their stacks are not tiered), and a fork", installed("ruby"),
            job(["ruby", "{jobs}/fibers.rb"])),
    Program("lua", "Lua: tables", installed("lua5.4"),
            job(["lua5.4", "{jobs}/tables.lua", "400000"])),
    Program("luajit", "LuaJIT: arrays (its small objects are not tiered)", installed("luajit"),
            job(["luajit", "{jobs}/arrays.lua"])),
    Program("guile", "Guile: a hash table, under bdw-gc", installed("guile"),
            job(["guile", "--no-auto-compile", "{jobs}/table.scm"])),
    Program("sbcl", "SBCL: a hash table, under a copying collector", installed("sbcl"),
            job(["sbcl", "--dynamic-space-size", "2GB", "--script", "{jobs}/table.lisp"])),
    Program("prolog", "SWI-Prolog: facts, findall, sort", installed("swipl"),
            job(["swipl", "-q", "-g", "main", "-t", "halt", "{jobs}/facts.pl"])),
    Program("erlang", "Erlang: a table, and the heaps of 200 processes", prepare_erlang,
            job(["erl", "-noshell", "+S", "2", "-pa", "{folder}", "-s", "tables", "main",
                 "-s", "init", "stop"], environment={"HOME": "/tmp"})),
    Program("ocaml", "OCaml: a hash table and a tree", prepare_ocaml, job(["{folder}/tables"])),
    Program("haskell", "a program made by GHC: maps, under a copying collector",
            compiled("tables", "ghc", "-O1", "-rtsopts", "-outputdir", "{folder}",
                     "-o", "{{path}}", "{jobs}/Tables.hs"), job(["{folder}/tables"])),
    Program("r", "R: data frames and lists", installed("Rscript"),
            job(["Rscript", "--vanilla", "{jobs}/frames.R"],
                environment={"OPENBLAS_NUM_THREADS": "2"})),
    Program("octave", "Octave: matrices and cells", installed("octave-cli"),
            job(["octave-cli", "--no-gui", "--norc", "--quiet", "{jobs}/matrices.m"],
                environment={"OPENBLAS_NUM_THREADS": "2"})),
    Program("java-heap", "Java: objects in its own heap", prepare_java,
            job(["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", "{folder}", "Objects"])),
    Program("java-g1", "Java: the same, with the collector G1", prepare_java,
            job(["java", "-Xmx1g", "-XX:+UseG1GC", "-cp", "{folder}", "Objects"])),
    Program("gawk", "GNU awk: arrays of all lines",
            lambda folder: (tool("gawk"), once(folder, "lines.txt", lambda path: make_lines(path, 9))),
            job(["gawk", "-f", "{jobs}/group.awk", "{folder}/lines.txt"])),
    Program("jq", "jq: a large document, grouped and sorted",
            lambda folder: (tool("jq"), once(folder, "items.json", make_json)),
            job(["jq", "-c", "group_by((.owner // 0) % 1009) | map([length, (map(.price // 0) | add), "
                 "(map(.name // \"\") | sort | .[0])])", "{folder}/items.json"])),
    Program("pari", "PARI/GP: vectors, polynomials, a determinant", installed("gp"),
            job(["gp", "-q", "-f", "-s", "1500M", "{jobs}/vectors.gp"])),
]
