"""What happens to a cluster in each failure, one failure a test; the simulation mixes them."""

import pytest

from poolmuster.model.source import SourceReason
from tests.support.peer_cluster import ANSWER_MS, AT_ONCE_MS, cluster, instance, names
from tests.support.peer_first_rule import first_rule
from tests.support.peer_instance import LEASE_MS
from tests.support.peer_world import Relay, World


def equal(world: World) -> bool:
    return len({each.pools for each in world.instances()}) == 1


@pytest.mark.parametrize("polls", [False, True])
def test_all_that_start_at_once_are_complete_after_one_lease_and_not_before(polls: bool) -> None:
    world = World(1)
    for host in world.hosts:
        world.start(host, polls=polls)
    for n in range(6):
        Relay(world, f"p{n}", hops=False)
    world.run(LEASE_MS - 300)
    assert not any(each.complete for each in world.instances())
    world.run(1_300)
    assert all(each.complete for each in world.instances())
    assert equal(world)
    assert len(names(instance(world.hosts[0]))) == 6


@pytest.mark.parametrize("polls", [False, True])
@pytest.mark.parametrize("down_ms", [100, 1_000, 8_000])
def test_an_instance_that_restarts_is_complete_at_once_with_every_pool_its_own_former_ones_included(
    polls: bool, down_ms: int
) -> None:
    world = cluster(polls=polls)
    world.kill(world.hosts[0])
    world.run(down_ms)
    world.start(world.hosts[0], polls=polls)
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())
    assert len(names(instance(world.hosts[0]))) == 6


def test_two_of_three_that_restart_together_are_complete_at_once() -> None:
    world = cluster()
    for host in world.hosts[:2]:
        world.kill(host)
    world.run(1_000)
    for host in world.hosts[:2]:
        world.start(host)
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())


def test_all_that_restart_at_once_are_complete_after_one_lease_and_not_before() -> None:
    world = cluster()
    for host in world.hosts:
        world.kill(host)
    world.run(500)
    for host in world.hosts:
        world.start(host)
    world.run(LEASE_MS - 300)
    assert not any(each.complete for each in world.instances())
    world.run(1_300)
    assert all(each.complete for each in world.instances())


@pytest.mark.parametrize("polls", [False, True])
def test_a_killed_instance_that_stays_in_the_name_shows_at_once_and_does_not_count_after_a_lease(
    polls: bool,
) -> None:
    world = cluster(polls=polls)
    world.kill(world.hosts[0])
    world.run(ANSWER_MS)
    for host in world.hosts[1:]:
        assert instance(host).problems == [f"10.0.0.0: {SourceReason.UNREACHABLE}"]
    world.run(LEASE_MS)
    assert all(each.complete for each in world.instances())
    assert len(names(instance(world.hosts[1]))) == 6


def test_an_instance_whose_machine_is_gone_counts_until_it_has_left_the_name_for_a_lease() -> None:
    world = cluster()
    world.kill(world.hosts[0])
    world.hosts[0].there = False
    world.run(10 * LEASE_MS)
    assert not instance(world.hosts[1]).complete
    world.unname(world.hosts[0])
    world.run(LEASE_MS - 1_000)
    assert not instance(world.hosts[1]).complete
    world.run(AT_ONCE_MS + 1_000)
    assert instance(world.hosts[1]).complete


def test_an_instance_that_leaves_the_name_before_it_stops_makes_no_list_incomplete() -> None:
    world = cluster()
    world.unname(world.hosts[0])
    world.run(AT_ONCE_MS)
    world.kill(world.hosts[0])
    for _ in range(20):
        world.run(1_000)
        assert all(each.complete for each in world.instances())


def test_an_instance_that_dies_over_and_over_does_not_keep_the_others_incomplete() -> None:
    world = cluster()
    for turn in range(20):
        world.kill(world.hosts[0])
        world.run(1_500)
        if turn * 3_000 > LEASE_MS + ANSWER_MS:
            assert instance(world.hosts[1]).complete
        world.start(world.hosts[0])
        world.run(1_500)
        if turn * 3_000 > LEASE_MS + ANSWER_MS:
            assert instance(world.hosts[1]).complete


