"""The body of an answer, read no further than a bound: nobody's server decides how much memory that takes."""

import aiohttp


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes | None:
    """The body, or ``None`` where it is over ``limit_bytes``; then leaving the response closes its connection.

    Raises what aiohttp does when the body is cut short.
    """
    parts: list[bytes] = []
    size_bytes = 0
    async for chunk in response.content.iter_any():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            return None
        parts.append(chunk)
    return b"".join(parts)
