"""A reading: what a store has to say to the roster at one moment.

Every store speaks in readings. The memory store makes one of each registration and one of each tick of its timer; a
store that reads a table makes one of each good read. So all rules of time live in one place, the roster.
"""

import msgspec

from poolmuster.model.change import Deregistration
from poolmuster.model.registration import Registration


class Renewal(msgspec.Struct, frozen=True, gc=False):
    """A registration that is live for ``remaining_ms`` from the start of the reading.

    ``lease_ms`` is its whole lease, the time within which another relay makes a conflict.
    """

    registration: Registration
    lease_ms: int
    remaining_ms: int


class SourceUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What was found by one look that began at ``started_ms`` on the monotonic clock.

    ``credit_ms`` is time before this reading in which the process could not have heard of a renewal; it is added to
    every deadline before the renewals count (rule L5). ``ends_leases`` is whether leases may end by this reading.
    """

    started_ms: int
    credit_ms: int = 0
    renewals: tuple[Renewal, ...] = ()
    deregistrations: tuple[Deregistration, ...] = ()
    expire: bool = True
