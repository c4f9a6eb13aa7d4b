"""Peers over TLS and with tokens: who is let in, and what is said of who is not."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from poolmuster.model.auth import Role
from tests.support.fleet import Fleet
from tests.support.instances import eventually
from tests.support.peers import HEARTBEAT_S, INCOMPLETE_WITHIN_S, LEASE_S, MARGIN, NAME, Cluster, Guard, Peer, cluster
from tests.support.pki import Authority, replace_file
from tests.support.principals import TOKENS, UNKNOWN, bearer, lines

pytestmark = pytest.mark.integration

PATHS = ("/peer/v1/list", "/peer/v1/feed?after=0")
CLUSTER = "c"


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        yield found


class Files:
    """What each instance reads: credentials of all roles, and a token of its own to show to others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority()
        self.ca = replace_file(folder / "ca.pem", self.authority.pem)
        self.principals = replace_file(folder / "tokens.toml", lines().encode())

    def show(self, number: int, token: str) -> str:
        """What instance ``number`` shows to its peers, from now on. Returns the file."""
        return replace_file(self._folder / f"token-{number}", f"{token}\n".encode())

    def guard(self, number: int, *, token: str = TOKENS[Role.PEER], names: tuple[str, ...] = (NAME,)) -> Guard:
        """An instance over TLS, whose certificate is for ``names``, and for the door of the test."""
        pair = self.authority.server(*names, "127.0.0.1").write(self._folder, f"pair-{number}")
        return Guard(
            flags=(
                *("--auth-tokens", self.principals, "--peer-token-file", self.show(number, token)),
                *("--tls-cert-path", pair.cert, "--tls-key-path", pair.key, "--peer-ca-cert", self.ca),
            ),
            token=TOKENS[Role.ADMIN],
            trust=ssl.create_default_context(cadata=self.authority.pem.decode()),
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def named(found: Cluster, count: int) -> None:
    """So many machines behind the name."""
    machines = [await found.machine() for _ in range(count)]
    found.name(*(machine.address for machine in machines))


async def test_peers_share_over_tls_by_the_names_certificate_and_a_token(empty: Cluster, files: Files) -> None:
    await named(empty, 3)
    for number, machine in enumerate(empty.machines):
        await empty.start(machine, guard=files.guard(number))
    async with Fleet(HEARTBEAT_S) as fleet:
        for peer, name in zip(empty.peers, "abc", strict=True):
            fleet.join(peer, name)
        await empty.agreed(empty.peers, "a", "b", "c")
    for peer in empty.peers:
        assert TOKENS[Role.PEER] not in peer.program.stderr + peer.program.stdout


@pytest.mark.parametrize("token", [UNKNOWN, TOKENS[Role.READ]], ids=["unknown", "of another role"])
async def test_a_wrong_token_is_forbidden_and_named_until_the_file_holds_another(
    empty: Cluster, files: Files, token: str
) -> None:
    await named(empty, 2)
    good = await empty.start(empty.machines[0], guard=files.guard(0))
    bad = await empty.start(empty.machines[1], guard=files.guard(1, token=token))
    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(good, "a")
        fleet.join(bad, "b")
        await eventually(lambda: _forbidden(bad, good), INCOMPLETE_WITHIN_S * MARGIN)
        await eventually(lambda: _lists(good, ["a", "b"]), INCOMPLETE_WITHIN_S * MARGIN)
        assert await bad.pools() == (["b"], False), "it is told nothing"
        files.show(1, TOKENS[Role.PEER])
        await empty.agreed((good, bad), "a", "b", timeout_s=LEASE_S * MARGIN)


async def _forbidden(peer: Peer, other: Peer) -> bool:
    return await peer.reason_of(other) == "forbidden"


async def _lists(peer: Peer, names: list[str]) -> bool:
    return (await peer.pools())[0] == names


async def test_a_peer_that_loses_its_right_is_told_no_more(empty: Cluster, files: Files, tmp_path: Path) -> None:
    await named(empty, 2)
    one, two = [await empty.start(machine, guard=files.guard(n)) for n, machine in enumerate(empty.machines)]
    await empty.agreed((one, two))
    without = [line for line in lines().splitlines() if not line.startswith("the-peer")]
    replace_file(Path(files.principals), "\n".join(without).encode())
    for peer, other in ((one, two), (two, one)):
        await eventually(lambda peer=peer, other=other: _forbidden(peer, other), INCOMPLETE_WITHIN_S * MARGIN)  # type: ignore[misc]
        assert not await peer.complete()
    replace_file(Path(files.principals), lines().encode())
    await empty.agreed((one, two), timeout_s=LEASE_S * MARGIN)


async def test_a_certificate_for_another_name_is_not_accepted_whatever_the_address(
    empty: Cluster, files: Files
) -> None:
    await named(empty, 2)
    good = await empty.start(empty.machines[0], guard=files.guard(0))
    other = empty.machines[1]
    bad = await empty.start(other, guard=files.guard(1, names=("elsewhere.test", other.address)))
    await bad.register("b", relay_id="b")
    await eventually(lambda: _not_accepted(good, bad), INCOMPLETE_WITHIN_S * MARGIN)
    assert await good.pools() == ([], False)


async def _not_accepted(peer: Peer, other: Peer) -> bool:
    return any(
        other.machine.address in source["name"] and "certificate" in (source["detail"] or "")
        for source in await peer.sources_of("peer")
    )


async def test_what_peers_are_told_is_told_to_nobody_else(empty: Cluster, files: Files) -> None:
    await named(empty, 1)
    guard = files.guard(0)
    peer = await empty.start(empty.machines[0], guard=guard)
    connector = aiohttp.TCPConnector(ssl=guard.trust or True)
    async with aiohttp.ClientSession(peer.url, connector=connector) as session:
        for path in PATHS:
            async with session.get(path) as answer:
                assert answer.status == 401
            for role in Role:
                async with session.get(path, headers=bearer(role)) as answer:
                    assert answer.status == (200 if role in (Role.PEER, Role.ADMIN) else 403), role
