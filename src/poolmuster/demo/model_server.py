"""A model server without a model: enough of the OpenAI interface to be discovered, and to answer a curl.

``python -m poolmuster.demo.model_server --port 8001 --model ID`` serves ``/health``, ``/v1/models`` and
``/v1/chat/completions``, whole and streamed, on the loopback address.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from poolmuster.http.application import Application, Endpoint, read_json_body, responding
from poolmuster.http.limits import HttpLimits
from poolmuster.http.server import HttpServer, bind
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.lease_clock import SystemClock
from poolmuster.programs.supervisor import StopStep, Supervisor

BODY_LIMIT_BYTES = 1024 * 1024
WORD_S = 0.05
STOP_GRACE_S = 1.0
STOP_LIMIT_MS = 4_000


class Message(msgspec.Struct):
    """One message of a chat; what is not text is passed over."""

    role: str
    content: Any = None


class ChatRequest(msgspec.Struct):
    """What is read of a request for a completion."""

    model: str
    messages: list[Message]
    stream: bool = False


class ModelServer:
    """Serves ``models``, whose context is ``context_window`` tokens, by saying back what it is told."""

    def __init__(self, models: list[str], context_window: int) -> None:
        self._models = models
        self._context_window = context_window
        self._created = int(time.time())
        self._answers = 0

    async def health(self, request: Request) -> Response:
        """``GET /health``."""
        return Response(b"ok\n", media_type="text/plain")

    async def list_models(self, request: Request) -> Response:
        """``GET /v1/models``."""
        facts = {"object": "model", "created": self._created, "owned_by": "demo", "max_model_len": self._context_window}
        return JSONResponse({"object": "list", "data": [{"id": model, **facts} for model in self._models]})

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        body = await read_json_body(request.scope, request.receive, BODY_LIMIT_BYTES)
        try:
            asked = msgspec.json.decode(body, type=ChatRequest)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"This is no request for a chat completion: {error}.") from error
        if asked.model not in self._models:
            problem = {"message": f"The model {asked.model!r} is not served here.", "type": "invalid_request_error"}
            return JSONResponse({"error": {**problem, "param": "model", "code": "model_not_found"}}, 404)
        self._answers += 1
        words = _answer(asked).split(" ")
        if asked.stream:
            return StreamingResponse(self._stream(asked.model, words), media_type="text/event-stream")
        told = sum(len(_text(message).split()) for message in asked.messages)
        choice = {"index": 0, "message": {"role": "assistant", "content": " ".join(words)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": told, "completion_tokens": len(words), "total_tokens": told + len(words)}
        return JSONResponse({**self._head(asked.model, "chat.completion"), "choices": [choice], "usage": usage})

    async def _stream(self, model: str, words: list[str]) -> AsyncIterator[bytes]:
        head = self._head(model, "chat.completion.chunk")
        for number, word in enumerate(words):
            delta = {"content": word if number == 0 else " " + word}
            if number == 0:
                delta["role"] = "assistant"
            yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await asyncio.sleep(WORD_S)
        yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        yield b"data: [DONE]\n\n"

    def _head(self, model: str, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self._answers}", "object": kind, "created": int(time.time()), "model": model}


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else ""


def _answer(asked: ChatRequest) -> str:
    last = next((_text(message) for message in reversed(asked.messages) if message.role == "user"), "")
    return f"This is {asked.model} of the demo, and no model at all. You said: {last}"


def model_server_app(models: list[str], context_window: int) -> ASGIApp:
    """The server as an ASGI application."""
    server = ModelServer(models, context_window)
    endpoints = [
        Endpoint("/health", GET=(None, responding(server.health))),
        Endpoint("/v1/models", GET=(None, responding(server.list_models))),
        Endpoint("/v1/chat/completions", POST=(None, responding(server.chat))),
    ]
    return Application(endpoints, loopback_only=True)


def serve(app: ASGIApp, port: int) -> None:
    """Serve on the loopback address until SIGTERM or SIGINT."""
    supervisor = Supervisor("demo", SystemClock())
    server = HttpServer(bind("127.0.0.1", port), HttpLimits(connections=1000))
    stop_steps = (StopStep(partial(server.stop, STOP_GRACE_S), STOP_LIMIT_MS),)
    supervisor.run(partial(supervisor.supervise, [server.run], start=partial(server.start, app), stop_steps=stop_steps))


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m poolmuster.demo.model_server", allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", action="append", required=True, help="id of a model to list; repeatable")
    parser.add_argument("--context-window", type=int, default=131072, help="in tokens")
    arguments = parser.parse_args()
    serve(model_server_app(arguments.model, arguments.context_window), arguments.port)


if __name__ == "__main__":
    main()
