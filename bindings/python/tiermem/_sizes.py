"""Sizes as text: "200G"."""

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse(size):
    """Return a number of bytes from a number or from a text such as "200G" or "1.5T"."""
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", str(size), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{size!r} is not a size; write a number of bytes, or a text such as '200G'")
    return int(float(match[1]) * _UNITS[match[2].upper()])