@pytest.mark.parametrize("stopped_ms", [5_000, 12_000, 60_000])
def test_an_instance_that_was_stopped_is_complete_at_once_when_it_goes_on(stopped_ms: int) -> None:
    world = cluster()
    world.stop(world.hosts[0])
    world.run(ANSWER_MS + 500)
    assert instance(world.hosts[1]).problems == [f"10.0.0.0: {SourceReason.TIMEOUT}"]
    world.run(stopped_ms)
    world.hosts[0].go_on()
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())


def test_after_a_split_no_pool_comes_back_none_is_lost_and_both_sides_are_complete_at_once() -> None:
    world = cluster()
    world.cut(world.hosts[0], world.hosts[1])
    world.cut(world.hosts[0], world.hosts[2])
    world.run(ANSWER_MS + 500)
    assert not any(instance(host).complete for host in (world.hosts[0], world.hosts[1]))
    world.run(2 * LEASE_MS)
    for relay in world.relays[:2]:
        relay.terminate()
    world.run(3_000)
    world.heal()
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())
    assert equal(world)
    assert names(instance(world.hosts[0])) == {"p2", "p3", "p4", "p5"}


def test_a_relay_that_hops_between_instances_makes_no_event() -> None:
    world = cluster(hops=True)
    before = [len(each.events) for each in world.instances()]
    world.run(4 * LEASE_MS)
    assert [len(each.events) for each in world.instances()] == before
    assert all(not each.leases.conflicts.all(each.now_ms()) for each in world.instances())


def test_a_stream_that_is_20_s_late_does_not_lengthen_a_lease() -> None:
    world = cluster(2, 0)
    first, second = world.hosts
    instance(second).careless = True
    for link in world.links:
        if link.client is instance(second) and link.server is first:
            world.hold(link, 8_000)
    world.put(instance(first), "p", "r", 1)
    accepted_ms = world.now_ms
    world.run(7_000)
    assert names(instance(second)) == set()
    world.run(2_000)
    assert names(instance(second)) == {"p"}
    world.run(accepted_ms + LEASE_MS + 300 - world.now_ms)
    assert names(instance(second)) == set()


def test_an_address_behind_which_several_answer_shows_as_a_load_balancer() -> None:
    world = World(1, 2)
    for host in world.hosts:
        world.start(host, polls=True)
    world.named = {"10.9.9.9"}
    world.balanced["10.9.9.9"] = world.hosts
    world.run(2 * LEASE_MS)
    for each in world.instances():
        assert each.problems == [f"10.9.9.9: {SourceReason.LOAD_BALANCER}"]
    world.named = {host.address for host in world.hosts}
    world.run(LEASE_MS + AT_ONCE_MS)
    assert all(each.complete for each in world.instances())


def _moved_during_a_split(world: World) -> None:
    """A pool is registered with one side alone, and that instance restarts just before the split heals."""
    first, second = world.hosts
    for host in world.hosts:
        world.start(host)
    world.run(LEASE_MS + AT_ONCE_MS)
    world.cut(first, second)
    world.run(1_000)
    world.put(instance(first), "p", "r", 1)
    world.run(5_000)
    world.put(instance(first), "p", "r", 1)
    world.run(4_900)
    world.kill(first)
    world.run(100)


def test_a_restart_just_before_a_split_heals_leaves_a_sync_gap_for_one_lease() -> None:
    world = World(1, 2)
    _moved_during_a_split(world)
    world.start(world.hosts[0])
    world.heal()
    world.run(AT_ONCE_MS)
    assert not any(each.complete for each in world.instances())
    world.run(LEASE_MS + 1_000)
    assert all(each.complete for each in world.instances())


def test_a_crash_just_before_a_split_heals_leaves_a_sync_gap_for_one_lease_from_the_first_refusal() -> None:
    world = World(1, 2)
    _moved_during_a_split(world)
    world.heal()
    world.run(LEASE_MS - 1_000)
    assert not instance(world.hosts[1]).complete
    world.run(AT_ONCE_MS)
    assert instance(world.hosts[1]).complete


def test_a_third_instance_that_read_it_all_along_ends_the_sync_gap_at_once() -> None:
    world = World(1, 3)
    world.start(world.hosts[2])
    for host in world.hosts[:2]:
        world.start(host)
    world.run(LEASE_MS + AT_ONCE_MS)
    world.cut(world.hosts[0], world.hosts[1])
    world.run(1_000)
    world.put(instance(world.hosts[0]), "p", "r", 1)
    world.run(6_000)
    world.kill(world.hosts[0])
    world.run(100)
    world.start(world.hosts[0])
    world.heal()
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())
    assert [names(each) for each in world.instances()] == [{"p"}] * 3


