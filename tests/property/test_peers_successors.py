"""A relay deregisters at one instance, and its successor registers with another."""

from poolmuster.model.change import ChangeKind
from tests.support.peer_cluster import ANSWER_MS, AT_ONCE_MS, cluster, instance, names
from tests.support.peer_instance import LEASE_MS
from tests.support.peer_world import World


def test_a_successor_on_one_side_of_a_split_stays_when_its_predecessor_leaves_on_the_other() -> None:
    world = cluster(2, 0)
    old, new = world.hosts
    world.put(instance(old), "p", "r1", 1)
    world.run(1_000)
    world.cut(old, new)
    world.run(1_000)
    world.put(instance(new), "p", "r2", 1)
    world.run(1_000)
    world.deregister(instance(old), "p", "r1")
    world.run(500)
    assert names(instance(old)) == set()
    world.heal()
    world.run(AT_ONCE_MS)
    assert [names(each) for each in world.instances()] == [{"p"}, {"p"}]
    assert [kind for _, kind, _ in instance(new).events] == [ChangeKind.ADDED]


def _successor_during_a_slow_poll(world: World) -> None:
    """A poll waits for the end of a split; meanwhile a relay deregisters at one end, and its successor registers.

    Times in ms from the start of the poll: 0 the request, 300 the last heartbeat of ``r1`` with the polling instance,
    600 its deregistration there, 2,400 the registration of ``r2`` with the polled instance, 2,800 the heal and the
    answer. The answer counts from 0, so ``r2`` by its lease registered at 0 or before, which is before 300. The next
    polls have no news of it.
    """
    polled, polling = world.hosts[:2]
    for host in (polled, polling):
        world.start(host, polls=True)
    world.run(LEASE_MS + AT_ONCE_MS)
    world.cut(polled, polling)
    world.run(ANSWER_MS + 500)
    while instance(polling).links[polled.address].opened_ms != instance(polling).now_ms():
        world.run(100)
    world.run(300)
    world.put(instance(polling), "p", "r1", 1)
    world.run(300)
    world.deregister(instance(polling), "p", "r1")
    world.run(1_800)
    world.put(instance(polled), "p", "r2", 1)
    world.run(400)
    world.heal()


def test_a_successor_that_a_slow_poll_delivers_is_listed_after_its_predecessor_left() -> None:
    world = World(1, 2)
    _successor_during_a_slow_poll(world)
    world.run(2 * AT_ONCE_MS)
    assert [names(each) for each in world.instances()] == [{"p"}, {"p"}]
    assert all(each.complete for each in world.instances())


def test_so_it_is_at_an_instance_that_knows_it_from_a_snapshot_alone() -> None:
    world = World(1, 3)
    _successor_during_a_slow_poll(world)
    world.run(AT_ONCE_MS)
    world.kill(world.hosts[0])
    world.start(world.hosts[2])
    world.run(AT_ONCE_MS)
    assert [names(each) for each in world.instances()] == [{"p"}, {"p"}]
