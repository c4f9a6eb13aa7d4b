"""A registration: the document a relay sends for its pool, its canonical form, and what selectors read of it.

Only the key is required. `null` in a known optional field means absent. Fields that this version does not know are
kept and listed as they came. The canonical form is compact, with members by code point, ``models`` by ``id`` and
``aliases`` sorted and without repeats; other arrays stay as sent. Two registrations have the same facts exactly when
their canonical bytes are equal, which is what makes a heartbeat not a change.
"""

import json
import re
import sys
from hashlib import shake_256
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.key import KEY_PARTS, PoolKey, check_key
from poolmuster.model.strict_json import canonical, decode, escape_pointer

NonNegative = Annotated[int, msgspec.Meta(ge=0)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]

POINTER_BYTES = 8

BODY_LIMIT_BYTES = 384 * 1024
"""Of a canonical form, which may be longer than what was sent (``1e9`` is ``1000000000.0``). An item of DynamoDB has
400 KB, and every store takes the same."""

RELAY_ID_LIMIT = 256
"""Characters of a ``relay_id``. It is kept for an hour after its pool has left, so it must not be of any length."""

RelayId = Annotated[str, msgspec.Meta(min_length=1, max_length=RELAY_ID_LIMIT)]

DIGEST_BITS = 2048
"""Width of a pool's digest. Digests are summed over a list, and at this width no one can steer such a sum."""


class ModelDocument(msgspec.Struct, kw_only=True):
    """One model a pool serves. ``id`` is opaque; ``context_window`` is in tokens."""

    id: NonEmpty
    aliases: list[NonEmpty] | None = None
    context_window: NonNegative | None = None


class LocationDocument(msgspec.Struct, kw_only=True):
    """Where a pool runs."""

    region: str | None = None
    availability_zone: str | None = None


class RegistrationDocument(msgspec.Struct, kw_only=True):
    """The wire form of a registration; further fields are allowed and kept."""

    cluster_id: str
    namespace: str
    dgd_name: str
    relay_id: RelayId | None = None
    frontend_url: str | None = None
    weight: NonNegative | None = None
    location: LocationDocument | None = None
    models: list[ModelDocument] | None = None
    labels: dict[str, str] | None = None


