"""Paths as text for labels and messages."""

import os


def printable(path):
    """Return a path, or a descriptor, as text. Bytes of it that are not UTF-8 become text such as \\xff."""
    if isinstance(path, int):
        return f"descriptor {path}"
    return os.fsencode(path).decode("utf-8", "backslashreplace")
