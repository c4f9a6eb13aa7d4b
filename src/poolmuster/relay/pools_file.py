"""The file of ``--pools``: many pools for one relay, in TOML.

[[pools]]
name = "llama-70b"
frontend = "http://llama-70b.inference.svc:8000"
# From here on all is optional; what a flag can say for every pool, the flag says where the file does not.
cluster_id = "us-east-1-prod"
namespace = "inference"
advertise_url = "https://llama.us-east-1.example.com"
health_path = "/health"
frontend_token_file = "/etc/poolmuster/llama.token"
frontend_ca_cert = "/etc/poolmuster/ca.pem"
region = "us-east-1"
availability_zone = "us-east-1a"
weight = 100
labels_file = "/etc/podinfo/labels"
labels = { tier = "gold" }
aliases = { "meta-llama/Llama-3.3-70B-Instruct" = ["llama-70b"] }
"""

import tomllib
from typing import Any

import msgspec

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import validate_url
from poolmuster.relay.addresses import server_root, unreachable_announcement
from poolmuster.relay.settings import PoolDefaults, PoolSettings

POOLS_LIMIT = 1_000
"""A hundred pools cost about a sixteenth of a core at the default probe interval: beyond this, probes would be late."""


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file."""

    name: str
    frontend: str
    cluster_id: str | None = None
    namespace: str | None = None
    advertise_url: str | None = None
    health_path: str | None = None
    frontend_token_file: str | None = None
    frontend_ca_cert: str | None = None
    region: str | None = None
    availability_zone: str | None = None
    weight: int | None = None
    labels_file: str | None = None
    labels: dict[str, str] = {}
    aliases: dict[str, list[str]] = {}


class PoolsDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    pools: list[PoolEntry] = []


class PoolSet(msgspec.Struct, frozen=True):
    """The pools of a file, in its order; ``remarks`` say for people what was taken otherwise than it was written."""

    settings: tuple[PoolSettings, ...] = ()
    remarks: tuple[str, ...] = ()


def parse_pools(content: bytes, defaults: PoolDefaults, discovery: tuple[str, ...]) -> PoolSet:
    """What a file says, completed by ``defaults``. Raises `InvalidInput`, naming what is wrong."""
    document = _decode(content)
    if len(document.pools) > POOLS_LIMIT:
        raise InvalidInput(f"has {len(document.pools)} pools; one relay takes {POOLS_LIMIT} at most")
    pools: dict[PoolKey, PoolSettings] = {}
    for index, entry in enumerate(document.pools):
        settings = _settings(entry, defaults, f"/pools/{index}")
        check_announcement(settings, discovery, f"/pools/{index}")
        if settings.key in pools:
            raise _wrong(f"/pools/{index}", f"the pool {settings.key} stands in the file twice")
        pools[settings.key] = settings
    return PoolSet(tuple(pools.values()), _remarks(document))


def check_announcement(settings: PoolSettings, discovery: tuple[str, ...], pointer: str) -> None:
    """Raise `InvalidInput` if the pool's URL means nothing where it would be read."""
    elsewhere = unreachable_announcement(settings.advertise_url, discovery)
    if elsewhere is not None:
        raise _wrong(
            pointer,
            f"{settings.advertise_url} names this machine only, and would be announced to {elsewhere}, which is "
            "elsewhere; say by advertise_url how others reach the server",
        )


def _decode(content: bytes) -> PoolsDocument:
    try:
        tree: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"is not TOML: {error}") from error
    try:
        return msgspec.convert(tree, PoolsDocument)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"is not a list of pools: {error}") from error


def _settings(entry: PoolEntry, defaults: PoolDefaults, pointer: str) -> PoolSettings:
    cluster_id = entry.cluster_id if entry.cluster_id is not None else defaults.cluster_id
    if cluster_id is None:
        raise _wrong(pointer, "has no cluster_id, and --cluster-id is not given")
    key = PoolKey(cluster_id, entry.namespace if entry.namespace is not None else defaults.namespace, entry.name)
    try:
        check_key(key)
    except InvalidInput as error:
        raise InvalidInput(
            error.detail, tuple(FieldError(pointer + each.pointer, each.detail) for each in error.field_errors)
        ) from error
    frontend_url = _root(entry.frontend, pointer + "/frontend")
    health_path = entry.health_path if entry.health_path is not None else defaults.health_path
    if (fault := health_path_fault(health_path)) is not None:
        raise _wrong(pointer + "/health_path", fault)
    if entry.weight is not None and entry.weight < 0:
        raise _wrong(pointer + "/weight", "must not be below 0")
    return PoolSettings(
        key=key,
        frontend_url=frontend_url,
        advertise_url=_root(entry.advertise_url, pointer + "/advertise_url") if entry.advertise_url else frontend_url,
        health_path=health_path,
        token_file=entry.frontend_token_file,
        ca_cert=entry.frontend_ca_cert,
        region=entry.region if entry.region is not None else defaults.region,
        availability_zone=entry.availability_zone
        if entry.availability_zone is not None
        else defaults.availability_zone,
        weight=entry.weight,
        labels=tuple({**dict(defaults.labels), **entry.labels}.items()),
        labels_file=entry.labels_file if entry.labels_file is not None else defaults.labels_file,
        aliases=tuple((model_id, alias) for model_id, aliases in entry.aliases.items() for alias in aliases if alias),
    )


def health_path_fault(path: str) -> str | None:
    """Why ``path`` cannot be the path of a health page, or ``None``."""
    if not path.startswith("/"):
        return "must begin with a slash"
    if any(not 0x21 <= ord(char) <= 0x7E or char == "#" for char in path):
        return "must be visible ASCII without a fragment, with other characters percent-encoded"
    return None


def _root(url: str, pointer: str) -> str:
    if (fault := validate_url(url)) is not None:
        raise _wrong(pointer, fault)
    return server_root(url)[0]


def _remarks(document: PoolsDocument) -> tuple[str, ...]:
    return tuple(
        f"the /v1 at the end of {member} of {entry.name} is taken off: {server_root(url)[0]} is used"
        for entry in document.pools
        for member, url in (("frontend", entry.frontend), ("advertise_url", entry.advertise_url or ""))
        if server_root(url)[1]
    )


def _wrong(pointer: str, detail: str) -> InvalidInput:
    return InvalidInput("has a pool that is not valid.", (FieldError(pointer, detail),))
