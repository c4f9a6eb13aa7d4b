"""The small parts of the client: events, sources, errors, proxies, settings."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from poolmuster.client.api import pairs_of, pool_path
from poolmuster.client.async_client import as_key, settings_of
from poolmuster.client.errors import InvalidResponse, NotReady, UnexpectedStatus, error_of
from poolmuster.client.responses import key_of, read_pool_list, read_sources
from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import open_session, proxy_of
from poolmuster.client.watch import number_of, read_events
from poolmuster.model.errors import (
    FieldError,
    Forbidden,
    InvalidInput,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    PoolmusterError,
    RelayDeregistered,
    UnknownParameter,
)
from poolmuster.model.key import PoolKey


async def test_a_line_of_a_watch_has_a_bound() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"type":"ping"}\n' + b" " * 100

    with pytest.raises(InvalidResponse, match="over 50 bytes"):
        _ = [event async for event in read_events(chunks(), 50, lambda: None)]


def test_a_source_that_cannot_be_read_never_looks_fresh() -> None:
    sources = read_sources([{"kind": "moon", "name": "m", "state": "fresh", "new": 1}, {"name": "x", "state": 5}, 7])
    assert [source.is_fresh for source in sources] == [True, False, False]
    assert [source.name for source in sources] == ["m", "x", ""]
    assert read_sources(None) == ()


def test_integers_of_any_size_survive() -> None:
    document = {"pools": [{"cluster_id": "c", "namespace": "n", "dgd_name": "d", "x": 2**70}], "complete": True}
    listing = read_pool_list(document, b"", None)
    assert listing is not None
    assert listing.pools[0]["x"] == 2**70


@pytest.mark.parametrize(
    "document", [{}, {"pools": {}, "complete": True}, {"pools": [{}], "complete": True}, {"pools": []}]
)
def test_what_is_no_list_is_none(document: dict[str, object]) -> None:
    assert read_pool_list(document, b"", None) is None


def test_keys_of_objects() -> None:
    assert key_of({"cluster_id": "c", "namespace": "n", "dgd_name": "d"}) == PoolKey("c", "n", "d")
    assert key_of({"cluster_id": "c", "namespace": "n", "dgd_name": ""}) is None
    assert key_of({"cluster_id": "c", "namespace": 5, "dgd_name": "d"}) is None
    assert key_of([]) is None


def test_slashes_percents_and_dots_of_a_key_stay_inside_their_part() -> None:
    assert pool_path(PoolKey("a/b", "50%", "..x é")) == "/pools/a%2Fb/50%25/..x%20%C3%A9"


def test_filters_repeat() -> None:
    assert pairs_of({"model": "m", "label": ["a=1", "b"]}) == (("model", "m"), ("label", "a=1"), ("label", "b"))


def test_urls_in_every_form() -> None:
    assert settings_of("http://a/, http://b http://a").urls == ("http://a", "http://b")
    assert settings_of(["http://a/"]).urls == ("http://a",)
    assert settings_of(ClientSettings(urls=("http://x",))).urls == ("http://x",)
    for none in ("127.0.0.1:8080", "", [], ["http://a", "b"], "http://a/?b", "http://a..b"):
        with pytest.raises(InvalidInput):
            settings_of(none)
    with pytest.raises(InvalidInput) as caught:
        settings_of("http://user:secret@a")
    assert "secret" not in str(caught.value)
    assert as_key("c/n/a%2Fb") == as_key(PoolKey("c", "n", "a/b"))


@pytest.mark.parametrize(
    ("revision", "boot", "number"),
    [("b.5", None, 5), ("b.5", "b", 5), ("b.5", "c", None), ("5", None, None), ("b.x", None, None), (None, None, None)],
)
def test_numbers_of_revisions(revision: str | None, boot: str | None, number: int | None) -> None:
    assert number_of(revision, boot) == number


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"type":"urn:poolmuster:invalid","detail":"d"}', InvalidInput),
        (400, b'{"type":"urn:poolmuster:unknown-parameter","detail":"d"}', UnknownParameter),
        (403, b"{}", Forbidden),
        (404, b'{"type":"urn:poolmuster:not-found","detail":"d"}', NotFound),
        (405, b"", MethodNotAllowed),
        (409, b'{"type":"urn:poolmuster:relay-left","detail":"d"}', RelayDeregistered),
        (409, b'{"type":"urn:poolmuster:of-the-future","detail":"d"}', UnexpectedStatus),
        (418, b"<html>", UnexpectedStatus),
        (429, b'{"type":"urn:poolmuster:limit-reached","detail":"d"}', LimitReached),
        (503, b"\xff", NotReady),
        (503, b'{"type":"urn:something-else"}', NotReady),
        (500, b"[" * 100_000, PoolmusterError),
    ],
)
def test_each_problem_is_its_error(status: int, body: bytes, kind: type[PoolmusterError]) -> None:
    error = error_of("http://x", status, {}, body)
    assert isinstance(error, kind)
    assert error.detail


def test_problems_bring_their_particulars() -> None:
    body = b'{"type":"urn:poolmuster:invalid","detail":"d","errors":[{"pointer":"/a","detail":"bad"},5]}'
    invalid = error_of("u", 400, {}, body)
    assert isinstance(invalid, InvalidInput)
    assert invalid.field_errors == (FieldError("/a", "bad"),)
    not_ready = error_of("u", 503, {"Retry-After": "7"}, b'{"detail":"d","sources":[{"kind":"table","name":"t"}]}')
    assert isinstance(not_ready, NotReady)
    assert (not_ready.retry_after_s, not_ready.sources[0].name) == (7, "t")
    limit = error_of("u", 429, {"Retry-After": "999999"}, b"")
    assert isinstance(limit, LimitReached)
    assert limit.retry_after_s == 60
    method = error_of("u", 405, {"Allow": "GET, HEAD"}, b"")
    assert isinstance(method, MethodNotAllowed)
    assert method.allow == ("GET", "HEAD")


def test_proxies_by_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "no_proxy", "https_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", "internal.example")
    assert proxy_of("https://a.example") == "http://proxy:3128"
    assert proxy_of("https://x.internal.example") is None
    assert proxy_of("http://a.example") is None
    for local in ("https://127.0.0.1:1", "https://[::1]:1", "https://localhost"):
        assert proxy_of(local) is None


async def test_a_certificate_file_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="SSL_CERT_FILE"):
        open_session(ClientSettings(urls=("https://a",)))
    monkeypatch.delenv("SSL_CERT_FILE")
    session = open_session(ClientSettings(urls=("https://a",)))
    await session.close()
    assert ssl.create_default_context().check_hostname
