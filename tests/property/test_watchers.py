"""Whatever happens, every watcher's copy equals the list, and equal facts are equal bytes.

Random registrations, renewals, deregistrations, expiries, pauses and steps of the wall clock, against watchers in both
formats that are slow, cut, resumed and filtered, with histories from ample to so short that they start over all the
time. ``POOLMUSTER_EXAMPLES`` sets how many programs are tried.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolmuster.programs.settings.serve import ServeLimits
from tests.support.service import Service, Stream, pools_of
from tests.support.streams import Copy
from tests.support.variables import variable

EXAMPLES = int(variable("EXAMPLES", "60"))
HOUR_MS = 3_600_000
FILTERS = [
    "",
    "?label=tier=gold",
    "?label=tier",
    "?region=west&region=north",
    "?model=m1",
    "?model=alias",
    "?region=west&label=tier=gold",
    "?include=lease",
    "?include=lease&label=tier=gold",
]

facts = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.integers(0, 1),
        "labels": st.sampled_from([{"tier": "gold"}, {"tier": "lead"}, {}]),
        "location": st.sampled_from([{"region": "west"}, {"region": "east"}, {"region": "north"}]),
        "models": st.sampled_from([[{"id": "m1"}], [{"id": "m2", "aliases": ["alias"]}], []]),
        "zone\u00e9": st.just("\U0001f600"),
    },
)
names = st.sampled_from("abcde")
relays = st.sampled_from([None, "r1", "r2"])
watchers = st.integers(0, 5)
ops = st.one_of(
    st.tuples(st.just("put"), names, relays, facts),
    st.tuples(st.just("put"), names, relays, facts),
    st.tuples(st.just("put many"), facts),
    st.tuples(st.just("leave"), names, relays),
    st.tuples(st.just("pass"), st.sampled_from([1, 250, 4_999, 5_000, 15_000])),
    st.tuples(st.just("pause"), st.sampled_from([900, 1_500, 12_000, 60_000])),
    st.tuples(st.just("wall"), st.sampled_from([-HOUR_MS, HOUR_MS])),
    st.tuples(st.just("watch"), st.sampled_from(FILTERS), st.booleans()),
    st.tuples(st.just("watch"), st.sampled_from(FILTERS), st.booleans()),
    st.tuples(st.just("stall"), watchers),
    st.tuples(st.just("read on"), watchers),
    st.tuples(st.just("cut"), watchers),
    st.tuples(st.just("come back"), watchers),
    st.tuples(st.just("ask for something else"), watchers, st.sampled_from(FILTERS)),
    st.tuples(st.just("list"), st.sampled_from(FILTERS)),
)
programs = st.lists(ops, min_size=5, max_size=40)
history_limits = st.sampled_from([1, 2, 5, 20_000])


class Watcher:
    """One that believes what it is told, and comes back with the last id that it saw."""

    def __init__(self, service: Service, query: str, *, sse: bool) -> None:
        self._service = service
        self.query = query
        self._sse = sse
        self.copy = Copy()
        self.stream: Stream | None = None
        self.stalled = False

    async def connect(self) -> None:
        """Open a watch, from the last id on."""
        if self.stream is None:
            self.stream = await self._service.watch(self.query, self.copy.last_id, sse=self._sse)
            self.stalled = False

    async def ask_for(self, query: str) -> None:
        """Come back with an id that was got under another question."""
        self.cut()
        same = query == self.query
        self.query = query
        snapshots = self.copy.snapshots
        await self.connect()
        self.take()
        assert same or self.copy.snapshots == snapshots + 1, "an id of another question must lead to a snapshot"

    def take(self) -> None:
        """Take in what came; what was cut off in the middle is lost with its connection."""
        if self.stream is None:
            return
        for event in self.stream.take():
            self.copy.take(event)
            if event["type"] == "closing":
                assert event["reason"] == "too_slow", "nothing else happens in so short a time"
        if self.stream.ended:
            assert self.stream.task.exception() is None
            self.stream = None

    def cut(self) -> None:
        """Lose the connection."""
        self.take()
        if self.stream is not None:
            self.stream.cut()
        self.stream = None

    def set_stalled(self, stalled: bool) -> None:
        """Stop or go on reading."""
        if self.stream is not None:
            self.stalled = stalled
            (self.stream.stall if stalled else self.stream.read_on)()

    @property
    def quiet(self) -> bool:
        """Whether it should know everything by now."""
        return self.stream is not None and not self.stalled

    async def check(self) -> None:
        """Its copy equals the list under its question, at a moment at which the timer is not late."""
        await self._service.get("/status")
        await self._service.clock.settle()
        answer = await self._service.get("/pools" + self.query.replace("include=lease", "").replace("?&", "?"))
        await self._service.clock.settle()
        self.take()
        if not self.quiet:
            return
        for pool in self.copy.pools.values():
            status = pool.pop("status", None)
            assert (status is not None) == ("lease" in self.query)
        assert self.copy.pools_json == pools_of(answer)
        for pool in self.copy.pools.values():
            if "lease" in self.query:
                pool["status"] = {}
        assert self.copy.complete == answer.json["complete"]


class World:
    """One service with its watchers, driven by a program."""

    def __init__(self, history_changes: int) -> None:
        self.service = Service(limits=ServeLimits(history_changes=history_changes))
        self.watchers: list[Watcher] = []

    async def run(self, program: list[tuple[Any, ...]]) -> None:
        """Do it all, with a look at every watcher after each step."""
        for query, sse in [("", True), ("?label=tier=gold", False)]:
            await self._watch(query, sse)
        for op in program:
            await self._do(op)
            await self._check()
        for watcher in self.watchers:
            watcher.set_stalled(False)
            await self.service.clock.settle()
            watcher.take()
            await watcher.connect()
        await self._check()
        assert all(watcher.quiet for watcher in self.watchers)

    async def _check(self) -> None:
        await self.service.clock.settle()
        for watcher in self.watchers:
            await watcher.check()

    async def _watch(self, query: str, sse: bool) -> None:
        if len(self.watchers) < 6:
            watcher = Watcher(self.service, query, sse=sse)
            self.watchers.append(watcher)
            await watcher.connect()

    async def _do(self, op: tuple[Any, ...]) -> None:
        service = self.service
        match op:
            case "put", name, relay_id, some:
                answer = await service.register(name, relay_id=relay_id, **some)
                assert answer.status in (200, 201, 409)
            case "put many", some:
                for number in range(8):
                    await service.register(f"many{number}", **some)
            case "leave", name, relay_id:
                assert (await service.leave(name, query=f"?relay_id={relay_id}" if relay_id else "")).status == 204
            case "pass" | "pause" | "wall" as what, by_ms:
                await self._let_time(what, by_ms)
            case "watch", query, sse:
                await self._watch(query, sse)
            case "list", query:
                assert (await service.get("/pools" + query)).status == 200
            case what, number, *more if number < len(self.watchers):
                await self._to_watcher(what, self.watchers[number], *more)

    async def _let_time(self, what: str, by_ms: int) -> None:
        clock = self.service.clock
        match what:
            case "pass":
                await clock.advance(by_ms)
            case "pause":
                clock.jump(by_ms)
            case _:
                clock.step_wall(by_ms)

    async def _to_watcher(self, what: str, watcher: Watcher, *more: str) -> None:
        match what:
            case "stall":
                watcher.set_stalled(True)
            case "read on":
                watcher.set_stalled(False)
            case "cut":
                watcher.cut()
            case "come back":
                await watcher.connect()
            case _:
                await watcher.ask_for(*more)


@pytest.mark.soak
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(programs, history_limits)
async def test_every_watchers_copy_equals_the_list_at_each_quiet_point(
    program: list[tuple[Any, ...]], history_changes: int
) -> None:
    world = World(history_changes)
    async with world.service:
        await world.run(program)


finals = st.dictionaries(names, facts, max_size=5)


@pytest.mark.soak
@settings(max_examples=EXAMPLES)
@given(finals, st.lists(st.tuples(names, facts), max_size=8), st.randoms(use_true_random=False), st.booleans())
async def test_services_fed_the_same_facts_in_other_orders_hold_equal_bytes_and_etags(
    final: dict[str, dict[str, Any]], noise: list[tuple[str, dict[str, Any]]], chance: Any, warm: bool
) -> None:
    async with Service(boot_id="one") as one, Service(boot_id="other") as other:
        for name in sorted(final):
            await one.register(name, relay_id="r", **final[name])
        for name, some in noise:
            await other.register(name, **some)
            if name not in final:
                await other.leave(name)
        shuffled = list(final)
        chance.shuffle(shuffled)
        for name in shuffled:
            backwards = dict(reversed(final[name].items()))
            await other.register(name, relay_id="another", **backwards)
        if warm:
            for each in (one, other):
                await _keep_warm(each, final)
        for query in FILTERS[:7]:
            mine, theirs = await one.get("/pools" + query), await other.get("/pools" + query)
            assert pools_of(mine) == pools_of(theirs)
            assert mine.headers["etag"] == theirs.headers["etag"]
            assert (mine.headers["poolmuster-complete"] == "true") == warm


async def _keep_warm(service: Service, final: dict[str, dict[str, Any]]) -> None:
    for _ in range(3):
        await service.clock.advance(5_000)
        for name, some in final.items():
            await service.register(name, relay_id="late", **some)
    await asyncio.sleep(0)
