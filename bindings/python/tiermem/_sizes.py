"""Sizes as text: "200G". The rules are those of the library's options (docs/configuration.md).

The C interface has no function for them, so that they are here a second time.
"""

import re

_UNITS = "KMGTPE"
_SIZE = re.compile(r"\s*([0-9]+)(?:\.([0-9]{1,9}))?\s*(?:([KMGTPE])(?:iB)?|(B))?\s*", re.IGNORECASE | re.ASCII)
_MOST = (1 << 64) - 1


def parse(size):
    """Return a number of bytes from a number or from a text such as "200G" or "1.5T".

    Units are powers of 1024, as K or KiB. GB is refused, because many readers take it for 10**9.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if 0 <= size <= _MOST:
            return size
        raise ValueError(f"{size} is not a size; accepted are 0 to 2**64 - 1 bytes")
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or (match[2] and not match[3]):
        raise ValueError(
            f"{size!r} is not a size; accepted are a number of bytes, and texts such as '200G', "
            "'1.5T', '64K' and '2MiB' (powers of 1024)"
        )
    shift = 10 * (_UNITS.index(match[3].upper()) + 1) if match[3] else 0
    fraction = match[2] or ""
    bytes_ = (int(match[1]) << shift) + ((int(fraction or 0) << shift) // 10 ** len(fraction))
    if bytes_ > _MOST:
        raise ValueError(f"{size!r} is not a size; it is above 2**64 - 1 bytes")
    return bytes_
