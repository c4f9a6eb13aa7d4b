"""Instants and lengths of time as people read them."""

from datetime import UTC, datetime
from typing import Any


def duration(length_ms: float) -> str:
    """A length in its one or two largest units: ``11 s``, ``2 min 5 s``, ``3 h``."""
    seconds = max(0, -(-int(length_ms) // 1000))
    units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]
    parts: list[str] = []
    for size, name in units:
        count, seconds = divmod(seconds, size)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count} {name}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"


def instant(at_ms: Any) -> str:
    """Milliseconds since 1970 as UTC to the second; ``-`` for what is no instant."""
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool):
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "-"
