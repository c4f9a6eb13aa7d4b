"""What peers read: who may, in which form, and when it ends."""

import json
from typing import Any

import pytest

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import parse_credentials
from poolmuster.http.auth import Authorizer
from poolmuster.model.address import Address
from poolmuster.model.auth import Role
from poolmuster.programs.settings.serve import PeerFlags
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.transport import HttpPeerTransport
from tests.support.clock import ManualClock
from tests.support.principals import bearer, lines
from tests.support.registrations import body
from tests.support.service import Service

PATHS = ("/peer/v1/list", "/peer/v1/feed", "/peer/v1/stream")
PEERS = PeerFlags(services=(Address("peers.test", 80),))


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has no addresses, whatever a resolver may say."""

    async def resolve(self: HttpPeerTransport, name: ServiceName) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(HttpPeerTransport, "resolve", resolve)


def shared(**settings: Any) -> Service:
    """An instance that has peers."""
    return Service(peers=PEERS, **settings)


def messages(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("path", PATHS)
async def test_without_peers_there_is_nothing_there(path: str) -> None:
    async with Service() as service:
        assert (await service.get(path)).status == 404


async def test_the_whole_list_ends_and_says_who_gives_it() -> None:
    async with shared() as service:
        await service.register("a")
        answer = await service.get("/peer/v1/list")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson; charset=utf-8")
        assert answer.headers["poolmuster-instance"] == "boot"
        [whole] = messages(answer.body)
        assert whole["boot_id"] == "boot"
        assert [entry["registration"]["dgd_name"] for entry in whole["entries"]] == ["a"]
        assert not whole["more"]


async def test_the_feed_gives_what_happened_since() -> None:
    async with shared() as service:
        await service.register("a")
        await service.register("b")
        [all_of_it] = messages((await service.get("/peer/v1/feed")).body)
        assert [entry["type"] for entry in all_of_it["entries"]] == ["registered", "registered"]
        await service.register("a")
        [since] = messages((await service.get(f"/peer/v1/feed?boot=boot&after={all_of_it['seq']}")).body)
        assert [entry["type"] for entry in since["entries"]] == ["renewed"]
        [other_boot] = messages((await service.get(f"/peer/v1/feed?boot=other&after={all_of_it['seq']}")).body)
        assert len(other_boot["entries"]) == 2


async def test_head_says_who_is_there_and_nothing_else() -> None:
    async with shared() as service:
        for path in PATHS:
            answer = await service.request("HEAD", path)
            assert (answer.status, answer.body, answer.headers["poolmuster-instance"]) == (200, b"", "boot")


@pytest.mark.parametrize("query", ["after=x", "after=-1", "after=1&after=2", "page=2", "after=" + "9" * 30])
async def test_what_makes_no_sense_is_refused(query: str) -> None:
    async with shared() as service:
        assert (await service.get(f"/peer/v1/feed?{query}")).status == 400


async def test_a_stream_tells_at_once_what_is_new_and_pings() -> None:
    async with shared() as service:
        stream = await service.follow_as_peer()
        await service.register("a")
        await service.clock.settle()
        assert [len(each["entries"]) for each in messages(bytes(stream.data))] == [0, 1]
        await service.clock.advance(2_000)
        pings = messages(bytes(stream.data))[2:]
        assert 3 <= len(pings) <= 5
        assert all(ping["entries"] == [] for ping in pings)
        stream.cut()
        await service.clock.advance(1_000)
        assert stream.ended


async def test_a_stream_that_is_read_slowly_holds_a_line_and_misses_nothing() -> None:
    async with shared() as service:
        stream = await service.follow_as_peer()
        stream.stall()
        for number in range(300):
            await service.register(f"{number:03}")
        await service.clock.advance(1_000)
        stream.read_on()
        await service.clock.advance(1_000)
        names = {
            entry["registration"]["dgd_name"] for each in messages(bytes(stream.data)) for entry in each["entries"]
        }
        assert len(names) == 300
        stream.cut()
        await service.clock.advance(1_000)


async def test_streams_end_when_the_instance_stops_and_no_new_one_begins() -> None:
    async with shared() as service:
        stream = await service.follow_as_peer()
        service.instance.close_streams()
        await service.clock.advance(1_000)
        assert stream.ended
        assert (await service.get("/peer/v1/feed")).status == 503


async def test_there_are_only_so_many_at_once() -> None:
    async with shared(streams=1) as service:
        stream = await service.follow_as_peer()
        assert (await service.get("/peer/v1/feed")).status == 503
        stream.cut()
        await service.clock.advance(1_000)
        assert (await service.get("/peer/v1/feed")).status == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("role", Role)
async def test_only_peers_read_it(path: str, role: Role) -> None:
    clock = ManualClock()
    authenticator = CredentialAuthenticator(lambda: parse_credentials(lines().encode()), clock)
    async with shared(clock=clock, loopback_only=False, authorizer=Authorizer(authenticator)) as service:
        assert (await service.request("HEAD", path)).status == 401
        answer = await service.request("HEAD", path, bearer(role))
        assert answer.status == (200 if role in (Role.PEER, Role.ADMIN) else 403)
        assert (await service.request("POST", "/pools", bearer(Role.PEER), body("a"))).status == 403


async def test_a_peer_whose_credentials_are_taken_away_is_told_no_more() -> None:
    clock = ManualClock()
    content = lines()
    authenticator = CredentialAuthenticator(lambda: parse_credentials(content.encode()), clock)
    async with shared(clock=clock, loopback_only=False, authorizer=Authorizer(authenticator)) as service:
        stream = await service.follow_as_peer(bearer(Role.PEER))
        await clock.advance(2_000)
        told = len(stream.data)
        assert told > 0
        content = "\n".join(line for line in content.splitlines() if "the-peer" not in line)
        authenticator.invalidate()
        await clock.advance(1_000)
        assert stream.ended
