"""The OpenAPI 3.1 document: every path, parameter, header and status.

Schemas are made from the types that the handlers answer with, examples are the samples in ``samples.json``.
"""

from pathlib import Path
from typing import Any

import msgspec

from poolmuster import __version__
from poolmuster.api import schemas as shapes
from poolmuster.model.auth import Role
from poolmuster.model.change import DeregistrationReason
from poolmuster.model.registration import RELAY_ID_LIMIT, RegistrationDocument
from poolmuster.model.schema import Problem, RegistrationResponse

Json = dict[str, Any]

_TYPES = (
    RegistrationDocument,
    RegistrationResponse,
    Problem,
    shapes.PoolListBody,
    shapes.OnePool,
    shapes.Changes,
    shapes.Routers,
    shapes.Status,
)
_UNIONS: dict[str, Any] = {"WatchEvent": shapes.WatchEvent, "ChangeEntry": shapes.ChangeEntry}

SAMPLES = Path(__file__).with_name("samples.json")
"""A sample of every JSON shape of the interface, as this service answers."""

_PROBLEMS = {
    400: "The input breaks a rule; `errors` names each place. Nothing was changed.",
    401: "No credentials, or none that are known here.",
    403: "These credentials do not have the right.",
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
    500: "A fault of the service, whose log says more.",
    503: "The answer cannot be given now. After a write the effect is unknown.",
}
_EVERYWHERE = (408, 421, 431, 500, 503)
_GUARDED = (401, 403)
"""Of every path but health and the pages that hold no data."""

_PROBLEM_HEADERS = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    415: ("Accept-Post", "Accept-Encoding"),
    429: ("Retry-After",),
    503: ("Retry-After",),
}

_OWN_HEADERS = ("Poolmuster-Revision", "Poolmuster-Complete", "Poolmuster-Instance")


def _header(text: str, *, always: bool = False, **schema: Any) -> Json:
    return {"description": text, "required": always, "schema": {"type": "string", **schema}}


_HEADERS: Json = {
    "Poolmuster-Revision": _header("`BOOT.N`: the latest change of the list.", always=True, pattern=r"^[^.]+\.[0-9]+$"),
    "Poolmuster-Complete": _header(
        "`true` while the list is known to hold every live pool.", always=True, enum=["true", "false"]
    ),
    "Poolmuster-Instance": _header("Boot id of the instance that answered.", always=True),
    "WWW-Authenticate": _header("The scheme to use.", always=True, pattern="^Bearer"),
    "Allow": _header("The methods that this path knows.", always=True),
    "Retry-After": _header("Seconds after which to try again.", always=True, pattern="^[0-9]+$"),
    "Accept-Post": _header("The media type to send.", always=True, const="application/json"),
    "Accept-Encoding": _header("The content encoding to send.", always=True, const="identity"),
    "ETag": _header(
        "Weak; equal exactly where pools, completeness and source states are, on whatever instance and boot. "
        "There is none with `include=lease`.",
        pattern='^W/"[^"]+"$',
    ),
    "Content-Encoding": _header("`gzip`, where the request accepts it and the list is long enough."),
    "Vary": _header("The request headers that the answer depends on."),
    "Cache-Control": _header("No answer is to be used again without asking."),
}


def _answer(text: str, content: Json | None = None, headers: tuple[str, ...] = ()) -> Json:
    refs = {name: {"$ref": f"#/components/headers/{name}"} for name in (*_OWN_HEADERS, *headers)}
    return {"description": text, "headers": refs} | ({"content": content} if content else {})


def _content(kind: type, media_type: str = "application/json", **examples: Any) -> Json:
    values = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {media_type: {"schema": schema} | ({"examples": values} if values else {})}


def _problem(status: int) -> Json:
    content = _content(Problem, "application/problem+json")
    return _answer(_PROBLEMS[status], content, _PROBLEM_HEADERS.get(status, ()))


def _problems(*statuses: int) -> Json:
    return {str(status): _problem(status) for status in sorted({*statuses, *_EVERYWHERE})}