def test_the_first_rule_errs_at_a_restart_just_before_a_split_heals() -> None:
    world = World(1, 2, first_rule)
    _moved_during_a_split(world)
    world.start(world.hosts[0])
    world.heal()
    with pytest.raises(AssertionError, match=r"is complete without \['p'\]"):
        world.run(AT_ONCE_MS)


def test_the_first_rule_errs_at_a_crash_just_before_a_split_heals() -> None:
    world = World(1, 2, first_rule)
    _moved_during_a_split(world)
    world.run(6_000)
    world.heal()
    with pytest.raises(AssertionError, match=r"is complete without \['p'\]"):
        world.run(AT_ONCE_MS)


def _last_read_two_seconds_ago(world: World) -> None:
    """Two of three have run for a while; one is cut off, and accepted a registration since."""
    first, second, _ = world.hosts
    for host in (first, second):
        world.start(host)
    world.run(LEASE_MS + AT_ONCE_MS)
    world.cut(first, second)
    world.cut(first, world.hosts[2])
    world.run(100)
    world.put(instance(first), "p", "r", 1)
    world.run(1_900)


def test_a_member_that_a_trusted_peer_last_read_two_seconds_ago_gets_a_sync_gap() -> None:
    """The third starts, trusts the second, and finds another occupant than the second last read."""
    world = World(1, 3)
    _last_read_two_seconds_ago(world)
    first, _, third = world.hosts
    world.start(third)
    world.run(700)
    assert instance(third).membership.is_warm(instance(third).now_ms())
    world.kill(first)
    world.run(100)
    world.start(first)
    world.heal()
    world.run(LEASE_MS - 1_000)
    assert not any(each.complete for each in world.instances())
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())


def test_so_it_does_where_that_occupant_was_read_before_the_sync_state_was_adopted() -> None:
    world = World(1, 3)
    _last_read_two_seconds_ago(world)
    first, second, third = world.hosts
    world.kill(first)
    world.run(100)
    world.start(first)
    world.heal()
    world.cut(first, second)
    world.start(third)
    world.run(ANSWER_MS)
    assert instance(third).membership.is_warm(instance(third).now_ms())
    world.heal()
    world.run(LEASE_MS - ANSWER_MS - 1_000)
    assert not any(each.complete for each in world.instances())
    world.run(AT_ONCE_MS + 1_000)
    assert all(each.complete for each in world.instances())


def test_a_name_that_cannot_be_resolved_shows_and_the_list_is_complete_again_once_it_can() -> None:
    world = cluster()
    world.dns_works = False
    world.run(ANSWER_MS + AT_ONCE_MS)
    assert instance(world.hosts[0]).problems == [f"peers.test: {SourceReason.DNS_FAILED}"]
    world.dns_works = True
    world.run(AT_ONCE_MS)
    assert all(each.complete for each in world.instances())


def test_an_instance_that_comes_and_goes_while_the_name_cannot_be_resolved_is_waited_for() -> None:
    world = cluster(3)
    world.unname(world.hosts[2])
    world.kill(world.hosts[2])
    world.run(LEASE_MS + AT_ONCE_MS)
    world.dns_works = False
    world.start(world.hosts[2])
    world.hosts[2].address = "10.0.0.77"
    world.run(1_000)
    world.put(instance(world.hosts[2]), "p", "r", 1)
    world.run(LEASE_MS - 4_000)
    world.put(instance(world.hosts[2]), "p", "r", 1)
    world.run(4_000)
    world.unname(world.hosts[2])
    world.named = {host.address for host in world.hosts[:2]}
    world.kill(world.hosts[2])
    world.dns_works = True
    world.run(AT_ONCE_MS)
    assert not any(each.complete for each in world.instances())
    world.run(LEASE_MS)
    assert all(each.complete for each in world.instances())


def test_the_first_rule_never_completes_where_one_instance_dies_over_and_over() -> None:
    world = World(1, 3, first_rule)
    for host in world.hosts:
        world.start(host)
    world.run(LEASE_MS + AT_ONCE_MS)
    for _ in range(20):
        world.kill(world.hosts[0])
        world.run(1_500)
        world.start(world.hosts[0])
        world.run(400)
        assert not instance(world.hosts[1]).complete
