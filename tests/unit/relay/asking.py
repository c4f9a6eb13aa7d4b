"""A relay's pages, asked without a socket."""

from starlette.types import ASGIApp, Message, Scope


async def ask_app(app: ASGIApp, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, bytes]:
    """Status and body of an answer."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
