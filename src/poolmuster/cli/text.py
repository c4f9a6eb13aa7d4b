"""Text for people: foreign text made safe for a terminal, instants, and lengths of time.

A pool's name or label is any text that its relay sent. Printed as it is, an escape sequence in it could move the
cursor, hide lines or type into the operator's shell, and a direction mark could make one name look like another.
"""

import unicodedata
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from poolmuster.model.key import PoolKey

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _unsafe(char: str) -> bool:
    return not (" " <= char <= "~") and unicodedata.category(char) in _UNSAFE


def visible(text: str) -> str:
    r"""``text`` in one line, with each character that a terminal would act on written as ``\x1b``, ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char.encode("unicode_escape").decode() if _unsafe(char) else char for char in text)


def visible_json(text: str) -> str:
    """JSON ``text`` with those characters as JSON escapes: the same value, safe on a terminal.

    Line breaks between values stay, as in JSON they cannot stand inside a string.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_json_escape(char) if char not in "\n\t" and _unsafe(char) else char for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def key_text(key: PoolKey) -> str:
    """A key as one word of one line, ``cluster/namespace/name``, that every command takes back as it is printed."""
    return "".join(quote(char, safe="") if _unsafe(char) or char.isspace() else char for char in str(key))


def duration(length_ms: float) -> str:
    """A length in its one or two largest units: ``11 s``, ``2 min 5 s``, ``3 h``."""
    seconds = max(0, -(-int(length_ms) // 1000))
    parts: list[str] = []
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


def instant(at_ms: Any) -> str:
    """Milliseconds since 1970 as UTC to the second; ``-`` for any other value."""
    if not isinstance(at_ms, int | float) or isinstance(at_ms, bool):
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "-"
