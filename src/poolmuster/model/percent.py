"""Percent-encoding, read strictly wherever it is read: in paths, queries and typed keys."""

import re

from poolmuster.model.errors import InvalidInput

_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


def check_percent_signs(text: str, where: str) -> None:
    """Raise `InvalidInput` unless each ``%`` encodes a byte: taken as it stands, one thing would have two names."""
    if _LONE_PERCENT.search(text):
        raise InvalidInput(f"The {where} has a percent sign without two hexadecimal digits; the sign itself is %25.")
