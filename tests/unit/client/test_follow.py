"""The follower, on a clock of its own: silence, cuts, resumption, backoff, restarts."""

import pytest

from poolmuster.client.errors import NotReady, Unreachable
from poolmuster.client.subscription import UpdateKind
from poolmuster.model.errors import Forbidden, PoolmusterError
from tests.unit.client.fakes import ONE, TWO, Scene, event, pool, pool_key, snapshot


async def test_holds_what_it_is_told() -> None:
    async with Scene() as scene:
        assert not scene.follower.has_list
        assert scene.follower.age_ms is None
        assert not scene.complete()
        await scene.send(snapshot("b", "a"))
        assert scene.names() == ["a", "b"]
        assert scene.complete()
        assert scene.follower.revision == "b.1"
        await scene.send(event("added", 2, pool=pool("c")), event("changed", 3, pool=pool("a", weight=0)))
        await scene.send(event("removed", 4, key=pool_key("b"), cause="expired", reason=None))
        assert scene.names() == ["a", "c"]
        assert next(iter(scene.follower.pools.values()))["weight"] == 0
        kinds = [update.kind for update in scene.drain()]
        assert kinds == ["connected", "snapshot", "added", "changed", "removed"]


async def test_when_the_list_will_be_complete_counts_down() -> None:
    async with Scene() as scene:
        waiting = {"kind": "memory", "name": "m", "state": "stale", "clears_in_ms": 9_000}
        await scene.send(event("snapshot", pools=[], complete=False, sources=[waiting, {"name": "x"}]))
        await scene.clock.advance(4_000)
        assert [source.clears_in_ms for source in scene.follower.sources] == [5_000, None]
        await scene.clock.advance(6_000)
        assert [source.clears_in_ms for source in scene.follower.sources] == [0, None]


async def test_a_pool_that_loses_its_frontend_is_changed_not_kept_as_it_was() -> None:
    """C2."""
    async with Scene() as scene:
        await scene.send(event("snapshot", pools=[pool("a", frontend_url="http://x")], complete=True, sources=[]))
        await scene.send(event("changed", 2, pool=pool("a")))
        assert list(scene.follower.pools.values()) == [pool("a")]


async def test_a_pool_that_leaves_the_filter_leaves_the_usable_set() -> None:
    """C3."""
    async with Scene() as scene:
        await scene.send(snapshot("a"), snapshot("b", complete=False))
        assert scene.usable() == {"a": False, "b": True}
        await scene.send(event("removed", 2, key=pool_key("a"), cause="filtered", reason=None))
        await scene.send(event("removed", 3, key=pool_key("b"), cause="filtered", reason=None))
        assert scene.usable() == {}


async def test_the_pools_of_a_model_are_found_by_id_and_alias_with_the_confirmed_ones_first() -> None:
    async with Scene() as scene:
        served = [{"id": "org/m", "aliases": ["m"]}]
        listed = [pool(name, models=served) for name in "abc"]
        await scene.send(event("snapshot", pools=[*listed, pool("d", models=[{"id": "n"}])], complete=True, sources=[]))
        assert [each.pool for each in scene.follower.pools_of("m")] == listed
        assert scene.follower.pools_of("org/m") == scene.follower.pools_of("m")
        before = scene.follower.pools_of("m")
        await scene.send(event("snapshot", 2, pools=listed[1:2], complete=False, sources=[]))
        found = [(each.pool["dgd_name"], each.confirmed) for each in scene.follower.pools_of("m")]
        assert found == [("b", True), ("a", False), ("c", False)]
        assert [each.confirmed for each in before] == [True] * 3, "what was returned does not change"
        await scene.send(event("changed", 3, pool=pool("b", models=[{"id": "n"}])))
        assert [each.pool["dgd_name"] for each in scene.follower.pools_of("n")] == ["b", "d"]
        await scene.clock.advance(3_600_000)
        assert scene.follower.pools_of("m") == ()


async def test_silence_is_noticed_after_three_intervals_and_not_before() -> None:
    """C1."""
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        await scene.clock.advance(14_999)
        assert scene.complete()
        assert scene.follower.age_ms == 14_999
        assert scene.stream.open
        await scene.clock.advance(1)
        assert not scene.source.streams[0].open
        assert not scene.complete()
        assert isinstance(scene.follower.last_error, Unreachable)
        assert scene.names() == ["a"]
        await scene.clock.advance(250)
        assert len(scene.source.streams) == 2


