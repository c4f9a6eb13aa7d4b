"""What credentials cost a heartbeat over a kept connection, each beside the same service without that credential.

A token beside none over plain HTTP; a token, a client certificate and a service account's token beside nothing over
TLS. And what a wrong token costs, and does to the heartbeats beside it.
"""

import asyncio
import contextlib
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bench.heartbeats import CLIENTS, COUNT, POOLS
from bench.load import Measured, closed_loop, get, post
from bench.pools import body
from bench.programs import Program, poolmuster
from bench.results import Results
from poolmuster.auth.credentials_file import credentials_line, digest_of, new_token
from tests.support.issuer import ISSUER, Issuer
from tests.support.pki import Authority

ROUNDS = 15
LONG_LEASE_S = 600
URI = "spiffe://bench.example/relay"
FLOOD = 10_000


class Way(msgspec.Struct, frozen=True):
    """One way to send heartbeats, to one service."""

    name: str
    program: Program
    requests: list[bytes]
    tls: ssl.SSLContext | None = None

    async def send(self, count: int, status: int | None = 200) -> Measured:
        return await closed_loop(self.program, self.requests, count=count, clients=CLIENTS, status=status, tls=self.tls)


async def run(results: Results) -> None:
    """Rounds of all take turns, and each ratio is the median of the ratios of the rounds."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        token = new_token()
        ways = list(_ways(Path(name), stack, token))
        for way in ways:
            await way.send(POOLS, status=None)
        costs: dict[str, list[float]] = {way.name: [] for way in ways}
        for _ in range(ROUNDS):
            for way in ways:
                costs[way.name].append((await way.send(COUNT)).cpu_each_s)
        for way in ways:
            results.add(f"heartbeat with {way.name}, server CPU", statistics.median(costs[way.name]) * 1e6, "us")
        results.add("a token to none", _ratio(costs, "a token", "nothing"), "x", at_most=1.05)
        for mine in ("a token", "a certificate", "a service account"):
            results.add(f"over TLS, {mine} to none", _ratio(costs, f"{mine} over TLS", "nothing over TLS"), "x")
        await _wrong(results, next(way for way in ways if way.name == "a token"), token)


def _ratio(costs: dict[str, list[float]], mine: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(costs[mine], costs[other], strict=True))


def _ways(folder: Path, stack: contextlib.ExitStack, token: str) -> Iterator[Way]:
    authority, issuer = Authority(), Issuer(algorithm="RS256")
    pair = authority.server("localhost", "127.0.0.1").write(folder, "server")
    (folder / "keys.json").write_bytes(issuer.jwks())
    lines = [
        credentials_line("relay", sha256=digest_of(token.encode()).hex(), roles=("register", "read"), clusters=("*",)),
        f'by-name = {{uri = "{URI}", roles = ["register"], clusters = ["*"]}}',
        f'pod = {{issuer = "{ISSUER}", service_account = "inference/relay", roles = ["register"], clusters = ["*"]}}',
    ]
    (folder / "tokens.toml").write_text("\n".join(lines))
    tokens = ("--auth-tokens", str(folder / "tokens.toml"))
    tls = ("--tls-cert-path", pair.cert, "--tls-key-path", pair.key)
    proofs = ("--tls-client-ca", authority.write(folder), "--auth-oidc", f"{ISSUER}={folder / 'keys.json'}")

    def service(*flags: str) -> Program:
        return stack.enter_context(poolmuster(*flags, lease_s=LONG_LEASE_S))

    plain, guarded, encrypted, proving = service(), service(*tokens), service(*tls), service(*tls, *tokens, *proofs)
    bearer = f"Authorization: Bearer {token}"
    account = f"Authorization: Bearer {issuer.token(time.time_ns() // 1_000_000)}"
    context = ssl.create_default_context(cadata=authority.pem.decode())
    showing = ssl.create_default_context(cadata=authority.pem.decode())
    shown = authority.client(uris=[URI]).write(folder, "client")
    showing.load_cert_chain(shown.cert, shown.key)
    for each in (context, showing):
        each.check_hostname = False  # it is called by its address, and what names cost is not asked
    yield Way("nothing", plain, _heartbeats())
    yield Way("a token", guarded, _heartbeats(bearer))
    yield Way("nothing over TLS", encrypted, _heartbeats(), context)
    yield Way("a token over TLS", proving, _heartbeats(bearer), context)
    yield Way("a certificate over TLS", proving, _heartbeats(), showing)
    yield Way("a service account over TLS", proving, _heartbeats(account), context)


def _heartbeats(*headers: str) -> list[bytes]:
    return [post(body(number), *headers) for number in range(POOLS)]


async def _wrong(results: Results, way: Way, token: str) -> None:
    """Wrong tokens, each another, as fast as they are answered; and ten thousand a second beside heartbeats."""
    flood = Way("wrong tokens", way.program, _asking(new_token() for _ in range(FLOOD)))
    costs = [((await flood.send(FLOOD, 401)).cpu_each_s, (await way.send(COUNT)).cpu_each_s) for _ in range(5)]
    results.add("a wrong token, server CPU", statistics.median(mine for mine, _ in costs) * 1e6, "us")
    ratio = statistics.median(mine / other for mine, other in costs)
    results.add("a wrong token to a heartbeat with a right one", ratio, "x", at_most=1.0)
    near = Way("tokens that end wrong", way.program, _asking(f"{token[:-2]}{number:02x}" for number in range(200)))
    far = Way("tokens that begin wrong", way.program, _asking(f"{number:02x}{token[2:]}" for number in range(200)))
    pairs = [((await near.send(FLOOD, 401)).cpu_each_s, (await far.send(FLOOD, 401)).cpu_each_s) for _ in range(5)]
    ratio = statistics.median(mine / other for mine, other in pairs)
    results.add("a token that ends wrong to one that begins wrong", ratio, "x", at_least=0.95, at_most=1.05)
    alone = await way.send(COUNT)
    beside, _ = await asyncio.gather(way.send(COUNT), flood.send(FLOOD, 401))
    results.add("p99 of heartbeats alone, at full speed", alone.quantile_s(0.99) * 1e3, "ms")
    results.add("p99 of heartbeats beside as many wrong tokens", beside.quantile_s(0.99) * 1e3, "ms")


def _asking(tokens: Iterable[str]) -> list[bytes]:
    return [get("/pools", f"Authorization: Bearer {token}") for token in tokens]
