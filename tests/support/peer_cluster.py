"""Clusters of the simulation for tests of one failure each."""

from tests.support.peer_instance import LEASE_MS, Instance
from tests.support.peer_world import Host, Relay, World

AT_ONCE_MS = 2_000
ANSWER_MS = 3_000


def cluster(hosts: int = 3, pools: int = 6, *, hops: bool = False, polls: bool = False) -> World:
    """Instances and relays that have run for a while."""
    world = World(1, hosts)
    for host in world.hosts:
        world.start(host, polls=polls)
    for n in range(pools):
        Relay(world, f"p{n}", hops=hops)
    world.run(LEASE_MS + AT_ONCE_MS)
    assert all(each.complete for each in world.instances())
    return world


def instance(host: Host) -> Instance:
    assert host.instance is not None
    return host.instance


def names(each: Instance) -> set[str]:
    return {pool_key.dgd_name for pool_key in each.leases._leases}
