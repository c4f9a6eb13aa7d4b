"""What every program answers alike to whoever watches over it: that it lives, that it is ready, and its metrics."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response


def fine() -> Response:
    """A bare status word."""
    return Response(b"ok\n", media_type="text/plain")


def not_ready() -> Response:
    """A bare status word too: no more is told to whoever may not read."""
    return Response(b"not ready\n", status_code=503, media_type="text/plain", headers={"retry-after": "1"})


async def live(request: Request) -> Response:
    """``GET /health/live``: the process answers; nothing else is asked."""
    return fine()


def exposition(registry: CollectorRegistry, request: Request) -> Response:
    """The metrics of ``registry``, in the format that the scraper prefers."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"content-type": content_type})
