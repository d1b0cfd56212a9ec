"""The declarations of bindings/c/tiermem.h: functions, constants, structs. For scripts/abi and tests."""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = os.path.join(ROOT, "bindings", "c", "tiermem.h")


def _text():
    with open(PATH, encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def functions():
    return re.findall(r"^TIERMEM_API[^;]*?\b(tm_\w+)\(", _text(), re.M)


def constants():
    """The names of all enumerators, in their order."""
    return [name for body in re.findall(r"^enum \{(.*?)\}", _text(), re.M | re.S)
            for name in re.findall(r"\b(TM_\w+)\b(?=\s*[=,}]|\s*$)", body, re.M)]


def statuses():
    names = constants()
    return names[names.index("TM_OK"):names.index("TM_INTERNAL") + 1]


def fields():
    """Yields (struct, field, type as it is spelled) for each field of all structs."""
    for name, body in re.findall(r"typedef struct (tm_\w+) \{(.*?)\}", _text(), re.S):
        for kind, field, array in re.findall(r"\s*([^;]+?)(\w+)(\[\d+\])?;", body):
            yield name, field, kind.strip().replace(" ", "_") + array


def growing_structs():
    """The structs that begin with their size."""
    return re.findall(r"typedef struct (tm_\w+) \{\s*size_t size;", _text())
