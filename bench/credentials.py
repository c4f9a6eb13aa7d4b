"""What credentials cost a heartbeat over a kept connection: a token, beside the same service without credentials."""

import statistics
import tempfile
from pathlib import Path

from bench.heartbeats import CLIENTS, COUNT, POOLS
from bench.load import closed_loop, post
from bench.pools import body
from bench.programs import Program, poolmuster
from bench.results import Results
from poolmuster.identity.credentials_file import credentials_line
from poolmuster.identity.tokens import digest_of, new_token

ROUNDS = 15
LONG_LEASE_S = 600


async def run(results: Results) -> None:
    """Rounds of the two take turns, and the ratio is the median of the ratios of the rounds."""
    token = new_token()
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "tokens.toml"
        line = credentials_line(
            "relay", sha256=digest_of(token.encode()).hex(), roles=("register", "read"), clusters=("*",)
        )
        file.write_text(line)
        with (
            poolmuster(lease_s=LONG_LEASE_S) as bare,
            poolmuster("--auth-tokens", str(file), lease_s=LONG_LEASE_S) as guarded,
        ):
            plain = [post(body(number)) for number in range(POOLS)]
            with_token = [post(body(number), f"Authorization: Bearer {token}") for number in range(POOLS)]
            loads: list[tuple[Program, list[bytes]]] = [(bare, plain), (guarded, with_token)]
            for program, requests in loads:
                await closed_loop(program, requests, count=POOLS, clients=CLIENTS, status=None)
            costs: list[list[float]] = [[], []]
            for _ in range(ROUNDS):
                for number, (program, requests) in enumerate(loads):
                    measured = await closed_loop(program, requests, count=COUNT, clients=CLIENTS)
                    costs[number].append(measured.cpu_each_s)
    results.add("heartbeat without credentials, server CPU", statistics.median(costs[0]) * 1e6, "us")
    results.add("heartbeat with a token, server CPU", statistics.median(costs[1]) * 1e6, "us")
    ratio = statistics.median(mine / other for other, mine in zip(*costs, strict=True))
    results.add("a token to none", ratio, "x", at_most=1.05)
