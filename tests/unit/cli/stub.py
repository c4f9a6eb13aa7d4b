"""A discovery service of canned answers, in a thread, for commands that bring their own event loop."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Canned(msgspec.Struct):
    """One answer."""

    status: int = 200
    document: Any = None
    content_type: str = "application/json"
    raw: bytes | None = None

    @property
    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return b"" if self.document is None else json.dumps(self.document, ensure_ascii=False).encode()


class Stub:
    """Answers by ``METHOD /path`` without the query; what was asked, sent and shown is kept."""

    def __init__(self, answers: dict[str, Canned]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.tokens: list[str | None] = []
        self.url = ""


@contextmanager
def serving(answers: dict[str, Canned]) -> Iterator[Stub]:
    """A stub that runs for as long as the block."""
    stub = Stub(answers)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            stub.requests.append(f"{self.command} {self.path}")
            stub.tokens.append(self.headers.get("Authorization"))
            stub.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            found = stub.answers.get(f"{self.command} {self.path.partition('?')[0]}") or Canned(404, {"detail": "none"})
            self.send_response(found.status)
            self.send_header("Content-Type", found.content_type)
            if found.status != 204:
                self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the standard library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
            """Tests say what they need to."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
