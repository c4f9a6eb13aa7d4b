"""The pool key: ``(cluster_id, namespace, dgd_name)``.

Keys are compared exactly: case matters and nothing is normalised. Their order is part by part, by code point.
"""

import unicodedata
from urllib.parse import unquote

import msgspec

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.percent import check_percent_signs

STORAGE_KEY_LIMIT_BYTES = 1024
"""DynamoDB's limit for a sort key. It holds for every store, so that a pool can move between them."""

KEY_PARTS = ("cluster_id", "namespace", "dgd_name")


class PoolKey(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """Identity of one pool. ``dgd_name`` is its pool name; ``namespace`` its Kubernetes namespace."""

    cluster_id: str
    namespace: str
    dgd_name: str

    def __str__(self) -> str:
        """The form for people: ``cluster/namespace/name``, with ``%`` and ``/`` inside a part escaped."""
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in self.parts)

    @property
    def parts(self) -> tuple[str, str, str]:
        return (self.cluster_id, self.namespace, self.dgd_name)

    @property
    def storage_key(self) -> str:
        """The sort key under which stores keep the pool; two different keys never share one."""
        return "#".join(part.replace("%", "%25").replace("#", "%23") for part in self.parts)


def validate_part(part: str) -> str | None:
    """What is wrong with one part of a key, or ``None``."""
    if not part:
        return "must not be empty"
    if part in (".", ".."):
        return "must not be '.' or '..'"
    for edge in (part[0], part[-1]):
        if edge.isspace() or unicodedata.category(edge) == "Cc":
            return "must not begin or end with white space or a control character"
    if any("\ud800" <= char <= "\udfff" for char in part):
        return "must be encodable in UTF-8 (it has a lone surrogate)"
    return None


def check_key(key: PoolKey) -> None:
    """Raise `InvalidInput`, naming each bad part, unless ``key`` may be stored."""
    faults = [
        FieldError("/" + name, fault)
        for name, part in zip(KEY_PARTS, key.parts, strict=True)
        if (fault := validate_part(part)) is not None
    ]
    if not faults and (size := len(key.storage_key.encode())) > STORAGE_KEY_LIMIT_BYTES:
        faults = [
            FieldError("", f"the key is {size} bytes in its stored form; at most {STORAGE_KEY_LIMIT_BYTES} are allowed")
        ]
    if faults:
        raise InvalidInput("The pool key is not valid.", tuple(faults))


def parse_key(text: str) -> PoolKey:
    """Read the form for people, ``cluster/namespace/name``. Raises `InvalidInput`."""
    parts = text.split("/")
    if len(parts) != len(KEY_PARTS):
        raise InvalidInput(f"A pool key has the form cluster/namespace/name ('/' inside a part is %2F), not {text!r}.")
    check_percent_signs(text, "pool key")
    try:
        key = PoolKey(*(unquote(part, errors="strict") for part in parts))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The pool key {text!r} is not UTF-8 once its percent signs are decoded.") from error
    check_key(key)
    return key
