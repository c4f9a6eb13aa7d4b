"""Probes of a model server: is it healthy, what does it list, what of that can it serve now; and is it up or down.

``GET /health`` (``404`` means that there is none), ``GET /v1/models``, and for each model
``GET /v1/models/{id}/ready``, where ``503`` means not ready, and any status but ``200`` and ``503`` that there is no
such page. Redirects are not followed, no proxy is used, and no response is read beyond `BODY_LIMIT_BYTES`.
"""

import asyncio
import ssl
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from poolmuster.model.change import DeregistrationReason
from poolmuster.platform.ndjson import SizeLimitExceeded, read_body
from poolmuster.platform.net_errors import reason_of

BODY_LIMIT_BYTES = 4 * 1024 * 1024
STATUS_BODY_LIMIT_BYTES = 64 * 1024
MODELS_LIMIT = 4_096
CONTEXT_WINDOW_LIMIT = 2**53
READY_AT_ONCE = 8

HTTP_OK = 200
HTTP_NOT_FOUND = 404
HTTP_UNAVAILABLE = 503


class ServedModel(msgspec.Struct, frozen=True):
    """A model that the server lists and can serve now. ``context_window`` is in tokens."""

    id: str
    context_window: int | None = None


class Healthy(msgspec.Struct, frozen=True):
    """A good probe: at least one model, sorted by id, each once. ``left_out`` entries of the list were not read."""

    models: tuple[ServedModel, ...]
    left_out: int = 0


class Unhealthy(msgspec.Struct, frozen=True):
    """A failed probe, and why the server can serve no request now."""

    reason: DeregistrationReason
    detail: str


Finding = Healthy | Unhealthy


class HealthState:
    """Up with the first good probe, down with ``unhealthy_after`` failed ones in a row; until then the models stay.

    ``current`` is ``None`` before the first probe has ended, unless ``presumed`` is given: up until a probe decides.
    """

    def __init__(self, unhealthy_after: int, presumed: Healthy | None = None) -> None:
        self._unhealthy_after = unhealthy_after
        self.failures = 0
        self.latest: Finding | None = None
        self.current: Finding | None = presumed

    def record(self, finding: Finding) -> None:
        """Count one probe."""
        self.latest = finding
        if isinstance(finding, Healthy):
            self.failures = 0
            self.current = finding
            return
        self.failures += 1
        if not isinstance(self.current, Healthy) or self.failures >= self._unhealthy_after:
            self.current = finding


class ProbeAccess(msgspec.Struct, frozen=True):
    """How to reach a server: its root, the path of its health page, a bearer token, and the authorities it is under."""

    root: str
    health_path: str
    token: str | None = None
    tls: ssl.SSLContext | None = None


class Listed(msgspec.Struct, frozen=True):
    """The models that a server lists, sorted by id, each once; ``left_out`` entries were not read."""

    models: tuple[ServedModel, ...]
    left_out: int = 0


class _ProbeFailed(Exception):
    """Ends a probe early."""

    def __init__(self, detail: str, reason: DeregistrationReason = DeregistrationReason.FRONTEND_UNHEALTHY) -> None:
        super().__init__(detail)
        self.finding = Unhealthy(reason, detail)


class Prober:
    """Probes servers over ``session``, which must not follow proxies or decompress."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def probe(self, access: ProbeAccess, timeout_s: float) -> Finding:
        """One probe, within ``timeout_s`` in all. Raises nothing for a failure of the server."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._probe(access)
        except _ProbeFailed as failed:
            return failed.finding
        except TimeoutError:
            detail = f"no whole answer within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            detail = f"cannot be reached: {reason_of(error)}"
        return Unhealthy(DeregistrationReason.FRONTEND_UNHEALTHY, detail)

    async def _probe(self, access: ProbeAccess) -> Finding:
        status, _ = await self._get(access, access.health_path, body=False)
        if status != HTTP_NOT_FOUND and not HTTP_OK <= status < 300:
            raise _ProbeFailed(f"{access.health_path} answered {status}")
        status, body = await self._get(access, "/v1/models", body=True)
        if status != HTTP_OK:
            raise _ProbeFailed(f"/v1/models answered {status}")
        listed = parse_models(body)
        if not listed.models:
            raise _ProbeFailed("/v1/models lists none", DeregistrationReason.NO_MODELS)
        ready = await self._ready(access, listed.models)
        if not ready:
            detail = f"none of the {len(listed.models)} listed models is ready"
            raise _ProbeFailed(detail, DeregistrationReason.NO_MODELS)
        return Healthy(ready, listed.left_out)

    async def _ready(self, access: ProbeAccess, listed: tuple[ServedModel, ...]) -> tuple[ServedModel, ...]:
        slots = asyncio.Semaphore(READY_AT_ONCE)

        async def is_ready(model: ServedModel) -> bool:
            async with slots:
                status, _ = await self._get(access, f"/v1/models/{quote(model.id, safe='')}/ready", body=False)
            return status != HTTP_UNAVAILABLE

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(is_ready(model)) for model in listed]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return tuple(model for model, task in zip(listed, tasks, strict=True) if task.result())

    async def _get(self, access: ProbeAccess, path: str, *, body: bool) -> tuple[int, bytes]:
        headers = {"Accept-Encoding": "identity", "Accept": "application/json, */*;q=0.1"}
        if access.token is not None:
            headers["Authorization"] = f"Bearer {access.token}"
        # The root may be in any script; the path stands as it is, or %2F in a model's id would be decoded.
        url = URL(str(URL(access.root)).rstrip("/") + path, encoded=True)
        tls: ssl.SSLContext | bool = True if access.tls is None else access.tls
        async with self._session.get(url, headers=headers, allow_redirects=False, ssl=tls) as response:
            if body and response.status == HTTP_OK:
                try:
                    return HTTP_OK, await read_body(response, BODY_LIMIT_BYTES)
                except SizeLimitExceeded as error:
                    raise _ProbeFailed(f"{path} answered more than {BODY_LIMIT_BYTES} bytes") from error
            # Only the status matters. A short body is read, so that the connection can be kept; one without a length
            # may never end.
            if response.content_length is not None and response.content_length <= STATUS_BODY_LIMIT_BYTES:
                await response.read()
            else:
                response.close()
            return response.status, b""


def parse_models(body: bytes) -> Listed:
    """The models of a response to ``GET /v1/models``. Entries of an unknown form are skipped.

    Raises `_ProbeFailed` where the response as a whole is no list of models.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _ProbeFailed(f"/v1/models did not answer JSON: {error}") from error
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _ProbeFailed("/v1/models did not answer a list of models")
    models: dict[str, ServedModel] = {}
    for entry in entries[:MODELS_LIMIT]:
        if isinstance(entry, dict) and isinstance(model_id := entry.get("id"), str) and model_id:
            models.setdefault(model_id, ServedModel(model_id, _context_window(entry)))
    return Listed(tuple(sorted(models.values(), key=lambda model: model.id)), max(0, len(entries) - MODELS_LIMIT))


def _context_window(entry: dict[str, Any]) -> int | None:
    for name in ("max_model_len", "context_window"):
        tokens = entry.get(name)
        if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 < tokens <= CONTEXT_WINDOW_LIMIT:
            return tokens
    return None
