"""The OpenAPI 3.1 document: every path, parameter, header and status, with schemas taken from the types themselves."""

from typing import Any

import msgspec

from poolmuster import __version__
from poolmuster.api import shapes
from poolmuster.model.change import LeaveReason
from poolmuster.model.registration import RegistrationDocument
from poolmuster.model.wire import Problem, Registered

Json = dict[str, Any]

_TYPES = (
    RegistrationDocument,
    Registered,
    Problem,
    shapes.PoolList,
    shapes.OnePool,
    shapes.Changes,
    shapes.Routers,
    shapes.Status,
    shapes.WatchEvent,
)

_PROBLEMS = {
    400: "The input breaks a rule; `errors` names each place. Nothing was changed.",
    404: "The pool is neither listed nor remembered.",
    405: "The path exists, the method does not.",
    406: "None of the media types in `Accept` can be produced.",
    408: "The request did not arrive in time.",
    409: "This relay has deregistered the pool; a relay that starts again takes a new `relay_id`.",
    413: "The body is over the limit.",
    415: "The body is not JSON, or has a content encoding.",
    421: "Without credentials this service answers only to loopback names.",
    429: "A bound of this instance is reached; renewals are unaffected.",
    431: "The head of the request is too large.",
    503: "The answer cannot be given now. After a write the effect is unknown.",
}
_EVERYWHERE = (408, 421, 431, 503)
_PROBLEM_HEADERS = {
    405: ("Allow",),
    415: ("Accept-Post", "Accept-Encoding"),
    429: ("Retry-After",),
    503: ("Retry-After",),
}

_HEADERS: Json = {
    "Poolmuster-Revision": "`BOOT.N`: the latest change of the list.",
    "Poolmuster-Complete": "`true` while the list is known to hold every live pool.",
    "Poolmuster-Instance": "Boot id of the instance that answered.",
    "Allow": "The methods that this path knows.",
    "Retry-After": "Seconds after which to try again.",
    "Accept-Post": "The media type to send.",
    "Accept-Encoding": "The content encoding to send.",
    "ETag": "Weak; equal exactly where pools, completeness and source states are, on whatever instance.",
}
_OWN_HEADERS = ("Poolmuster-Revision", "Poolmuster-Complete", "Poolmuster-Instance")

_EXAMPLE: Json = {
    "cluster_id": "us-east-1-prod",
    "namespace": "inference",
    "dgd_name": "llama-70b",
    "relay_id": "3f0c9d1e",
    "frontend_url": "https://llama.us-east-1.example.com",
    "weight": 100,
    "location": {"region": "us-east-1", "availability_zone": "us-east-1a"},
    "models": [{"id": "meta-llama/Llama-3.3-70B-Instruct", "aliases": ["llama-70b"], "context_window": 131072}],
    "labels": {"tier": "gold"},
}


def _header_refs(names: tuple[str, ...]) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _schema(kind: type) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _answer(text: str, content: Json | None = None, headers: tuple[str, ...] = ()) -> Json:
    answer: Json = {"description": text, "headers": _header_refs((*_OWN_HEADERS, *headers))}
    return answer | ({"content": content} if content else {})


def _json(kind: type) -> Json:
    return {"application/json": {"schema": _schema(kind)}}


def _problems(*statuses: int) -> Json:
    content = {"application/problem+json": {"schema": _schema(Problem)}}
    return {
        str(status): _answer(_PROBLEMS[status], content, _PROBLEM_HEADERS.get(status, ()))
        for status in sorted({*statuses, *_EVERYWHERE})
    }


def _query(name: str, text: str, schema: Json, *, repeats: bool = False) -> Json:
    if repeats:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "description": text, "schema": schema, "style": "form", "explode": True}


_STRING: Json = {"type": "string"}
_FILTERS = [
    _query("model", "Model id or alias; repeats OR.", _STRING, repeats=True),
    _query("cluster_id", "Cluster; repeats OR.", _STRING, repeats=True),
    _query("namespace", "Kubernetes namespace; repeats OR.", _STRING, repeats=True),
    _query("dgd_name", "Pool name; repeats OR.", _STRING, repeats=True),
    _query("region", "Region; repeats OR.", _STRING, repeats=True),
    _query("label", "`k=v`, or `k` for any value; repeats AND.", {"type": "string", "pattern": "^[^=]"}, repeats=True),
]
_INCLUDE = _query(
    "include",
    "`lease` adds each pool's lease under `status`; `unlisted` adds pools that are known but not listed.",
    {"type": "string", "enum": ["lease", "unlisted"]},
    repeats=True,
)
_KEY = [
    {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"{text}, percent-encoded; `%2F` is a slash inside it.",
        "schema": {"type": "string", "minLength": 1},
    }
    for name, text in (("cluster_id", "Cluster"), ("namespace", "Kubernetes namespace"), ("dgd_name", "Pool name"))
]


