"""What a change means to a watcher that looks through a selector.

| listed and selected before | after | the watcher is told |
| --- | --- | --- |
| no | yes | added |
| yes | yes | changed |
| yes | no, as it left the list | removed, with the cause of that |
| yes | no, though it is still listed | removed, cause ``filtered`` |
| no | no | nothing |
"""

import msgspec

from poolmuster.model.change import Change, ChangeKind, Removal, RemovalCause
from poolmuster.model.registration import Pool
from poolmuster.model.selector import Selector


def is_selected(pool: Pool | None, selector: Selector) -> bool:
    """Whether there is a pool and ``selector`` matches it."""
    return pool is not None and selector.matches(pool)


def filter_change(change: Change, selector: Selector) -> Change | None:
    """``change`` as seen through ``selector``; ``None`` where it shows nothing. Completeness concerns everyone."""
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
