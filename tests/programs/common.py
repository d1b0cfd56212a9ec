"""Common programs, which are installed on most machines or easy to install. `scripts/test --full` runs
them.
"""
import os
import random
import subprocess
import sys

import redis
from program import (HERE, JOBS, NUMPY, Program, Skip, digest, environment, installed, job, once,
                     tool)
from session import Failure

LLM = os.path.join(HERE, "..", "..", "examples", "llm")


# ---- sort, sqlite, zstd, perl ----

def make_lines(path, parts=40):
    chance = random.Random(1)
    with open(path, "wb") as file:
        for _ in range(parts):
            text = chance.randbytes(32 * 65536).hex().encode()
            file.write(b"".join(text[i:i + 40] + b" " + text[i + 40:i + 64] + b"\n"
                                for i in range(0, len(text), 64)))


SQL = """
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, owner INTEGER, price INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000)
  INSERT INTO item SELECT i, printf('%08x-%08x-name-of-%d', i * 2654435761 % 4294967296,
                                    i * 40503 % 65521, i),
                          i * 48271 % 100003, i * 69621 % 9973 FROM n;
CREATE INDEX by_name ON item(name);
CREATE INDEX by_owner ON item(owner, price);
SELECT owner, count(*), sum(price), min(name), max(name) FROM item GROUP BY owner;
SELECT * FROM item ORDER BY name LIMIT 100000;
UPDATE item SET price = price + 1 WHERE owner % 7 = 3;
DELETE FROM item WHERE id % 5 = 0;
SELECT count(*), sum(price), sum(length(name)) FROM item;
"""


def make_sql(path):
    with open(path, "w") as file:
        file.write(SQL)


def make_records(path, count=16384):
    """Writes records, 1 GiB by default. Many are an earlier page, also one from far back, with few changes."""
    chance = random.Random(2)
    words = [chance.randbytes(chance.randrange(3, 12)).hex().encode() for _ in range(4000)]
    pages = [b" ".join(chance.choices(words, k=6000))[:65536].ljust(65536) for _ in range(1500)]
    with open(path, "wb") as file:
        for _ in range(count):
            page = bytearray(chance.choice(pages))
            for _ in range(40):
                page[chance.randrange(65536)] = chance.randrange(256)
            file.write(page)


# ---- a C++ file with many templates ----

CXX_HEAD = """#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
template <int N> struct Key { int value; auto operator<=>(const Key&) const = default; };
template <int N> struct Value { std::string text; double numbers[N % 7 + 1]; };
template <int N> int work(int n) {
  std::map<Key<N>, std::vector<Value<N>>> map;
  std::unordered_map<int, std::shared_ptr<Value<N>>> index;
  for (int i = 0; i < n; ++i) {
    map[Key<N>{i}].push_back(Value<N>{std::to_string(i), {}});
    index.emplace(i, std::make_shared<Value<N>>());
  }
  std::vector<Key<N>> keys;
  for (auto& [key, values] : map) { keys.push_back(key); }
  std::sort(keys.begin(), keys.end(), [](const Key<N>& a, const Key<N>& b) { return b < a; });
  std::function<int(Key<N>)> sum = [&](Key<N> key) { return key.value + int(map[key].size()); };
  return int(index.size()) + sum(keys.front());
}
"""


def make_source(path):
    with open(path, "w") as file:
        file.write(CXX_HEAD + "int main(int n, char**) {\n  int sum = 0;\n")
        file.writelines(f"  sum += work<{i}>(n);\n" for i in range(24))
        file.write("  return sum == 0;\n}\n")


def prepare_cxx(folder):
    tool("g++")
    once(folder, "templates.cpp", make_source)


# ---- Python packages ----

def prepare_numpy(folder):
    environment(folder, NUMPY)


GGUF = "gemma-3-270m-q4_k_m.gguf"


def model_folder():
    return os.environ.get("TIERMEM_DEMO_DIR", os.path.join(HERE, "..", "..", "build", "demo"))


def prepare_llama(folder):
    if not os.path.exists(os.path.join(model_folder(), GGUF)):
        if subprocess.run([os.path.join(LLM, "prepare")], stdin=subprocess.DEVNULL).returncode != 0:
            raise Skip("the model cannot be had here; see the lines above")
    environment(folder, NUMPY, os.path.join(LLM, "requirements-llama.txt"))


def llama_command(folder):
    return [f"{folder}/venv/bin/python", f"{JOBS}/generate.py",
            os.path.join(os.path.abspath(model_folder()), GGUF)]


