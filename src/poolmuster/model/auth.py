"""Who asks, and what they may do: roles, principals, and the proof that a request bore.

Nothing here holds a secret: a token is known by its digest, a certificate by its names.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import translate

import msgspec


class Role(StrEnum):
    """What a credential is for. Only `ADMIN` implies others, and it implies all, for every cluster."""

    READ = "read"
    REGISTER = "register"
    PEER = "peer"
    INFER = "infer"
    ADMIN = "admin"


MATCH_CACHE_SIZE = 256
"""Cluster ids that each set of patterns remembers its answer for."""


class ClusterPatterns:
    """The cluster ids that somebody may speak for, as shell-style patterns: ``*``, ``?`` and ``[seq]``.

    Matched whole, case counts, and nothing is normalised: two ids that look alike are two ids.
    """

    __slots__ = ("_exact", "_match_cache", "_matchers", "patterns")

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        self.patterns = patterns
        self._exact = frozenset(pattern for pattern in patterns if not any(char in pattern for char in "*?["))
        self._matchers = tuple(
            re.compile(translate(pattern)).fullmatch for pattern in patterns if pattern not in self._exact
        )

        self._match_cache: dict[str, bool] = {}

    def __contains__(self, cluster_id: str) -> bool:
        # A relay asks for the same few at every heartbeat, and a regular expression takes a microsecond.
        judged = self._match_cache.get(cluster_id)
        if judged is None:
            judged = cluster_id in self._exact or any(match(cluster_id) for match in self._matchers)
            if len(self._match_cache) < MATCH_CACHE_SIZE:
                self._match_cache[cluster_id] = judged
        return judged

    def __repr__(self) -> str:
        return f"Clusters({self.patterns!r})"


ALL_ROLES = frozenset(role.value for role in Role)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody known by ``name``, with roles and, for `Role.REGISTER`, clusters.

    ``allowed`` are the values of the roles, those that `Role.ADMIN` implies included. ``streams`` bounds its watches at
    once at an instance, ``pools_per_cluster`` the pools of each cluster that it may register; ``None`` leaves the
    instance's own bounds.
    """

    name: str
    roles: frozenset[str]
    clusters: ClusterPatterns = ClusterPatterns()
    streams: int | None = None
    pools_per_cluster: int | None = None

    def has_role(self, role: Role) -> bool:
        """Whether it has ``role``."""
        return role.value in self.roles

    def can_register(self, cluster_id: str) -> bool:
        """Whether it may register and deregister pools of this cluster."""
        return cluster_id in self.clusters


def make_principal(
    name: str,
    roles: Iterable[Role],
    clusters: tuple[str, ...] = (),
    *,
    streams: int | None = None,
    pools_per_cluster: int | None = None,
) -> Principal:
    """A principal, with what its roles imply: `Role.ADMIN` speaks for every cluster."""
    given = frozenset(roles)
    is_admin = Role.ADMIN in given
    clusters = clusters if Role.REGISTER in given else ()
    return Principal(
        name=name,
        roles=ALL_ROLES if is_admin else frozenset(role.value for role in given),
        clusters=ClusterPatterns(("*",) if is_admin else clusters),
        streams=streams,
        pools_per_cluster=pools_per_cluster,
    )


ANONYMOUS = make_principal("anonymous", [Role.ADMIN])
"""Who asks where no credentials are wanted."""


class TokenCredential(msgspec.Struct, frozen=True, gc=False):
    """A bearer token was presented; ``digest`` is its SHA-256."""

    digest: bytes


class CertificateCredential(msgspec.Struct, frozen=True):
    """A client certificate was presented, in a handshake that verified it.

    ``uris`` and ``dns_names`` are its subject alternative names; ``anchor`` is the certificate of the authority that
    its chain ends in, as DER; it counts until ``expires_at_ms``.
    """

    uris: tuple[str, ...]
    dns_names: tuple[str, ...]
    trust_anchor: bytes
    expires_at_ms: int


class ServiceAccountCredential(msgspec.Struct, frozen=True):
    """A Kubernetes service account's token was presented, signed by ``key``: a digest of the public key.

    It counts until ``expires_at_ms``.
    """

    issuer: str
    namespace: str
    account: str
    key: bytes
    expires_at_ms: int


VerifiedCredential = TokenCredential | CertificateCredential | ServiceAccountCredential


class AuthFailure(StrEnum):
    """Why a request's credentials were not enough: for the log and the metrics of the service, never for the caller."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 - the name of a reason
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    UNKNOWN_CERTIFICATE = "unknown_certificate"
    UNTRUSTED_AUTHORITY = "untrusted_authority"
    BAD_JWT = "bad_jwt"
    ALGORITHM = "algorithm"
    UNKNOWN_ISSUER = "unknown_issuer"
    UNKNOWN_KEY = "unknown_key"
    NO_KEYS = "no_keys"
    BAD_SIGNATURE = "bad_signature"
    WRONG_AUDIENCE = "wrong_audience"
    UNKNOWN_ACCOUNT = "unknown_account"
    BUSY = "busy"
    FORBIDDEN = "forbidden"


class AuthenticationError(Exception):
    """What was presented proves nobody.

    It never leaves the service: the caller gets `poolmuster.model.errors.Unauthenticated`, which does not say why.

    ``text`` says more than ``reason``, for the log; it holds no secret.
    """

    def __init__(self, reason: AuthFailure, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
