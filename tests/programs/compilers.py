"""Compilers, a linker, compression, and an emulated machine."""
import os
import subprocess

from common import CXX_HEAD, make_records
from languages import compiled
from program import Program, digest, job, once, tool

UNITS = 4


def make_small_source(first):
    def make(path):
        with open(path, "w") as file:
            file.write(CXX_HEAD + f"int run{first}(int n) {{\n  int sum = 0;\n")
            file.writelines(f"  sum += work<{first + i}>(n);\n" for i in range(8))
            file.write("  return sum;\n}\n")
    return make


# ---- clang, make ----

def prepare_clang(folder):
    tool("clang++")
    once(folder, "templates.cpp", make_small_source(0))


MAKEFILE = "all: " + " ".join(f"{i}.o" for i in range(UNITS)) + """
%.o: {folder}/%.cpp
\tg++ -std=c++20 -O1 -c $< -o $@
"""


def prepare_make(folder):
    tool("make"), tool("g++")
    for unit in range(UNITS):
        once(folder, f"{unit}.cpp", make_small_source(unit * 8))


def run_make(session, folder):
    path = os.path.join(session.folder, "Makefile")
    with open(path, "w") as file:
        file.write(MAKEFILE.format(folder=folder))
    session.run(["make", "-j4", "-f", path])
    return digest(*[os.path.join(session.folder, f"{i}.o") for i in range(UNITS)])


# ---- lld ----

FUNCTIONS = 200000


def make_assembly(path):
    """Writes functions that have their own sections, data and strings like those of debug information."""
    with open(path, "w") as file:
        for i in range(FUNCTIONS):
            file.write(f'.section .text.f{i},"ax",@progbits\n.globl f{i}\nf{i}: call f{i * 7919 % FUNCTIONS}\n'
                       f"lea d{i}(%rip), %rax\nret\n"
                       f'.section .data.d{i},"aw",@progbits\n.globl d{i}\nd{i}: .quad f{i}, d{i * 31 % FUNCTIONS}\n'
                       f".zero {i % 64 + 1}\n"
                       f'.section .rodata.str1.1,"aMS",@progbits,1\n.string "text of the function {i}, {i * 48271}"\n')
        file.write(".text\n.globl _start\n_start: call f1\n")


def prepare_lld(folder):
    tool("ld.lld"), tool("as")
    source = once(folder, "functions.s", make_assembly)
    once(folder, "functions.o",
         lambda path: subprocess.run(["as", source, "-o", path], check=True))


# ---- rustc ----

def make_rust(path):
    with open(path, "w") as file:
        file.write("use std::collections::{BTreeMap, HashMap};\n")
        for i in range(20):
            file.write(f"""
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind{i} {{ One(u32), Two {{ name: String, list: Vec<u64> }}, Three(Box<Kind{i}>) }}
pub fn work{i}(n: u32) -> usize {{
    let mut tree: BTreeMap<Kind{i}, Vec<String>> = BTreeMap::new();
    let mut map: HashMap<String, Kind{i}> = HashMap::new();
    for k in 0..n {{
        let kind = Kind{i}::Two {{ name: format!("name {{k}}"), list: (0..k as u64).collect() }};
        tree.entry(kind.clone()).or_default().push(format!("{{:?}}", kind));
        map.insert(k.to_string(), Kind{i}::Three(Box::new(kind)));
    }}
    tree.values().map(|v| v.len()).sum::<usize>() + map.len()
}}
""")
        file.write("fn main() {\n    let mut sum = 0;\n")
        file.writelines(f"    sum += work{i}(3);\n" for i in range(20))
        file.write('    println!("{}", sum);\n}\n')


def run_rust(session, folder):
    rustc = tool("/usr/bin/rustc", "rustc")  # rustup's rustc would only start another program.
    session.run([rustc, "--edition", "2021", "-O", "-C", "codegen-units=1", "--emit", "obj",
                 "--remap-path-prefix", f"{folder}=.", os.path.join(folder, "kinds.rs"),
                 "-o", os.path.join(session.folder, "kinds.o")])
    return digest(os.path.join(session.folder, "kinds.o"))


# ---- compression ----

def make_fewer_records(path):
    make_records(path, 384)  # 24 MiB.


def records(*names):
    return lambda folder: (tool(*names), once(folder, "records.bin", make_fewer_records))


# ---- qemu ----

KERNEL = ["gcc", "-m32", "-O2", "-ffreestanding", "-fno-pic", "-no-pie", "-fno-stack-protector", "-nostdlib",
          "-static", "-Wl,-Ttext=0x100000,-e,start,--build-id=none", "{jobs}/kernel.c",
          "-o", "{{path}}"]


def prepare_qemu(folder):
    tool("qemu-system-x86_64")
    compiled("kernel", *KERNEL)(folder)


def run_qemu(session, folder):
    path = os.path.join(session.folder, "serial.txt")
    process = session.start(
        ["qemu-system-x86_64", "-accel", "tcg", "-m", "256", "-display", "none", "-nodefaults",
         "-no-reboot", "-serial", f"file:{path}", "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
         "-kernel", os.path.join(folder, "kernel")])
    session.wait(process, 33)
    return digest(path)


PROGRAMS = [
    Program("clang", "clang: a file with many templates", prepare_clang,
            job(["clang++", "-std=c++20", "-O1", "-c", "{folder}/templates.cpp", "-o", "{out}"],
                output="templates.o", stdout=False)),
    Program("make", "make: four compilers at once, one budget", prepare_make, run_make),
    Program("lld", "lld: 200,000 functions and their data", prepare_lld,
            job(["ld.lld", "--threads=2", "-O2", "{folder}/functions.o", "-o", "{out}"],
                output="functions", stdout=False)),
    Program("rustc", "rustc: many enumerations with derived traits",
            lambda folder: (tool("rustc"), once(folder, "kinds.rs", make_rust)), run_rust),
    Program("xz", "xz: a dictionary of 24 MiB", records("xz"),
            job(["xz", "-T1", "--lzma2=preset=1,dict=24MiB", "-c", "{folder}/records.bin"],
                output="records.xz")),
    Program("7z", "7z: LZMA2 with two threads", records("7zz"),
            job(["7zz", "a", "-bso0", "-bsp0", "-mx=3", "-md=16m", "-mmt=2", "-mtm-", "{out}",
                 "{folder}/records.bin"], output="records.7z", stdout=False)),
    Program("qemu", "QEMU: an emulated machine with 256 MiB, a kernel of its own", prepare_qemu,
            run_qemu),
]
