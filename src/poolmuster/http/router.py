"""Request dispatch: method and path give the role that a request needs and the handler that answers it."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.http.auth import Authorizer
from poolmuster.model.auth import Role
from poolmuster.model.errors import BodyTooLarge, InvalidInput, MethodNotAllowed, NotFound, UnsupportedMediaType
from poolmuster.model.percent import check_percent_signs

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """One path, and for each method the role it needs and the application that answers it.

    A segment ``{name}`` of the path matches any segment, also an empty one, and becomes a path parameter. An endpoint
    whose roles are all ``None`` is open: it needs no credentials. `HEAD` is added wherever `GET` is.
    """

    def __init__(self, path: str, **methods: tuple[Role | None, ASGIApp]) -> None:
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]
        self.path = path
        self.methods = methods
        self.is_open = all(role is None for role, _ in methods.values())
        self._segments = path.split("/")

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of ``path``, still percent-encoded; ``None`` where this is not its endpoint."""
        segments = path.split("/")
        if len(segments) != len(self._segments):
            return None
        pairs = list(zip(self._segments, segments, strict=True))
        if any(own != segment for own, segment in pairs if not own.startswith("{")):
            return None
        return {own[1:-1]: segment for own, segment in pairs if own.startswith("{")}


class PathRouter:
    """Dispatches requests to ``endpoints``; ``not_found`` is the text of the error for all other paths.

    With ``authorizer``, a request to any path but an open endpoint's needs credentials before the path is matched, so
    that the errors of the path show nothing without them. Fixed paths are looked up; the others are matched in turn.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, not_found: str, authorizer: Authorizer | None = None) -> None:
        self._fixed = {endpoint.path: endpoint for endpoint in endpoints if "{" not in endpoint.path}
        self._others = [endpoint for endpoint in endpoints if "{" in endpoint.path]
        self._not_found = not_found
        self._authorizer = authorizer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        endpoint = self._fixed.get(scope["path"])
        if endpoint is None:
            if self._authorizer is not None:
                self._authorizer.authorize(scope, None)
            endpoint = self._match(scope)
        role, app = endpoint.methods.get(method, (None, None))
        if self._authorizer is not None and not endpoint.is_open:
            self._authorizer.authorize(scope, role)
        if app is None:
            raise MethodNotAllowed(f"{method} is not known here.", tuple(sorted(endpoint.methods)))
        await app(scope, receive, send)

    def _match(self, scope: Scope) -> Endpoint:
        for endpoint in self._others:
            parameters = endpoint.match(scope["path"])
            if parameters is not None:
                scope["path_params"] = {name: _decoded(segment) for name, segment in parameters.items()}
                return endpoint
        raise NotFound(self._not_found)


def _decoded(segment: str) -> str:
    """One segment, percent-decoded after the path was split, so that ``%2F`` stands for a slash inside it."""
    check_percent_signs(segment, "path")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("The path is not UTF-8 once its percent signs are decoded.") from error


def responding(handler: Handler) -> ASGIApp:
    """The ASGI application that answers with the response of ``handler``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    return app


async def read_json_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """The body of a request that must be JSON. Raises `UnsupportedMediaType`, `BodyTooLarge`."""
    length = None
    content_type = None
    for name, value in scope["headers"]:
        if name == b"content-type":
            # Two are refused: a proxy before this service may have used either.
            content_type = value if content_type is None else b""
        elif name == b"content-length":
            length = int(value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedMediaType("Send the body without a content encoding.")
    if content_type != b"application/json":
        _check_media_type(content_type)
    too_large = f"A body is at most {limit_bytes} bytes."
    if length is not None and length > limit_bytes:
        raise BodyTooLarge(too_large)
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("The client went away before its body was whole.")
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise BodyTooLarge(too_large)
        more = message.get("more_body", False)
    return body


def _check_media_type(content_type: bytes | None) -> None:
    media_type = (content_type or b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    ):
        raise UnsupportedMediaType("Send the header 'Content-Type: application/json', once.")
