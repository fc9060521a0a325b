"""Sizes and times as people write them."""

import re
from typing import Optional, Union

from .errors import InvalidUse

Size = Union[int, str, None]
Time = Union[int, float, str, None]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)", re.IGNORECASE)
_NUMBER = re.compile(r"\d*\.?\d+")
_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}


def parse_size(size: Size) -> int:
    """Returns bytes: of a number, or of text such as "8G" (powers of 1024); 0 for None.

    Raises InvalidUse.
    """
    if size is None:
        return 0
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        raise InvalidUse(f"{size!r} is no size; write for example '8G' or '512M'")
    return round(float(match[1]) * _BYTES[match[2].upper()])


def parse_time(time: Time) -> Optional[float]:
    """Returns seconds: of a number, or of text such as "30s", "5m" or "1h30m"; None for None.

    Raises InvalidUse.
    """
    if time is None:
        return None
    if isinstance(time, (int, float)) and not isinstance(time, bool) and time >= 0:
        return float(time)
    text = time.replace(" ", "") if isinstance(time, str) else ""
    if text == "0":
        return 0.0
    parts = list(_TIME.finditer(text))
    if _NUMBER.fullmatch(text):
        raise InvalidUse(f"{time!r} has no unit; write for example '{text}s' or '{text}m'")
    if not parts or "".join(part[0] for part in parts) != text:
        raise InvalidUse(f"{time!r} is no time; write for example '30s', '5m' or '1h30m'")
    return sum(float(part[1]) * _SECONDS[part[2].lower()] for part in parts)


def format_size(size: int) -> str:
    """Returns for example "1.5 GiB"."""
    for unit, count in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= count:
            return f"{size / count:.3g} {unit}"
    return f"{size} B"


def format_time(seconds: float) -> str:
    """Returns for example "40 ms", "1.5 s" or "2 min 5 s"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes} min {rest} s" if rest and not hours else f"{minutes} min"
    return f"{hours} h {text}" if hours else text