def _get(operation: str, text: str, answers: Json, parameters: list[Json] | None = None) -> Json:
    return {"operationId": operation, "summary": text, "parameters": parameters or [], "responses": answers}


def _with_head(item: Json) -> Json:
    get = item["get"]
    answers = {
        status: {name: value for name, value in answer.items() if name != "content"}
        for status, answer in get["responses"].items()
    }
    return item | {"head": get | {"operationId": get["operationId"] + "Head", "responses": answers}}


def _pools() -> Json:
    register = {
        "operationId": "register",
        "summary": "Register a pool, or renew its lease.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _schema(RegistrationDocument), "example": _EXAMPLE}},
        },
        "responses": {
            "200": _answer("Renewed, or changed.", _json(Registered)),
            "201": _answer("The pool was not in this instance's live list.", _json(Registered)),
            **_problems(400, 409, 413, 415, 429),
        },
    }
    listing = {
        "200": _answer("The list.", _json(shapes.PoolList), ("ETag",)),
        "304": _answer("Nothing changed since the ETag in `If-None-Match`.", None, ("ETag",)),
        **_problems(400),
    }
    return _with_head({"post": register, "get": _get("list", "List the live pools.", listing, [*_FILTERS, _INCLUDE])})


def _watch() -> Json:
    event = {"schema": _schema(shapes.WatchEvent)}
    last = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The id of the last event seen, to go on from there without loss.",
        "schema": {"type": "string", "pattern": "^[ -~]*$"},
    }
    answers = {
        "200": _answer(
            "The list, then every change of it: server-sent events, or a JSON object a line.",
            {"text/event-stream": event, "application/x-ndjson": event},
        ),
        **_problems(400, 406),
    }
    return _with_head({"get": _get("watch", "Watch the live pools.", answers, [*_FILTERS, _INCLUDE, last])})


def _one() -> Json:
    leave = {
        "operationId": "deregister",
        "summary": "Take a pool off the list at once.",
        "parameters": [
            _query(
                "relay_id",
                "Only while this relay is the latest to have registered.",
                {"type": "string", "minLength": 1},
            ),
            _query("reason", "Why.", {"type": "string", "enum": list(LeaveReason)}),
            _query("detail", "For people; its first 1,000 characters are kept.", _STRING),
        ],
        "responses": {"204": _answer("Done, or there was nothing to do."), **_problems(400)},
    }
    get = _get(
        "pool",
        "One pool, listed or remembered.",
        {"200": _answer("The pool.", _json(shapes.OnePool)), **_problems(400, 404)},
    )
    return _with_head({"parameters": _KEY, "get": get, "delete": leave})


def _plain(operation: str, text: str, kind: type, parameters: list[Json] | None = None) -> Json:
    answers = {"200": _answer(text, _json(kind)), **_problems(400)}
    return _with_head({"get": _get(operation, text, answers, parameters)})


def _text(operation: str, text: str, media_type: str) -> Json:
    answers = {"200": _answer(text, {media_type: {"schema": _STRING}}), **_problems()}
    return _with_head({"get": _get(operation, text, answers)})


def document() -> Json:
    """The document as a JSON value."""
    _, components = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    since = _query("since", "Seconds to look back; 300 if not given.", {"type": "number", "minimum": 0, "maximum": 1e9})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "poolmuster",
            "version": __version__,
            "summary": "Which model-serving pools are alive, what do they serve, and is the list complete?",
            "description": "Version 1. It only grows: ignore fields, events, causes and reasons you do not know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/pools": _pools(),
            "/pools/watch": _watch(),
            "/pools/{cluster_id}/{namespace}/{dgd_name}": _one(),
            "/routers": _plain("routers", "The router replicas that relays should know of.", shapes.Routers),
            "/changes": _plain("changes", "What changed lately, with causes.", shapes.Changes, [*_FILTERS, since]),
            "/status": _plain("status", "How this instance is doing.", shapes.Status),
            "/health/live": _text("live", "The process answers.", "text/plain"),
            "/health/ready": _text("ready", "Requests may be sent here; 503 where not.", "text/plain"),
            "/metrics": _text("metrics", "Metrics for Prometheus.", "text/plain"),
            "/openapi.json": _with_head({"get": _get("openapi", "This document.", _document_answers())}),
            "/docs": _text("docs", "This document, for people.", "text/html"),
            "/": _text("index", "A page for people.", "text/html"),
        },
        "components": {
            "schemas": components,
            "headers": {name: {"description": text, "schema": _STRING} for name, text in _HEADERS.items()},
        },
    }


def _document_answers() -> Json:
    return {"200": _answer("This document.", {"application/json": {"schema": {"type": "object"}}}), **_problems()}
