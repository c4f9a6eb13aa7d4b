"""Views equal what filtering the whole list would give, however they came to be what they are."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.registration import Pool
from poolmuster.model.selector import EVERYTHING, Selector
from poolmuster.service import views as views_module
from tests.support.registrations import deregistration, registration
from tests.unit.service.parts import Parts

GOLD = Selector(labels=frozenset({("tier", "gold")}))
WEST = Selector(regions=frozenset({"west"}))


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of two and room for two views, so that building, following and dropping happen all the time."""
    monkeypatch.setattr(views_module, "SLICE", 2)
    monkeypatch.setattr(views_module, "VIEWS_LIMIT", 2)


async def change(parts: Parts, op: tuple[str, str, str]) -> None:
    name, tier, region = op
    if tier == "none":
        await parts.store.deregister(deregistration(name))
    else:
        await parts.store.put(registration(name, labels={"tier": tier}, location={"region": region}))


async def check(parts: Parts, selector: Selector) -> None:
    found = await parts.views.pools(selector)
    assert list(found) == [pool for pool in parts.catalog.pools if selector.matches(pool)]


changes = st.tuples(
    st.sampled_from("abcdefgh"), st.sampled_from(["gold", "lead", "none"]), st.sampled_from(["west", "east"])
)
scripts = st.lists(changes | st.sampled_from([GOLD, WEST, EVERYTHING, Selector(models=frozenset({"m"}))]), max_size=60)


@given(scripts, st.sampled_from([1, 2, 5, 1000]))
async def test_following_and_building_equal_filtering(
    script: list[tuple[str, str, str] | Selector], history_changes: int
) -> None:
    parts = Parts(history_changes=history_changes)
    for step in script:
        if isinstance(step, Selector):
            await check(parts, step)
        else:
            await change(parts, step)
    for selector in (GOLD, WEST):
        await check(parts, selector)
    assert len(parts.views) <= 2


@given(st.lists(changes, min_size=5, max_size=30), st.sampled_from([2, 1000]))
async def test_a_list_is_exact_when_it_is_had_though_all_changes_meanwhile(
    script: list[tuple[str, str, str]], history_changes: int
) -> None:
    parts = Parts(history_changes=history_changes)

    async def reader(selector: Selector) -> None:
        for _ in range(5):
            await check(parts, selector)
            await asyncio.sleep(0)

    readers = [asyncio.create_task(reader(selector)) for selector in (GOLD, GOLD, WEST, GOLD, WEST)]
    for op in script:
        await change(parts, op)
        await asyncio.sleep(0)
    await asyncio.gather(*readers)
    assert not parts.views._locks


async def test_two_who_ask_at_once_have_one_view_built(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    for name in "abcdef":
        await change(parts, (name, "gold", "west"))
    looked_at: list[Pool] = []
    matches = Selector.matches

    def counting(self: Selector, pool: Pool) -> bool:
        looked_at.append(pool)
        return matches(self, pool)

    monkeypatch.setattr(Selector, "matches", counting)
    one, other = await asyncio.gather(parts.views.pools(GOLD), parts.views.pools(GOLD))
    assert one is other
    assert len(looked_at) == 6


async def test_everything_is_the_list_itself() -> None:
    parts = Parts()
    assert await parts.views.pools(EVERYTHING) is parts.catalog.pools
    assert len(parts.views) == 0