async def test_pings_keep_a_watch_alive() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        for _ in range(100):
            await scene.clock.advance(5_000)
            await scene.send(event("ping"))
        assert len(scene.source.streams) == 1
        assert scene.complete()
        assert scene.follower.age_ms == 0


async def test_an_instance_that_accepts_and_never_answers_is_given_up() -> None:
    async with Scene(ONE, TWO) as scene:
        await scene.clock.advance(15_000)
        assert scene.source.attempts == [ONE, TWO]


async def test_a_byte_now_and_then_is_no_sign_of_life_but_a_long_line_that_arrives_is() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        for _ in range(15):
            scene.stream.raw(b" ")
            await scene.clock.advance(1_000)
        assert not scene.source.streams[0].open
        await scene.clock.advance(250)
        scene.stream.raw(b'{"type":"snapshot","complete":true,"pools":[],"pad":"')
        for _ in range(40):
            scene.stream.raw(b"x" * 5_000)
            await scene.clock.advance(1_000)
        scene.stream.raw(b'"}\n')
        await scene.clock.settle()
        assert scene.source.streams[1].open
        assert scene.complete()


async def test_resumes_after_the_last_event_and_ignores_wrong_ids() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a", number=7), event("ping", 9))
        await scene.send({"type": "ping", "id": "evil\r\nX: y"}, {"type": "ping", "id": 5}, {"type": "ping"})
        scene.stream.cut()
        await scene.clock.advance(250)
        assert [stream.last_event_id for stream in scene.source.streams] == [None, "b.9.f"]


async def test_a_snapshot_without_an_id_makes_the_old_place_worthless() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"), {"type": "snapshot", "pools": [], "complete": True})
        scene.stream.cut()
        await scene.clock.advance(250)
        assert scene.stream.last_event_id is None


async def test_a_line_that_the_end_cuts_is_dropped_and_told_again_after_resuming() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        scene.stream.raw(b'{"type":"removed","revision":"b.2","id":"b.2.f","key":{"cluster_id":"c","na')
        scene.stream.cut(Unreachable("cut"))
        await scene.clock.advance(250)
        assert scene.stream.last_event_id == "b.1.f"
        assert scene.names() == ["a"]
        await scene.send(event("completeness", 1, complete=True, sources=[]))
        await scene.send(event("removed", 2, key=pool_key("a"), cause="expired", reason=None))
        assert scene.names() == []


async def test_unknown_events_and_members_are_ignored() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        await scene.send(
            {"type": "moon", "pools": []}, {"no": "type"}, {"type": 5}, event("added", 2, pool=pool("b"), x=1)
        )
        scene.stream.raw(b'\n\r\n[]\n"text"\n')
        await scene.clock.settle()
        assert scene.names() == ["a", "b"]
        assert len(scene.source.streams) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"type":"removed"}',
        b'{"type":"added","pool":{"cluster_id":"c"}}',
        b'{"type":"completeness"}',
        b'{"type":"snapshot","pools":[{}],"complete":true}',
        b'{"type":"snapshot","complete":true}',
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_what_cannot_be_understood_leads_to_a_whole_new_list(line: bytes) -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        scene.stream.raw(line + b"\n")
        await scene.clock.advance(250)
        assert len(scene.source.streams) == 2
        assert scene.stream.last_event_id is None
        assert scene.names() == ["a"]
        await scene.send(event("added", 2, pool=pool("b")), event("completeness", 2, complete=True, sources=[]))
        assert scene.names() == ["a"], "only a snapshot can make it right again"
        assert not scene.complete()
        await scene.send(snapshot("c"))
        assert scene.names() == ["c"]


async def test_while_it_catches_up_it_is_not_complete_and_forgets_nothing() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a", "b", number=5), snapshot("a", number=6, complete=False, boot="c"))
        assert scene.usable() == {"a": True, "b": False}
        scene.source.revision = "c.9"
        scene.stream.cut()
        await scene.clock.advance(250)
        await scene.send(event("completeness", 6, "c", complete=True, sources=[]))
        assert not scene.complete()
        await scene.send(event("added", 7, "c", pool=pool("b")))
        assert scene.usable() == {"a": True, "b": True}
        assert not scene.complete()
        await scene.send(event("ping", 9, "c"))
        assert scene.complete()
        scene.stream.cut()
        await scene.clock.advance(500)
        assert scene.stream.last_event_id == "c.9.f", "the place never goes back"
        await scene.send(event("completeness", 9, "c", complete=True, sources=[]))
        assert scene.complete(), "nothing was missed"


