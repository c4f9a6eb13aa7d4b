"""Sources, changes and errors: the small values."""

import pytest

from poolmuster.model import errors
from poolmuster.model.change import Change, ChangeKind, PoolChange
from poolmuster.model.errors import FieldError, PoolmusterError
from poolmuster.model.source import SourceInfo, SourceKind, SourceReason, SourceState, is_complete
from tests.support.registrations import pool


def source(state: SourceState, reason: SourceReason | None = None, since_at_ms: int = 1) -> SourceInfo:
    return SourceInfo(kind=SourceKind.MEMORY, name="memory", state=state, reason=reason, since_at_ms=since_at_ms)


@pytest.mark.parametrize(
    ("states", "complete"),
    [
        ([], True),
        ([SourceState.FRESH], True),
        ([SourceState.FRESH, SourceState.FRESH], True),
        ([SourceState.FRESH, SourceState.STALE], False),
        ([SourceState.UNKNOWN], False),
    ],
)
def test_a_list_is_complete_exactly_when_every_source_is_fresh(states: list[SourceState], complete: bool) -> None:
    assert is_complete(tuple(map(source, states))) is complete


def test_a_sources_identity_leaves_out_what_moves_by_itself() -> None:
    one = source(SourceState.STALE, SourceReason.TIMEOUT, since_at_ms=1)
    later = source(SourceState.STALE, SourceReason.TIMEOUT, since_at_ms=2)
    assert one.state_key == later.state_key
    assert one.state_key != source(SourceState.STALE, SourceReason.THROTTLED).state_key
    assert one.state_key != source(SourceState.UNKNOWN, SourceReason.TIMEOUT).state_key


def test_a_change_is_about_the_latest_form_of_its_pool() -> None:
    before, after = pool(weight=1), pool(weight=2)

    def change(**facts: object) -> PoolChange:
        return Change(number=1, kind=ChangeKind.CHANGED, at_ms=1, monotonic_ms=1, **facts)  # type: ignore[arg-type]

    assert change(before=before, after=after).record is after
    assert change(before=before).record is before
    assert change().record is None


def error_types() -> list[type[PoolmusterError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PoolmusterError)]
    return sorted(found, key=lambda each: each.__name__)


@pytest.mark.parametrize("error", error_types())
def test_every_error_has_a_status_a_type_and_a_title_of_its_own(error: type[PoolmusterError]) -> None:
    assert 400 <= error.status <= 599
    assert error.type.startswith("urn:poolmuster:")
    assert error.title[0].isupper()
    assert [each for each in error_types() if each.type == error.type] == [error]


def test_errors_carry_what_their_answers_need() -> None:
    assert str(errors.NotFound("No such pool.")) == errors.NotFound("No such pool.").detail == "No such pool."
    assert errors.InvalidInput("Bad.").field_errors == ()
    assert errors.InvalidInput("Bad.", (FieldError("/a", "b"),)).field_errors == (FieldError("/a", "b"),)
    assert errors.MethodNotAllowed("No.", ("GET",)).allow == ("GET",)
    assert errors.LimitReached("Full.").retry_after_s == 5
    assert errors.Unavailable("Gone.", retry_after_s=3).retry_after_s == 3
