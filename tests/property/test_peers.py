"""A cluster of instances that share registrations, with every fault (`tests.support.peer_world`)."""

from collections.abc import Callable

import pytest

from tests.support.peer_first_rule import first_rule
from tests.support.peer_instance import LEASE_MS, Instance, membership
from tests.support.peer_world import Host, Relay, World
from tests.support.variables import variable

RUNS = max(2, int(variable("EXAMPLES", "120")) // 10)
SEEDS = [int(variable("SEED"))] if variable("SEED") else list(range(RUNS))
RULE = first_rule if variable("PEERS_RULE") == "first" else membership
"""``POOLMUSTER_PEERS_RULE=first`` shows where the rule errs that comes to mind first."""

LENGTH = 14
"""The number of disturbances in a run."""


def _restart(world: World, host: Host) -> None:
    world.kill(host)
    world.run(world.rng.choice([300, 2_000, 6_000, 20_000]))
    start(world, host)


def _stop(world: World, host: Host) -> None:
    world.stop(host)
    world.run(world.rng.choice([800, 4_000, 12_000, 40_000]))
    host.go_on()


def _cut(world: World, host: Host) -> None:
    other = world.rng.choice([each for each in world.hosts if each is not host])
    world.cut(host, other, both=world.rng.random() < 0.6)


def _split(world: World, host: Host) -> None:
    for each in world.hosts:
        if each is not host:
            world.cut(host, each)


def _heal(world: World, host: Host) -> None:
    world.heal()


def _deregister(world: World, host: Host) -> None:
    rng = world.rng
    relay = rng.choice(world.relays)
    relay.terminate()
    world.relays.remove(relay)
    if rng.random() < 0.7:
        world.run(rng.choice([100, 1_000, 5_000]))
        Relay(world, relay.name, hops=rng.random() < 0.5)


def _kill_relay(world: World, host: Host) -> None:
    relay = world.rng.choice(world.relays)
    relay.kill()
    world.relays.remove(relay)
    Relay(world, world.rng.choice([relay.name, f"{relay.name}x"]), hops=world.rng.random() < 0.5)


def _change_facts(world: World, host: Host) -> None:
    world.rng.choice(world.relays).weight += 1


def _change_address(world: World, host: Host) -> None:
    rng = world.rng
    world.unname(host)
    world.run(rng.choice([500, 5_000, 20_000]))
    world.kill(host)
    host.address = f"10.0.{rng.randrange(256)}.{rng.randrange(256)}"
    start(world, host)


def _hold_streams(world: World, host: Host) -> None:
    for link in world.links:
        if link.stream and world.rng.random() < 0.3:
            world.hold(link, 20_000)


def _toggle_dns(world: World, host: Host) -> None:
    world.dns_works = not world.dns_works


def _end_in_a_split(world: World, host: Host) -> None:
    """One instance is cut off from some, and dies or restarts shortly before the split heals, or after."""
    rng = world.rng
    for each in world.hosts:
        if each is not host and rng.random() < 0.8:
            world.cut(host, each, both=rng.random() < 0.8)
    world.run(rng.choice([500, 3_000, 9_000, 14_000, 25_000]))
    for n in range(3):
        Relay(world, f"split{world.now_ms}.{n}", hops=False)
    world.run(rng.choice([3_000, 6_000, 12_000]))
    world.kill(host)
    if rng.random() < 0.6:
        world.run(rng.choice([100, 1_000, 4_000]))
        start(world, host)
    world.run(rng.choice([0, 300, 2_500]))
    world.heal()


DISTURBANCES: list[Callable[[World, Host], None]] = [
    _restart,
    _stop,
    _cut,
    _split,
    _heal,
    _heal,
    _deregister,
    _kill_relay,
    _change_facts,
    _change_address,
    _hold_streams,
    _end_in_a_split,
    _end_in_a_split,
    _toggle_dns,
]


def start(world: World, host: Host) -> Instance | None:
    if host.instance is not None:
        return None
    return world.start(host, polls=world.rng.random() < 0.3, careless=world.rng.random() < 0.3)


def settle(world: World) -> None:
    """The faults end."""
    world.heal()
    world.release()
    world.dns_works = True
    for host in world.hosts:
        start(world, host)
        host.go_on()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_is_never_complete_without_a_live_pool_and_never_stuck(seed: int) -> None:
    print(f"POOLMUSTER_SEED={seed}")
    world = World(seed, 2 + seed % 3, RULE)
    for n in range(6):
        Relay(world, f"p{n}", hops=n % 2 == 0)
    for host in world.hosts:
        start(world, host)
        world.run(world.rng.choice([0, 0, 1_000, 8_000]))
    world.run(world.rng.choice([2_000, 25_000]))
    for _ in range(LENGTH):
        world.rng.choice(DISTURBANCES)(world, world.rng.choice(world.hosts))
        Relay(world, f"new{world.now_ms}", hops=world.rng.random() < 0.5)
        world.run(world.rng.choice([200, 1_000, 3_000, 10_000, 18_000]))
    settle(world)
    world.run(LEASE_MS + 3_000)
    assert {each.boot_id: problems for each in world.instances() if (problems := each.problems)} == {}
    lists = {instance.boot_id: instance.pools for instance in world.instances()}
    assert len(set(lists.values())) == 1, lists
    assert world.must_be_listed()
