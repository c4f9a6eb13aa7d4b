"""The environment variables ``POOLMUSTER_...``: which flag each belongs to, and which Kubernetes put there.

Kubernetes gives every container variables for each Service of its namespace, and a Service named ``poolmuster``, or
``poolmuster-`` and more, makes them look like ours.
"""

import re
from collections.abc import Iterable, Mapping

PREFIX = "POOLMUSTER_"

_INJECTED_VALUE = re.compile(r"(tcp|udp|sctp)://")
_INJECTED_NAME = re.compile(
    r"POOLMUSTER_(?:[A-Z0-9_]+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)


def variable_of(flag: str) -> str:
    """The variable of a flag: ``--some-flag`` reads ``POOLMUSTER_SOME_FLAG``, in every program."""
    return PREFIX + flag.lstrip("-").replace("-", "_").upper()


def is_unset(value: str) -> bool:
    """Whether a variable with this value counts as not set: it is blank, or Kubernetes injected it."""
    return not value.strip() or _INJECTED_VALUE.match(value) is not None


def is_injected(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable for a Service, by its name or its value."""
    return _INJECTED_NAME.fullmatch(name) is not None or _INJECTED_VALUE.match(value) is not None


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """The names in ``environ`` that look like ours, but belong to no flag and were not injected; sorted."""
    names = set(known)
    return sorted(
        name
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in names and not is_injected(name, value)
    )
