"""Lists of pools of a kibibyte, plain, gzipped and unchanged, beside etcd's range over as many."""

import statistics

from bench import etcd_load
from bench.heartbeats import median_cost_s, register
from bench.load import Measured, closed_loop, get
from bench.programs import etcd, fetch_head, poolmuster
from bench.results import Results
from bench.waiting import until_warm

SIZES = {100: 3000, 1000: 500, 10_000: 60}
ROUNDS = 5
CLIENTS = 8
TARGETS = {1000: 12.0}


async def run(results: Results) -> None:
    """One size after the other."""
    for pools, count in SIZES.items():
        await _size(results, pools, count)


async def _size(results: Results, pools: int, count: int) -> None:
    found: dict[str, list[Measured]] = {"list": [], "gzipped list": [], "304": [], "etcd range": []}
    with poolmuster() as service, etcd() as other:
        heartbeats = await register(service, pools)
        await etcd_load.fill(other, pools)
        await until_warm(service, heartbeats)
        etag = fetch_head(service.url + "/pools")["etag"]
        for _ in range(ROUNDS):
            await closed_loop(service, heartbeats, count=pools, clients=CLIENTS)
            plain = [get("/pools")]
            found["list"].append(await closed_loop(service, plain, count=count, clients=CLIENTS))
            gzipped = [get("/pools", "Accept-Encoding: gzip")]
            found["gzipped list"].append(await closed_loop(service, gzipped, count=count, clients=CLIENTS))
            unchanged = [get("/pools", f"If-None-Match: {etag}")]
            found["304"].append(await closed_loop(service, unchanged, count=3000, clients=CLIENTS, status=304))
            found["etcd range"].append(await etcd_load.ranges(other, count))
    for what, rounds in found.items():
        results.add(f"{what} of {pools:,} pools, server CPU", median_cost_s(rounds) * 1e6, "us")
    range_s = statistics.median(each.cpu_each_s for each in found["etcd range"])
    for what in ("list", "gzipped list"):
        ratio = range_s / median_cost_s(found[what])
        target = TARGETS.get(pools) if what == "list" else None
        results.add(f"{what}s of {pools:,} to etcd ranges, per CPU second", ratio, "x", at_least=target)
