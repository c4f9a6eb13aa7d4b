"""Heartbeats: a pool's unchanged kibibyte again, beside etcd's put with a lease and its keep-alive."""

import statistics

from bench import etcd_load
from bench.load import Measured, closed_loop, post
from bench.pools import body
from bench.programs import Program, etcd, poolmuster
from bench.results import Results
from bench.waiting import until_warm

COUNT = 10_000
ROUNDS = 5
CLIENTS = 64
POOLS = 1000
FEW, MANY = 100, 10_000
LONG_LEASE_S = 600


async def register(program: Program, pools: int) -> list[bytes]:
    """Register so many pools. Returns their heartbeats."""
    requests = [post(body(number)) for number in range(pools)]
    await closed_loop(program, requests, count=pools, clients=CLIENTS, status=None)
    return requests


async def run(results: Results) -> None:
    """Rounds of the two servers take turns, so that whatever else the machine does meets both."""
    ours, puts, keep_alives = [], [], []
    with poolmuster() as service, etcd() as other:
        requests = await register(service, POOLS)
        await etcd_load.fill(other, POOLS)
        await until_warm(service, requests)
        for _ in range(ROUNDS):
            ours.append(await closed_loop(service, requests, count=COUNT, clients=CLIENTS))
            puts.append(await etcd_load.puts(other, POOLS, COUNT))
            keep_alives.append(await etcd_load.keep_alives(other, POOLS, COUNT))
            await closed_loop(service, requests, count=POOLS, clients=CLIENTS)
    cost_s = median_cost_s(ours)
    results.add("heartbeat, server CPU", cost_s * 1e6, "us")
    results.add("etcd put with lease, server CPU", median_cost_s(puts) * 1e6, "us")
    results.add("etcd keep-alive, server CPU", median_cost_s(keep_alives) * 1e6, "us")
    results.add("heartbeats to etcd puts, per CPU second", median_cost_s(puts) / cost_s, "x", at_least=1.5)
    results.add("heartbeats to etcd keep-alives, per CPU second", median_cost_s(keep_alives) / cost_s, "x")
    await _sizes(results)


async def _sizes(results: Results) -> None:
    costs: dict[int, list[Measured]] = {FEW: [], MANY: []}
    with poolmuster(lease_s=LONG_LEASE_S) as few, poolmuster(lease_s=LONG_LEASE_S) as many:
        programs = {FEW: (few, await register(few, FEW)), MANY: (many, await register(many, MANY))}
        for _ in range(ROUNDS):
            for pools, (program, requests) in programs.items():
                costs[pools].append(await closed_loop(program, requests, count=COUNT, clients=CLIENTS))
    ratio = median_cost_s(costs[MANY]) / median_cost_s(costs[FEW])
    results.add(f"heartbeat at {MANY:,} pools to one at {FEW}", ratio, "x", at_most=1.25)


def median_cost_s(rounds: list[Measured]) -> float:
    """The median of the server's time for one."""
    return statistics.median(each.cpu_each_s for each in rounds)
