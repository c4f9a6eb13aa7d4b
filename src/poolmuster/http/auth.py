"""The gate before every path: who asks, and may they."""

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.model.auth import AuthenticationError, CertificateCredential, Role
from poolmuster.model.errors import Forbidden, Unauthenticated
from poolmuster.ports.authenticator import ANONYMOUS_CONTEXT, AuthContext, Authenticator

WANTED = "Credentials are needed: the header 'Authorization: Bearer TOKEN', or a client certificate."
NOT_KNOWN = "These credentials are not accepted here."


class Authorizer:
    """Lets requests in by ``authenticator``; everybody, where it is ``None``, which has to be said."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    @property
    def allows_anonymous(self) -> bool:
        """Whether no credentials are wanted."""
        return self._authenticator is None

    def admit(self, scope: Scope) -> AuthContext:
        """Who sent this request. Raises `Unauthenticated`, caused by the `AuthenticationError` that knows why."""
        if self._authenticator is None:
            return ANONYMOUS_CONTEXT
        authorization: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                # With two, a proxy before us may have gone by the other.
                authorization = value if authorization is None else b""
        try:
            return self._authenticator.authenticate(authorization, scope.get("certificate"))
        except AuthenticationError as error:
            by_connection = authorization is None and scope.get("certificate") is not None
            presented = authorization is not None or by_connection
            raise Unauthenticated(
                NOT_KNOWN if presented else WANTED, presented=presented, by_connection=by_connection
            ) from error

    def can_read(self, scope: Scope) -> bool:
        """Whether whoever sent this request, to a path that is open to all, may also read."""
        try:
            return self.admit(scope).principal.has_role(Role.READ)
        except Unauthenticated:
            return False

    def renew(self, admission: AuthContext) -> AuthContext:
        """The admission of somebody who was let in before, as of now. Raises `Unauthenticated`, as `admit` does."""
        authenticator = self._authenticator
        if authenticator is None:
            return admission
        if admission.generation == authenticator.generation and admission.expires_at_ms is None:
            return admission  # as with nearly every heartbeat
        try:
            return authenticator.reauthenticate(admission)
        except AuthenticationError as error:
            raise Unauthenticated(
                NOT_KNOWN, by_connection=isinstance(admission.credential, CertificateCredential)
            ) from error

    def still_has(self, admission: AuthContext, role: Role) -> bool:
        """Whether somebody who was let in before would be let in again, and has ``role``."""
        try:
            return self.renew(admission).principal.has_role(role)
        except Unauthenticated:
            return False

    def guard(self, app: ASGIApp, **roles: Role) -> ASGIApp:
        """``app`` behind the gate: each method needs the role given for it, ``HEAD`` that of ``GET``.

        A method that none is given for needs some credential: who has none does not learn what there is. ``app``
        finds who asks in ``scope["admission"]``.
        """
        if "GET" in roles:
            roles["HEAD"] = roles["GET"]
        return _Unguarded(app) if self.allows_anonymous else _Guarded(self, app, roles)


class _Unguarded:
    """Behind an open gate."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["admission"] = ANONYMOUS_CONTEXT
        await self._app(scope, receive, send)


class _Guarded:
    """An object, as what is only a function would be called with a request by the router."""

    def __init__(self, authorizer: Authorizer, app: ASGIApp, roles: dict[str, Role]) -> None:
        self._gate = authorizer
        self._app = app
        self._roles = {method: role.value for method, role in roles.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission = scope["admission"] = self._gate.admit(scope)
        role = self._roles.get(scope["method"])
        if role is not None and role not in admission.principal.roles:
            raise Forbidden(f"This needs the role {role!r}.")
        await self._app(scope, receive, send)


class AccessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets in, and how those who do not are told of: alike for every application of a program.

    Where ``loopback_only``, requests have to name this machine; ``health_loopback_only`` is the same for the address
    that serves health alone.
    """

    authorizer: Authorizer
    auth_log: AuthFailureLog | None = None
    loopback_only: bool
    health_loopback_only: bool = False