class Pool(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The facts of a registration. ``body`` is the canonical form, byte for byte as lists show it.

    ``status_offset`` is where in it the reserved member ``status`` belongs; ``digest`` is a wide hash of it. The next
    fields are what selectors look at. Kept as bytes and tuples, not as a parsed tree, so that tens of
    thousands of pools cost the garbage collector nothing. ``size_bytes`` is what all of it takes in memory, but for
    what is the same for every pool: a body of nothing but short aliases takes ten times its length.
    """

    key: PoolKey
    body: bytes
    status_offset: int
    digest: int
    region: str | None
    model_names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    size_bytes: int

    @property
    def document(self) -> dict[str, Any]:
        """The facts as a JSON object, decoded anew at each call."""
        document: dict[str, Any] = json.loads(self.body)
        return document

    def body_with_status(self, status: bytes) -> bytes:
        """The canonical form with the member ``status``, whose JSON is given, at its place."""
        head, tail = self.body[: self.status_offset], self.body[self.status_offset + 1 :]
        return b'%b,"status":%b%b' % (head, status, b"," + tail if tail else b"}")


class Registration(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A pool's facts together with the relay that speaks for it, where it said who it is."""

    pool: Pool
    relay_id: str | None

    @property
    def key(self) -> PoolKey:
        return self.pool.key


def parse_registration(body: bytes, *, lenient: bool = False) -> Registration:
    """Read what a relay sent. Raises `InvalidInput` naming what is wrong.

    ``foreign`` is for items that another implementation wrote into a shared store: there a member ``status``, which
    is reserved for what the service adds, is dropped instead of refused.
    """
    document = decode(body)
    if not isinstance(document, dict):
        raise _invalid(FieldError("", "a registration is a JSON object"))
    if lenient:
        document.pop("status", None)
    return registration_of(document)


def registration_of(document: dict[str, Any]) -> Registration:
    """Like `parse_registration`, of a decoded document, which is consumed. Raises `InvalidInput`."""
    missing = tuple(FieldError("/" + name, "is required") for name in KEY_PARTS if document.get(name) is None)
    if missing:
        raise _invalid(*missing)
    try:
        known = msgspec.convert(document, RegistrationDocument)
    except msgspec.ValidationError as error:
        raise _invalid(_field_error(error)) from error
    key = PoolKey(known.cluster_id, known.namespace, known.dgd_name)
    check_key(key)
    faults = [*_validate_status(document), *_validate_frontend_url(known.frontend_url)]
    _drop_nulls(document, RegistrationDocument)
    document.pop("relay_id", None)
    if known.location is not None:
        _drop_nulls(document["location"], LocationDocument)
    if known.models is not None:
        document["models"] = _canonical_models(document["models"], faults)
    if faults:
        raise _invalid(*faults)
    pool = _pool(key, document, known)
    if len(pool.body) > BODY_LIMIT_BYTES:
        raise _invalid(FieldError("", f"is over {BODY_LIMIT_BYTES} bytes in canonical form"))
    return Registration(pool, known.relay_id)


def _pool(key: PoolKey, document: dict[str, Any], known: RegistrationDocument) -> Pool:
    before = canonical({name: value for name, value in document.items() if name < "status"})
    after = canonical({name: value for name, value in document.items() if name > "status"})
    body = before if after == b"{}" else before[:-1] + b"," + after[1:]
    model_names = tuple(sorted({name for model in known.models or () for name in (model.id, *(model.aliases or ()))}))
    labels = tuple(sorted((known.labels or {}).items()))
    return Pool(
        key=key,
        body=body,
        status_offset=len(before) - 1,
        digest=int.from_bytes(shake_256(body).digest(DIGEST_BITS // 8)),
        region=known.location.region if known.location else None,
        model_names=model_names,
        labels=labels,
        size_bytes=len(body) + _size_bytes(model_names) + _size_bytes(labels) + sum(map(_size_bytes, labels)),
    )


def _size_bytes(parts: tuple[Any, ...]) -> int:
    return sum(map(sys.getsizeof, parts), len(parts) * POINTER_BYTES)


def _invalid(*faults: FieldError) -> InvalidInput:
    return InvalidInput("The registration is not valid.", faults)


def _field_error(error: msgspec.ValidationError) -> FieldError:
    """Say with a JSON pointer what msgspec says as ``Expected `int`, got `str` - at `$.models[0].id```."""
    detail, _, path = str(error).partition(" - at `")
    # Of a member whose name is not told (``[...]``), the object that holds it is the nearest place.
    tokens = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path.partition("[...]")[0])
    return FieldError("".join("/" + escape_pointer(name or index) for name, index in tokens), detail.replace("`", "'"))


def _drop_nulls(document: dict[str, Any], known: type[msgspec.Struct]) -> None:
    for name in known.__struct_fields__:
        if name in document and document[name] is None:
            del document[name]


def _validate_status(document: dict[str, Any]) -> list[FieldError]:
    return [FieldError("/status", "is reserved for what the service adds")] if "status" in document else []


def _validate_frontend_url(url: str | None) -> list[FieldError]:
    fault = None if url is None else validate_url(url)
    return [] if fault is None else [FieldError("/frontend_url", fault)]


def validate_url(url: str) -> str | None:
    """Why ``url`` cannot be the root of an OpenAI-compatible server, or ``None``."""
    if any(char.isspace() or not char.isprintable() for char in url):
        return "must not contain white space or control characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname or port == 0:
        return "must name a host, and a port other than 0 where it names one"
    if "@" in parts.netloc:
        return "must not carry user information"
    if "?" in url or "#" in url:
        return "must not have a query or a fragment"
    return _validate_host(url, parts.hostname)


def redact_url(url: str) -> str:
    """``url`` for an error's text: what stands before an ``@`` may be a password."""
    return re.sub(r"//.*@", "//...@", url)


def _validate_host(url: str, host: str) -> str | None:
    if "\\" in url:
        # Some readers of URLs take it for a slash, others for a part of the host: they would go to different hosts.
        return "must not contain a backslash"
    try:
        host.encode("idna")
    except UnicodeError:
        return "must name a host whose labels have 1 to 63 characters"
    return None


def _canonical_models(models: list[dict[str, Any]], faults: list[FieldError]) -> list[dict[str, Any]]:
    by_id: dict[str, tuple[int, dict[str, Any]]] = {}
    for index, model in enumerate(models):
        _drop_nulls(model, ModelDocument)
        if "aliases" in model:
            model["aliases"] = sorted(set(model["aliases"]))
        first, facts = by_id.setdefault(model["id"], (index, model))
        if facts is not model and canonical(facts) != canonical(model):
            faults.append(
                FieldError(
                    f"/models/{index}", f"model {model['id']!r} also stands at /models/{first}, with other facts"
                )
            )
    return [by_id[model_id][1] for model_id in sorted(by_id)]
