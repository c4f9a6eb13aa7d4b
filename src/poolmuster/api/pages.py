"""Pages for people: the interface's description, and a page at ``/`` that says what this is.

They are made once, from the OpenAPI document, hold no data, run no script and fetch nothing.
"""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from poolmuster.api.openapi import document
from poolmuster.http.application import Endpoint

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9em ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8886; border-radius: 0.3rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid #8886; padding-top: 1rem; }
table { border-collapse: collapse; } td { padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; }
"""

_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

_INDEX = """
<h1>poolmuster</h1>
<p>Which model-serving pools are alive right now, what do they serve, and is the list complete?</p>
<table>
<tr><td><a href="pools">pools</a></td><td>the live list, as programs read it</td></tr>
<tr><td><a href="status">status</a></td><td>how this instance is doing</td></tr>
<tr><td><a href="changes">changes</a></td><td>what changed lately, and why</td></tr>
<tr><td><a href="metrics">metrics</a></td><td>for Prometheus</td></tr>
<tr><td><a href="docs">docs</a></td><td>the interface, described (<a href="openapi.json">as OpenAPI</a>)</td></tr>
</table>
<p>On a terminal: <code>poolmuster pools -w</code> follows the list, <code>poolmuster why KEY</code> says why a pool is
or is not on it.</p>
"""


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>{body}</body>\n</html>\n"
    ).encode()


def _docs(described: dict[str, Any]) -> str:
    info, components = described["info"], described["components"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['summary'])}</p>",
        f"<p>{escape(info['description'])} <a href='openapi.json'>The same as OpenAPI.</a></p>",
    ]
    for path, item in described["paths"].items():
        shared = item.get("parameters", [])
        methods = [method for method in ("get", "post", "delete") if method in item]
        parts += [_operation(method, path, item[method], shared) for method in methods]
    headers = [(_code(name), escape(each["description"])) for name, each in components["headers"].items()]
    parts.append(f"<h2>Headers of answers</h2>{_table(headers)}<h2>Shapes</h2>")
    for name, schema in components["schemas"].items():
        parts.append(f"<h3 id='{escape(name)}'>{escape(name)}</h3>{_shown(schema)}")
    return "".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], shared: list[dict[str, Any]]) -> str:
    parts = [f"<h2>{_code(f'{method.upper()} {path}')}</h2><p>{escape(operation['summary'])}</p>"]
    if "description" in operation:
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if parameters := [*shared, *operation.get("parameters", [])]:
        parts.append(_table((_code(each["name"]), each["in"], escape(each["description"])) for each in parameters))
    if "requestBody" in operation:
        parts.append(f"<h3>Body</h3>{_content(operation['requestBody']['content'])}")
    responses = [
        (status, f"{escape(each['description'])} {_content(each.get('content', {}))}")
        for status, each in operation["responses"].items()
    ]
    return "".join([*parts, f"<h3>Answers</h3>{_table(responses)}"])


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _content(content: dict[str, Any]) -> str:
    """What a body may be: links to its shapes, and the examples, folded up."""
    names = {
        schema["$ref"].rpartition("/")[2]
        for each in content.values()
        for schema in (each["schema"], each.get("x-event-schema", {}))
        if "$ref" in schema
    }
    parts = [f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in sorted(names)]
    for each in content.values():
        examples = {name: example["value"] for name, example in each.get("examples", {}).items()}
        for name, value in (examples | each.get("x-event-examples", {})).items():
            parts.append(f"<details><summary>{escape(name.replace('_', ' '))}</summary>{_shown(value)}</details>")
    return " ".join(parts)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{''.join(lines)}</table>"


def _shown(value: Any) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())}</pre>"


def _fixed(path: str, content: bytes, media_type: str, headers: dict[str, str] | None = None) -> Endpoint:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(content, media_type=media_type, headers=headers)(scope, receive, send)

    return Endpoint(path, GET=(None, app))


def page_endpoints() -> list[Endpoint]:
    """The endpoints of the OpenAPI document and of all pages, open to everyone."""
    described = document()
    docs = _page("poolmuster: the interface", _docs(described))
    return [
        _fixed("/openapi.json", msgspec.json.encode(described), "application/json"),
        _fixed("/docs", docs, "text/html", _HEADERS),
        _fixed("/", _page("poolmuster", _INDEX), "text/html", _HEADERS),
    ]
