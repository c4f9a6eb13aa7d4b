"""A resource: one path with its methods. `HEAD` goes wherever `GET` goes; any other method is refused with `Allow`."""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.model.errors import BodyTooLarge, InvalidInput, MethodNotAllowed, UnsupportedMediaType
from poolmuster.model.percent import check_percent_signs

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """An ASGI application for one path. ``methods`` map to handlers of a request, or to ASGI applications."""

    def __init__(self, *, asgi: dict[str, ASGIApp] | None = None, **methods: Handler) -> None:
        self._asgi: dict[str, ASGIApp] = dict(asgi or {})
        for method, handler in methods.items():
            self._asgi[method] = _handling(handler)
        if "GET" in self._asgi:
            self._asgi["HEAD"] = self._asgi["GET"]
        self.allow = tuple(sorted(self._asgi))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._asgi.get(scope["method"])
        if app is None:
            raise MethodNotAllowed(f"{scope['method']} is not known here.", self.allow)
        await app(scope, receive, send)


def _handling(handler: Handler) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    return app


class _EncodedPart(Convertor[str]):
    """One part of a path, percent-decoded after the path was split."""

    regex = "[^/]*"  # an empty part is a bad key, which is told, and no other path

    def convert(self, value: str) -> str:
        check_percent_signs(value, "path")
        try:
            return unquote_to_bytes(value).decode()
        except UnicodeDecodeError as error:
            raise InvalidInput("The path is not UTF-8 once its percent signs are decoded.") from error

    def to_string(self, value: str) -> str:
        raise NotImplementedError("paths are only read")


register_url_convertor("part", _EncodedPart())


async def read_json_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """The body of a request that must be JSON. Raises `UnsupportedMediaType`, `BodyTooLarge`."""
    length = None
    content_type = None
    for name, value in scope["headers"]:
        if name == b"content-type":
            # Two would leave it to chance which of them a proxy before us went by.
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
