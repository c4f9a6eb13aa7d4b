"""The ring of instances and its backoff."""

import random

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.client.follow import Endpoints
from poolmuster.client.settings import ClientSettings


def endpoints(*urls: str, seed: int = 1) -> Endpoints:
    return Endpoints(ClientSettings(urls=urls), random.Random(seed))


@given(st.lists(st.sampled_from(["fail", "work", "503", "advance"])), st.integers(0, 99))
def test_a_wait_is_never_longer_than_the_limit_or_what_was_asked_for(acts: list[str], seed: int) -> None:
    ring = endpoints("http://a", "http://b", "http://c", seed=seed)
    now_ms = 0
    for act in acts:
        wait_ms = ring.choose(now_ms)
        assert 0 <= wait_ms <= 75_000
        now_ms += round(wait_ms)
        if act == "fail":
            ring.failed(now_ms)
        elif act == "503":
            ring.failed(now_ms, 60_000)
        elif act == "work":
            ring.worked()
            assert ring.choose(now_ms) == 0
        else:
            ring.advance()


def test_the_wait_grows_to_its_limit_and_success_forgets() -> None:
    ring = endpoints("http://a")
    waits = []
    for _ in range(10):
        ring.failed(0)
        waits.append(ring.choose(0))
    assert waits[0] <= 250
    assert 5_000 <= waits[-1] <= 10_000
    ring.worked()
    ring.failed(0)
    assert ring.choose(0) <= 250


def test_never_below_what_the_instance_asked_for() -> None:
    ring = endpoints("http://a")
    ring.failed(0, 8_000)
    assert 8_000 <= ring.choose(0) <= 10_000


def test_the_next_one_is_tried_at_once() -> None:
    ring = endpoints("http://a", "http://b")
    ring.failed(0)
    assert (ring.choose(0), ring.url) == (0, "http://b")
    ring.failed(0, 60_000)
    assert 0 < ring.choose(0) <= 250
    assert ring.url == "http://a"
