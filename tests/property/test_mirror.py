"""C23 and the usable set: whatever a service tells, and however the watch is cut, the mirror equals its list."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.client.events import CompletenessChanged, Event, Removed, Upserted, WatchSnapshot
from poolmuster.client.mirror import Mirror
from poolmuster.client.responses import Document
from poolmuster.model.key import PoolKey
from poolmuster.model.strict_json import canonical

HOUR_MS = 3_600_000
KEYS = [PoolKey("c", "n", name) for name in "abcd"]

steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(0, 2)),
    st.tuples(st.just("drop"), st.sampled_from(KEYS), st.just(0)),
    st.tuples(st.just("complete"), st.none(), st.integers(0, 1)),
    st.tuples(st.just("snapshot"), st.none(), st.just(0)),
    st.tuples(st.just("restart"), st.none(), st.just(0)),
    st.tuples(st.just("wait"), st.none(), st.integers(0, 3)),
)


def document(key: PoolKey, weight: int) -> Document:
    return {"cluster_id": key.cluster_id, "namespace": key.namespace, "dgd_name": key.dgd_name, "weight": weight}


class Service:
    """The list, whether it is complete, and, for the usable set, what a client must still count on."""

    def __init__(self, mirror: Mirror) -> None:
        self.pools: dict[PoolKey, Document] = {}
        self.complete = True
        self.unconfirmed: dict[PoolKey, int] = {}
        self.mirror = mirror
        self.now_ms = 0
        self.snapshot()

    def tell(self, event: Event) -> None:
        self.mirror.apply(event, self.now_ms)

    def put(self, key: PoolKey, weight: int) -> None:
        self.pools[key] = document(key, weight)
        self.unconfirmed.pop(key, None)
        kind = "changed" if key in self.pools else "added"
        self.tell(Upserted(type=kind, id=None, revision=None, document={}, key=key, pool=self.pools[key]))

    def drop(self, key: PoolKey) -> None:
        self.pools.pop(key, None)
        self.unconfirmed.pop(key, None)
        self.tell(Removed(type="removed", id=None, revision=None, document={}, key=key, cause="expired", reason=None))

    def set_complete(self, complete: bool) -> None:
        self.complete = complete
        if complete:
            self.unconfirmed.clear()
        self.tell(CompletenessChanged(type="", id=None, revision=None, document={}, complete=complete, sources=()))

    def restart(self) -> None:
        """It has forgotten every pool, and knows that it has."""
        for key in self.pools:
            self.unconfirmed[key] = self.now_ms
        self.pools.clear()
        self.complete = False
        self.snapshot()

    def snapshot(self) -> None:
        if self.complete:
            self.unconfirmed.clear()
        pools = dict(sorted(self.pools.items()))
        self.tell(
            WatchSnapshot(type="", id=None, revision=None, document={}, pools=pools, complete=self.complete, sources=())
        )

    def wait(self, quarters: int) -> None:
        self.now_ms += quarters * HOUR_MS // 4
        self.unconfirmed = {key: at for key, at in self.unconfirmed.items() if self.now_ms - at < HOUR_MS}
        self.mirror.expire(self.now_ms)


@given(st.lists(steps, max_size=40))
def test_the_mirror_equals_the_list_and_the_usable_set_lacks_nothing_that_may_live(
    script: list[tuple[str, PoolKey | None, int]],
) -> None:
    mirror = Mirror(HOUR_MS)
    service = Service(mirror)
    for name, key, number in script:
        match name, key:
            case "put", PoolKey():
                service.put(key, number)
            case "drop", PoolKey():
                service.drop(key)
            case "complete", _:
                service.set_complete(bool(number))
            case "snapshot", _:
                service.snapshot()
            case "restart", _:
                service.restart()
            case _:
                service.wait(number)
        listed = dict(sorted(service.pools.items()))
        assert list(mirror.pools.items()) == list(listed.items())
        assert mirror.pools_json == canonical(list(listed.values()))
        assert mirror.complete == service.complete
        expected = dict.fromkeys(listed, True) | dict.fromkeys(service.unconfirmed, False)
        assert {key: each.confirmed for key, each in mirror.usable.items()} == expected
        assert list(mirror.usable) == sorted(expected)
