"""The file of ``--pools``: many pools for one relay, in TOML.

[[pools]]
name = "llama-70b"
frontend = "http://llama-70b.inference.svc:8000"
# All that follows is optional. Flags for every pool fill in what the file leaves out.
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
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import validate_url
from poolmuster.relay.settings import (
    PoolDefaults,
    PoolSettings,
    server_root,
    unreachable_announcement,
    validate_health_path,
)

POOLS_LIMIT = 1_000
"""A hundred pools cost about a sixteenth of a core at the default probe interval: beyond this, probes would be late."""

T = TypeVar("T")


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file, or the flags for one pool."""

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

    @property
    def shortened(self) -> Iterator[tuple[str, str]]:
        """Each member whose URL ends in ``/v1``, and the root that is used instead."""
        for member, url in (("frontend", self.frontend), ("advertise_url", self.advertise_url or "")):
            root, shortened = server_root(url)
            if shortened:
                yield member, root


class PoolsDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    pools: list[PoolEntry] = []


class PoolSet(msgspec.Struct, frozen=True):
    """The pools of a file, in its order; ``warnings`` tell people what differs from the file's text."""

    settings: tuple[PoolSettings, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_pools(content: bytes, defaults: PoolDefaults, discovery: tuple[str, ...]) -> PoolSet:
    """The pools of a file, completed by ``defaults``. Raises `InvalidInput`, naming what is wrong."""
    document = _decode(content)
    if len(document.pools) > POOLS_LIMIT:
        raise InvalidInput(f"has {len(document.pools)} pools; one relay takes {POOLS_LIMIT} at most")
    pools: dict[PoolKey, PoolSettings] = {}
    for index, entry in enumerate(document.pools):
        try:
            settings = pool_settings(entry, defaults, discovery)
        except InvalidInput as error:
            errors = (FieldError(f"/pools/{index}{each.pointer}", each.detail) for each in error.field_errors)
            raise InvalidInput(error.detail, tuple(errors)) from error
        if settings.key in pools:
            raise _invalid(f"/pools/{index}", f"the pool {settings.key} stands in the file twice")
        pools[settings.key] = settings
    return PoolSet(
        tuple(pools.values()),
        tuple(
            f"the /v1 at the end of {member} of {entry.name} is taken off: {root} is used"
            for entry in document.pools
            for member, root in entry.shortened
        ),
    )


def _decode(content: bytes) -> PoolsDocument:
    try:
        tree = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"is not TOML: {error}") from error
    try:
        return msgspec.convert(tree, PoolsDocument)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"is not a list of pools: {error}") from error


def pool_settings(entry: PoolEntry, defaults: PoolDefaults, discovery: tuple[str, ...]) -> PoolSettings:
    """One pool, completed by ``defaults``. Raises `InvalidInput`, whose pointers name members of the entry or the key.

    A URL to be registered must mean something at every URL of ``discovery``.
    """
    cluster_id = _given(entry.cluster_id, defaults.cluster_id)
    if cluster_id is None:
        raise _invalid("", "has no cluster_id, and --cluster-id is not given")
    key = PoolKey(cluster_id, _given(entry.namespace, defaults.namespace), entry.name)
    check_key(key)
    frontend_url = _root(entry.frontend, "/frontend")
    advertise_url = _root(entry.advertise_url, "/advertise_url") if entry.advertise_url else frontend_url
    if (elsewhere := unreachable_announcement(advertise_url, discovery)) is not None:
        raise _invalid(
            "/advertise_url" if entry.advertise_url else "/frontend",
            f"{advertise_url} names this machine only, and would be registered at {elsewhere}, which is elsewhere: "
            "set advertise_url to the URL by which others reach the server",
        )
    health_path = _given(entry.health_path, defaults.health_path)
    if (fault := validate_health_path(health_path)) is not None:
        raise _invalid("/health_path", fault)
    if entry.weight is not None and entry.weight < 0:
        raise _invalid("/weight", "must not be below 0")
    return PoolSettings(
        key=key,
        frontend_url=frontend_url,
        advertise_url=advertise_url,
        health_path=health_path,
        token_file=entry.frontend_token_file,
        ca_cert=entry.frontend_ca_cert,
        region=_given(entry.region, defaults.region),
        availability_zone=_given(entry.availability_zone, defaults.availability_zone),
        weight=entry.weight,
        labels=tuple({**dict(defaults.labels), **entry.labels}.items()),
        labels_file=_given(entry.labels_file, defaults.labels_file),
        aliases=tuple((model_id, alias) for model_id, aliases in entry.aliases.items() for alias in aliases if alias),
    )


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _root(url: str, pointer: str) -> str:
    if (fault := validate_url(url)) is not None:
        raise _invalid(pointer, fault)
    return server_root(url)[0]


def _invalid(pointer: str, detail: str) -> InvalidInput:
    return InvalidInput("has a pool that is not valid.", (FieldError(pointer, detail),))
