"""What every program answers alike to whoever watches over it: that it lives, that it is ready, and its metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from poolmuster.http.auth import Authorizer
from poolmuster.model.errors import Unavailable


class Readiness:
    """``GET /health/ready``: whether requests should be sent here. ``check`` raises `Unavailable` where not."""

    def __init__(self, check: Callable[[], None], authorizer: Authorizer) -> None:
        self._check = check
        self._gate = authorizer

    async def detailed(self, request: Request) -> Response:
        """Why not is told to whoever may read."""
        if not self._gate.can_read(request.scope):
            return await self.minimal(request)
        self._check()
        return _fine()

    async def minimal(self, request: Request) -> Response:
        """The same for whoever is told no more."""
        try:
            self._check()
        except Unavailable:
            return Response(b"not ready\n", status_code=503, media_type="text/plain", headers={"retry-after": "1"})
        return _fine()


def _fine() -> Response:
    return Response(b"ok\n", media_type="text/plain")


async def live(request: Request) -> Response:
    """``GET /health/live``: the process answers; nothing else is asked."""
    return _fine()


def exposition(registry: CollectorRegistry, request: Request) -> Response:
    """The metrics of ``registry``, in the format that the scraper prefers."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"content-type": content_type})