def run_llama(session, folder):
    path = os.path.join(session.folder, "tokens.txt")
    session.run(llama_command(folder), stdout=path)
    return digest(path)


def prepare_torch(folder):
    python = tool("/usr/bin/python3")
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        raise Skip("Debian's python3-torch is not installed")


# ---- Java, ImageMagick ----

def prepare_java(folder):
    tool("java")
    if not os.path.exists(os.path.join(folder, "Buffers.class")):
        subprocess.run([tool("javac"), "-d", folder, f"{JOBS}/Buffers.java"], check=True)


def run_convert(session, folder):
    # Debian's policy.xml sets low limits. These settings take precedence only if they are lower, so
    # the test uses a policy of its own, which is empty and sets no limits.
    path = os.path.join(session.folder, "picture.ppm")
    policy = os.path.join(session.folder, "policy.xml")
    with open(policy, "w") as file:
        file.write('<policymap><policy domain="resource" name="memory" value="16GiB"/>'
                   '</policymap>\n')
    session.run([tool("convert-im6.q16", "magick", "convert"), "-limit", "memory", "16GiB",
                 "-limit", "map", "16GiB", "-limit", "area", "16GP", "-limit", "width", "64KP",
                 "-limit", "height", "64KP", "-limit", "disk", "0",
                 "-size", "5000x5000", "gradient:gold-navy", "-swirl", "120", "-blur", "0x2",
                 "-rotate", "90", "-resize", "60%", "-depth", "8", path],
                {"MAGICK_CONFIGURE_PATH": session.folder, "MAGICK_THREAD_LIMIT": "2"})
    return digest(path)


# ---- redis ----

def run_redis(session, folder):
    try:
        return redis.run(session, tool("redis-server"))
    except OSError as error:
        raise Failure(f"the server did not answer: {error}\n{session.told()}") from error


def common(*fields):
    return Program(*fields, common=True)


PROGRAMS = [
    common("sort", "GNU sort, all lines in memory, two threads",
           lambda folder: once(folder, "lines.txt", make_lines),
           job(["sort", "-S", "3G", "--parallel=2", "{folder}/lines.txt", "-o", "{out}"],
               stdout=False)),
    common("sqlite", "sqlite3: a table with two indices in memory",
           lambda folder: (tool("sqlite3"), once(folder, "script.sql", make_sql)),
           job(["sqlite3", ":memory:", ".read {folder}/script.sql"])),
    common("redis", "redis-server: 1 GiB of values, BGSAVE (fork), a start from the dump",
           installed("redis-server"), run_redis),
    common("numpy", "NumPy: sort, matrix product, FFT", prepare_numpy,
           job(["{folder}/venv/bin/python", "{jobs}/arrays.py"],
               environment={"OPENBLAS_NUM_THREADS": "2"})),
    common("torch", "PyTorch: training steps on the processor", prepare_torch,
           job(["/usr/bin/python3", "{jobs}/train.py"], environment={"OMP_NUM_THREADS": "2"})),
    common("llama", "llama.cpp: a language model generates, its file read and not mapped",
           prepare_llama, run_llama),
    common("g++", "g++: a file with many templates", prepare_cxx,
           job(["g++", "-std=c++20", "-O1", "-c", "{folder}/templates.cpp", "-o", "{out}"],
               output="templates.o", stdout=False)),
    common("zstd", "zstd with a window of 1 GiB",
           lambda folder: (tool("zstd"), once(folder, "records.bin", make_records)),
           job(["zstd", "-3", "--long=31", "-T1", "-q", "-c", "{folder}/records.bin"],
               output="records.zst")),
    common("imagemagick", "ImageMagick: a large picture swirled, blurred, turned, scaled",
           lambda folder: tool("convert-im6.q16", "magick", "convert"), run_convert),
    common("node", "Node: typed arrays (its own heap is not tiered)", installed("node"),
           job(["node", "{jobs}/buffers.js"])),
    common("java", "Java: direct buffers, outside of its own heap", prepare_java,
           job(["java", "-Xmx64m", "-XX:MaxDirectMemorySize=2g", "-cp", "{folder}", "Buffers"])),
    common("multiprocessing", "Python multiprocessing: children of fork read a large array",
           lambda folder: None, job([sys.executable, "{jobs}/pool.py"])),
    common("perl", "Perl: a large hash, and children by fork with a pipe, system(), and backticks",
           installed("perl"), job(["perl", "{jobs}/hash.pl"],
                                  environment={"PERL_HASH_SEED": "0"})),
]
