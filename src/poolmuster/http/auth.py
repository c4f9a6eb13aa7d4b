"""Authentication and authorization of requests: which principal sends one, and whether it has the role."""

import msgspec
from starlette.types import Scope

from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.model.auth import AuthenticationError, CertificateCredential, Role
from poolmuster.model.errors import Forbidden, Unauthenticated
from poolmuster.ports.authenticator import ANONYMOUS_CONTEXT, AuthContext, Authenticator

WANTED = "Credentials are needed: the header 'Authorization: Bearer TOKEN', or a client certificate."
NOT_KNOWN = "These credentials are not accepted here."


class Authorizer:
    """Checks credentials by ``authenticator``; without one every request is anonymous and may do everything."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    @property
    def allows_anonymous(self) -> bool:
        """Whether no credentials are needed."""
        return self._authenticator is None

    def authorize(self, scope: Scope, role: Role | None) -> AuthContext:
        """Authenticates a request, puts the result into ``scope["auth"]`` and checks that it has ``role``.

        Raises `Unauthenticated`, whose cause is the `AuthenticationError` with the reason, and `Forbidden`.
        """
        context = scope["auth"] = self._authenticate(scope)
        return _with_role(context, role)

    def _authenticate(self, scope: Scope) -> AuthContext:
        if self._authenticator is None:
            return ANONYMOUS_CONTEXT
        authorization: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                # Two are refused: a proxy before this service may have checked the other.
                authorization = value if authorization is None else b""
        try:
            return self._authenticator.authenticate(authorization, scope.get("certificate"))
        except AuthenticationError as error:
            by_connection = authorization is None and scope.get("certificate") is not None
            presented = authorization is not None or by_connection
            raise Unauthenticated(
                NOT_KNOWN if presented else WANTED, presented=presented, by_connection=by_connection
            ) from error

    def reauthorize(self, context: AuthContext, role: Role) -> AuthContext:
        """``context`` of an earlier request, authenticated again as of now. Raises as `authorize` does."""
        authenticator = self._authenticator
        if authenticator is None or (
            # nearly every heartbeat
            context.generation == authenticator.generation and context.expires_at_ms is None
        ):
            return _with_role(context, role)
        try:
            return _with_role(authenticator.reauthenticate(context), role)
        except AuthenticationError as error:
            by_connection = isinstance(context.credential, CertificateCredential)
            raise Unauthenticated(NOT_KNOWN, by_connection=by_connection) from error

    def still_has(self, context: AuthContext, role: Role) -> bool:
        """Whether ``context`` of an earlier request would still be authenticated, and has ``role``."""
        try:
            self.reauthorize(context, role)
        except (Unauthenticated, Forbidden):
            return False
        return True

    def can_read(self, scope: Scope) -> bool:
        """Whether a request to an open endpoint has credentials with the role to read."""
        try:
            self.authorize(scope, Role.READ)
        except (Unauthenticated, Forbidden):
            return False
        return True


def _with_role(context: AuthContext, role: Role | None) -> AuthContext:
    if role is not None and role not in context.principal.roles:
        raise Forbidden(f"This needs the role {role.value!r}.")
    return context


class AccessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How every application of a program authorizes requests and logs the failures.

    With ``loopback_only`` requests must name this machine in ``Host``; ``health_loopback_only`` is the same for the
    listener that serves health alone.
    """

    authorizer: Authorizer
    auth_log: AuthFailureLog | None = None
    loopback_only: bool
    health_loopback_only: bool = False
