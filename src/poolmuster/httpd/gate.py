"""The gate before every path: who asks, and may they."""

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.httpd.refusals import Refusals
from poolmuster.model.access import CertificateProof, NotProved, Role
from poolmuster.model.errors import Forbidden, Unauthenticated
from poolmuster.ports.authenticator import UNASKED, Admission, Authenticator

WANTED = "Credentials are needed: the header 'Authorization: Bearer TOKEN', or a client certificate."
NOT_KNOWN = "These credentials are not accepted here."


class Gate:
    """Lets requests in by ``authenticator``; everybody, where it is ``None``, which has to be said."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    @property
    def is_open(self) -> bool:
        """Whether no credentials are wanted."""
        return self._authenticator is None

    def admit(self, scope: Scope) -> Admission:
        """Who sent this request. Raises `Unauthenticated`, caused by the `NotProved` that knows why."""
        if self._authenticator is None:
            return UNASKED
        authorization: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                # With two, a proxy before us may have gone by the other.
                authorization = value if authorization is None else b""
        try:
            return self._authenticator.admit(authorization, scope.get("certificate"))
        except NotProved as error:
            by_connection = authorization is None and scope.get("certificate") is not None
            presented = authorization is not None or by_connection
            raise Unauthenticated(
                NOT_KNOWN if presented else WANTED, presented=presented, by_connection=by_connection
            ) from error

    def may_read(self, scope: Scope) -> bool:
        """Whether whoever sent this request, to a path that is open to all, may also read."""
        try:
            return self.admit(scope).principal.may(Role.READ)
        except Unauthenticated:
            return False

    def renew(self, admission: Admission) -> Admission:
        """The admission of somebody who was let in before, as of now. Raises `Unauthenticated`, as `admit` does."""
        authenticator = self._authenticator
        if authenticator is None:
            return admission
        if admission.generation == authenticator.generation and admission.expires_at_ms is None:
            return admission  # as with nearly every heartbeat
        try:
            return authenticator.renew(admission)
        except NotProved as error:
            raise Unauthenticated(NOT_KNOWN, by_connection=isinstance(admission.proof, CertificateProof)) from error

    def may_still(self, admission: Admission, role: Role) -> bool:
        """Whether somebody who was let in before would be let in again, and has ``role``."""
        try:
            return self.renew(admission).principal.may(role)
        except Unauthenticated:
            return False

    def guard(self, app: ASGIApp, **roles: Role) -> ASGIApp:
        """``app`` behind the gate: each method needs the role given for it, ``HEAD`` that of ``GET``.

        A method that none is given for needs some credential: who has none does not learn what there is. ``app``
        finds who asks in ``scope["admission"]``.
        """
        if "GET" in roles:
            roles["HEAD"] = roles["GET"]
        return _Unguarded(app) if self.is_open else _Guarded(self, app, roles)


class _Unguarded:
    """Behind an open gate."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["admission"] = UNASKED
        await self._app(scope, receive, send)


class _Guarded:
    """An object, as what is only a function would be called with a request by the router."""

    def __init__(self, gate: Gate, app: ASGIApp, roles: dict[str, Role]) -> None:
        self._gate = gate
        self._app = app
        self._roles = {method: role.value for method, role in roles.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission = scope["admission"] = self._gate.admit(scope)
        role = self._roles.get(scope["method"])
        if role is not None and role not in admission.principal.allowed:
            raise Forbidden(f"This needs the role {role!r}.")
        await self._app(scope, receive, send)


class EntryRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets in, and how those who do not are told of: alike for every application of a program.

    Where ``loopback_only``, requests have to name this machine; ``health_loopback_only`` is the same for the address
    that serves health alone.
    """

    gate: Gate
    refusals: Refusals | None = None
    loopback_only: bool
    health_loopback_only: bool = False