def _query(name: str, text: str, schema: Json, *, repeats: bool = False) -> Json:
    if repeats:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "description": text, "schema": schema, "style": "form", "explode": True}


_STRING: Json = {"type": "string"}
_FILTERS = [
    *(
        _query(name, f"{text}; repeats OR.", _STRING, repeats=True)
        for name, text in (
            ("model", "Model id or alias"),
            ("cluster_id", "Cluster"),
            ("namespace", "Kubernetes namespace"),
            ("dgd_name", "Pool name"),
            ("region", "Region"),
        )
    ),
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


def _needs(role: Role, operation: Json) -> Json:
    """``operation`` with ``role``: by a token, by a certificate, or by neither where no credentials are needed."""
    refusals = {str(status): _problem(status) for status in _GUARDED}
    text = f"{operation.get('description', '')} Needs the role `{role.value}`, where credentials are wanted."
    return operation | {
        "responses": dict(sorted({**operation["responses"], **refusals}.items())),
        "security": [{"token": []}, {"certificate": []}, {}],
        "description": text.strip(),
    }


def _with_head(item: Json) -> Json:
    get = item["get"]
    answers = {
        status: {name: value for name, value in answer.items() if name != "content"}
        for status, answer in get["responses"].items()
    }
    return item | {"head": get | {"operationId": get["operationId"] + "Head", "responses": answers}}


def _pools(samples: Json) -> Json:
    body = _content(RegistrationDocument, registration=samples["registration"])
    register = {
        "operationId": "register",
        "summary": "Register a pool, or renew its lease.",
        "description": "Only the key is required. `null` in a known optional member means absent; members that are "
        "not known here are kept and listed as they came. The member `status` is reserved.",
        "requestBody": {"required": True, "content": body},
        "responses": {
            "200": _answer("Renewed, or changed.", _content(RegistrationResponse, renewed=samples["registered"])),
            "201": _answer("The pool was not in this instance's live list.", _content(RegistrationResponse)),
            **_problems(400, 409, 413, 415, 429),
        },
    }
    lists = _content(shapes.PoolListBody, list=samples["list"], with_leases=samples["list_with_leases"])
    headers = ("ETag", "Vary", "Cache-Control")
    listing = {
        "200": _answer("The list.", lists, (*headers, "Content-Encoding")),
        "304": _answer("Nothing changed since the ETag in `If-None-Match`.", None, headers),
        **_problems(400),
    }
    known = _request_header("If-None-Match", "The ETag of a list that the client has already.")
    get = _get("list", "List the live pools.", listing, [*_FILTERS, _INCLUDE, known])
    return _with_head({"post": _needs(Role.REGISTER, register), "get": _needs(Role.READ, get)})


def _request_header(name: str, text: str) -> Json:
    schema = {"type": "string", "pattern": "^[ -~]*$"}
    return {"name": name, "in": "header", "description": text, "required": False, "schema": schema}


def _watch(samples: Json) -> Json:
    def stream(text: str) -> Json:
        # OpenAPI 3.1 has no word for a stream of items, so what each is stands in an extension.
        event = {"$ref": "#/components/schemas/WatchEvent"}
        return {"schema": {"type": "string", "description": text}, "x-event-schema": event}

    events = {event["type"]: event for event in samples["watch"]}
    content = {
        "text/event-stream": stream("Server-sent events: `data` is a WatchEvent, `id` its id; a comment is a ping."),
        "application/x-ndjson": stream("A WatchEvent a line.") | {"x-event-examples": events},
    }
    last = _request_header("Last-Event-ID", "The id of the last event seen, to go on from there without loss.")
    answers = {
        "200": _answer("The list, then every change of it.", content, ("Vary", "Cache-Control")),
        **_problems(400, 406, 429),
    }
    get = _get("watch", "Watch the live pools.", answers, [*_FILTERS, _INCLUDE, last])
    return _with_head({"get": _needs(Role.READ, get)})


def _one(samples: Json) -> Json:
    relay_id = {"type": "string", "minLength": 1, "maxLength": RELAY_ID_LIMIT}
    leave = {
        "operationId": "deregister",
        "summary": "Take a pool off the list at once.",
        "parameters": [
            _query("relay_id", "Only while this relay is the latest to have registered.", relay_id),
            _query("reason", "Why.", {"type": "string", "enum": list(DeregistrationReason)}),
            _query("detail", "For people; its first 1,000 characters are kept.", _STRING),
        ],
        "responses": {"204": _answer("Done, or there was nothing to do."), **_problems(400, 404)},
    }
    found = _answer("The pool.", _content(shapes.OnePool, listed=samples["pool"], remembered=samples["pool_gone"]))
    get = _get("pool", "One pool, listed or remembered.", {"200": found, **_problems(400, 404)})
    return _with_head({"parameters": _KEY, "get": _needs(Role.READ, get), "delete": _needs(Role.REGISTER, leave)})


def _plain(operation: str, text: str, kind: type, sample: Any, parameters: list[Json] | None = None) -> Json:
    answers = {"200": _answer(text, _content(kind, sample=sample), ("Cache-Control",)), **_problems(400)}
    return _with_head({"get": _needs(Role.READ, _get(operation, text, answers, parameters))})


def _text(operation: str, text: str, *media_types: str) -> Json:
    content = {media_type: {"schema": _STRING} for media_type in media_types}
    return _get(operation, text, {"200": _answer(text, content), **_problems()})


def _paths(samples: Json) -> Json:
    seconds = {"type": "number", "minimum": 0, "maximum": 1e9}
    since = _query("since", "Seconds to look back; 300 if not given.", seconds)
    this = _answer("This document.", {"application/json": {"schema": {"type": "object"}}})
    routers = "The router replicas that relays should know of."
    changes = "What changed lately, with causes."
    ready = _text("ready", "Requests may be sent here; 503 where not.", "text/plain")
    # A problem for credentials with the role to read, a word without.
    ready["responses"]["503"]["content"]["text/plain"] = {"schema": _STRING}
    metrics = _text("metrics", "Metrics for Prometheus.", "text/plain", "application/openmetrics-text")
    return {
        "/pools": _pools(samples),
        "/pools/watch": _watch(samples),
        "/pools/{cluster_id}/{namespace}/{dgd_name}": _one(samples),
        "/routers": _plain("routers", routers, shapes.Routers, samples["routers"]),
        "/changes": _plain("changes", changes, shapes.Changes, samples["changes"], [*_FILTERS, since]),
        "/status": _plain("status", "How this instance is doing.", shapes.Status, samples["status"]),
        "/health/live": _with_head({"get": _text("live", "The process answers.", "text/plain")}),
        "/health/ready": _with_head({"get": ready}),
        "/metrics": _with_head({"get": _needs(Role.READ, metrics)}),
        "/openapi.json": _with_head({"get": _get("openapi", "This document.", {"200": this, **_problems()})}),
        "/docs": _with_head({"get": _text("docs", "This document, for people.", "text/html")}),
        "/": _with_head({"get": _text("index", "A page for people.", "text/html")}),
    }


def document() -> Json:
    """The document as a JSON value."""
    samples = msgspec.json.decode(SAMPLES.read_bytes())
    kinds = (*_TYPES, *_UNIONS.values())
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    components |= dict(zip(_UNIONS, schemas[len(_TYPES) :], strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "poolmuster",
            "version": __version__,
            "summary": "Which model-serving pools are alive, what do they serve, and is the list complete?",
            "description": "Version 1. It only grows: ignore members, events, causes and reasons you do not know. "
            "HEAD goes wherever GET goes; any other method is 405 with `Allow`. "
            "What is not HTTP gets a bare 400, without any of the headers named here.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(samples),
        "components": {
            "schemas": components,
            "headers": _HEADERS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
            "responses": {"MethodNotAllowed": _problem(405)},
        },
    }