async def test_a_restart_shows_no_burst_of_removals_and_the_usable_set_stays_full() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a", "b", "c"))
        scene.stream.cut(Unreachable("cut"))
        await scene.clock.advance(250)
        await scene.send(snapshot("a", complete=False, boot="new"))
        assert scene.names() == ["a"]
        assert scene.usable() == {"a": True, "b": False, "c": False}
        await scene.send(event("added", 2, "new", pool=pool("b")))
        assert scene.usable() == {"a": True, "b": True, "c": False}
        await scene.send(event("completeness", 3, "new", complete=True, sources=[]))
        assert scene.usable() == {"a": True, "b": True}
        told = scene.drain(lambda update: bool(update.forgotten))
        assert [[key.dgd_name for key in update.forgotten] for update in told] == [["c"]]


async def test_unconfirmed_pools_leave_after_an_hour_at_most() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"), snapshot(complete=False, boot="new"))
        for _ in range(719):
            await scene.clock.advance(5_000)
            await scene.send(event("ping", 1, "new"))
        assert scene.usable() == {"a": False}
        await scene.clock.advance(5_000)
        await scene.send(event("ping", 1, "new"))
        assert [update.kind for update in scene.drain()][-1] == UpdateKind.FORGOTTEN
        assert scene.usable() == {}


async def test_the_mirror_is_kept_through_any_outage() -> None:
    """C9."""
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        scene.source.refusals[ONE] = [Unreachable("down")] * 10_000
        scene.stream.cut()
        await scene.clock.advance(86_400_000)
        assert scene.usable() == {"a": True}
        assert not scene.complete()
        assert scene.follower.age_ms == 86_400_000


async def test_failures_back_off_and_spare_the_service() -> None:
    async with Scene(refusals={ONE: [Unreachable("down")] * 1_000}) as scene:
        await scene.clock.advance(60_000)
        # at 0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75 s, then every 10 s
        assert len(scene.source.attempts) == 11


async def test_another_instance_is_tried_at_once_and_the_failed_one_only_after_a_while() -> None:
    refusals: dict[str, list[PoolmusterError]] = {ONE: [Unreachable("down")] * 9, TWO: [Unreachable("down")] * 2}
    async with Scene(ONE, TWO, refusals=refusals) as scene:
        assert scene.source.attempts == [ONE, TWO]
        await scene.clock.advance(250)
        assert scene.source.attempts == [ONE, TWO, ONE, TWO]
        await scene.clock.advance(500)
        assert scene.source.attempts == [ONE, TWO, ONE, TWO, ONE, TWO]
        await scene.send(snapshot("a"))
        assert scene.follower.connected_url == TWO


async def test_a_503_is_waited_out_for_as_long_as_it_says() -> None:
    async with Scene(refusals={ONE: [NotReady("not yet", retry_after_s=8)]}) as scene:
        await scene.clock.advance(9_999)
        assert scene.source.attempts == [ONE]
        await scene.clock.advance(1)
        assert scene.source.attempts == [ONE, ONE]


async def test_a_refusal_is_tried_again_and_told() -> None:
    async with Scene(refusals={ONE: [Forbidden("no")]}) as scene:
        assert isinstance(scene.follower.last_error, Forbidden)
        await scene.clock.advance(250)
        await scene.send(snapshot("a"))
        told = scene.drain()
        assert [update.kind for update in told] == ["disconnected", "connected", "snapshot"]


@pytest.mark.parametrize(("reason", "next_url"), [("shutdown", TWO), ("max_age", ONE)])
async def test_a_goodbye_is_followed_by_a_return_almost_at_once(reason: str, next_url: str) -> None:
    async with Scene(ONE, TWO) as scene:
        await scene.send(snapshot("a"))
        await scene.clock.advance(5_000)
        await scene.send(event("closing", 1, reason=reason))
        await scene.clock.advance(499)
        assert scene.source.attempts == [ONE]
        await scene.clock.advance(1)
        assert scene.source.attempts == [ONE, next_url]
        assert scene.stream.last_event_id == "b.1.f"
        assert scene.follower.last_error is None


async def test_goodbyes_in_a_row_do_not_make_it_hammer() -> None:
    async with Scene() as scene:
        for _ in range(1_000):
            if scene.stream.open:
                await scene.send(snapshot("a"), event("closing", 1, reason="shutdown"))
            await scene.clock.advance(60)
        assert len(scene.source.attempts) < 15
