"""What a change means to a watcher with a selector.

| listed and selected before | after | the watcher gets |
| --- | --- | --- |
| no | yes | added |
| yes | yes | changed |
| yes | no, as it left the list | removed, with the cause of that |
| yes | no, though it is still listed | removed, cause ``filtered`` |
| no | no | nothing |
"""

from typing import Protocol, TypeVar

import msgspec

from poolmuster.model.change import Change, ChangeKind, Removal, RemovalCause
from poolmuster.registry.updates import R

R_contra = TypeVar("R_contra", contravariant=True)


class RecordSelector(Protocol[R_contra]):
    """Which records a watcher wants, such as `poolmuster.model.selector.Selector`."""

    @property
    def selects_all(self) -> bool: ...

    def matches(self, record: R_contra, /) -> bool: ...


def is_selected(record: R | None, selector: RecordSelector[R]) -> bool:
    """Whether there is a record and ``selector`` matches it."""
    return record is not None and selector.matches(record)


def filter_change(change: Change[R], selector: RecordSelector[R]) -> Change[R] | None:
    """``change`` as the selector shows it; ``None`` where it shows nothing. Every watcher gets completeness."""
    if change.kind is ChangeKind.COMPLETENESS or selector.selects_all:
        return change
    before, after = is_selected(change.before, selector), is_selected(change.after, selector)
    match before, after:
        case False, False:
            return None
        case True, True:
            return change
        case False, True:
            return msgspec.structs.replace(change, kind=ChangeKind.ADDED, before=None)
        case _:
            removal = change.removal or Removal(cause=RemovalCause.FILTERED, at_ms=change.at_ms)
            return msgspec.structs.replace(change, kind=ChangeKind.REMOVED, after=None, removal=removal)
