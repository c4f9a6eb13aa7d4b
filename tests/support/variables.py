"""The variables that steer the tests themselves, taken out of the environment before anything else is imported.

To the programs under test a variable that begins like these is a flag, and one they do not know is warned of.
"""

import os

PREFIX = "POOLMUSTER_"

_TAKEN = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}


def variable(name: str, default: str = "") -> str:
    """The value that ``POOLMUSTER_<name>`` had when the tests began."""
    return _TAKEN.get(PREFIX + name, default)
