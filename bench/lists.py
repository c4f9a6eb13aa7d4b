"""Lists of pools of a kibibyte, plain, gzipped and unchanged, beside etcd's range over as many."""

import contextlib

from bench import etcd_load
from bench.heartbeats import median_cost_s, register
from bench.load import Measured, closed_loop, get
from bench.programs import bare, etcd, fetch_head, poolmuster
from bench.results import Results
from bench.waiting import until_warm

SIZES = {100: 3000, 1000: 500, 10_000: 60}
ROUNDS = 5
CLIENTS = 8
TARGETS = {1000: 12.0}
ABOVE_BARE = {1000: 1.5}
"""What a plain list may cost beside writing its bytes. That alone costs about a tenth of etcd's range, so a target
beside etcd's would say nothing of us."""


async def run(results: Results) -> None:
    """One size after the other."""
    for pools, count in SIZES.items():
        await _size(results, pools, count)


async def _size(results: Results, pools: int, count: int) -> None:
    names = ("list", "gzipped list", "304", "etcd range", "bare write of a list")
    found: dict[str, list[Measured]] = {name: [] for name in names}
    with poolmuster() as service, etcd() as other, contextlib.ExitStack() as stack:
        heartbeats = await register(service, pools)
        await etcd_load.fill(other, pools)
        await until_warm(service, heartbeats)
        head = fetch_head(service.url + "/pools")
        etag = head["etag"]
        floor = stack.enter_context(bare(int(head["content-length"])))
        for _ in range(ROUNDS):
            await closed_loop(service, heartbeats, count=pools, clients=CLIENTS)
            plain = [get("/pools")]
            found["list"].append(await closed_loop(service, plain, count=count, clients=CLIENTS))
            found["bare write of a list"].append(await closed_loop(floor, plain, count=count, clients=CLIENTS))
            gzipped = [get("/pools", "Accept-Encoding: gzip")]
            found["gzipped list"].append(await closed_loop(service, gzipped, count=count, clients=CLIENTS))
            unchanged = [get("/pools", f"If-None-Match: {etag}")]
            found["304"].append(await closed_loop(service, unchanged, count=3000, clients=CLIENTS, status=304))
            found["etcd range"].append(await etcd_load.ranges(other, count))
    for what, rounds in found.items():
        results.add(f"{what} of {pools:,} pools, server CPU", median_cost_s(rounds) * 1e6, "us")
    range_s, bare_s = median_cost_s(found["etcd range"]), median_cost_s(found["bare write of a list"])
    for what in ("bare write of a list", "list", "gzipped list"):
        target = TARGETS.get(pools) if what == "gzipped list" else None
        ratio = range_s / median_cost_s(found[what])
        results.add(f"{what} of {pools:,} to an etcd range, per CPU second", ratio, "x", at_least=target)
    above = median_cost_s(found["list"]) / bare_s
    results.add(f"list of {pools:,} to a bare write of it", above, "x", at_most=ABOVE_BARE.get(pools))
