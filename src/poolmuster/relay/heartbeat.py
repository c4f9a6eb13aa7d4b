"""When to send what to discovery: a state machine without clock, socket or chance of its own.

Rules:

1.  A heartbeat follows the start of the last good one after the interval that the service told, less up to a tenth of
    it by chance, and at once when the facts changed. Where that interval is over half of the lease, half of the lease
    is taken instead, since rule 3 could not hold otherwise.
2.  An attempt has a fifth of the lease, 3 s at most. A failed one goes on to the next URL at once; after all have
    failed in turn there is a pause, a twentieth of the lease at first and doubling up to the interval.
3.  One lost heartbeat never costs the lease: half + attempt + first pause + attempt is less than a lease. No pause,
    whatever asked for it, outlasts the interval, or the lease where the next attempt could still save it.
4.  ``409`` means that this ``relay_id`` has left: a new one is sent at once, but only once in a row.
5.  Any other refusal (``4xx``) is tried again at the next heartbeat, at the next URL.
6.  Whoever may be listed deregisters when the server is down, until that is done or the lease has surely ended. After
    that the relay bears a new ``relay_id``.
7.  A relay that stops leaves the pool to another that registers it in turn, if there is one: to take it off the list
    would show watchers a gap until the other's next heartbeat.
8.  A relay that stops wants nothing any more: whatever is still said of the server changes nothing.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from poolmuster.model.change import DeregistrationReason

ATTEMPT_LIMIT_MS = 3_000
JITTER = 0.1
LONGEST_LEASE_MS = 86_400_000


class Terms(msgspec.Struct, frozen=True):
    """What the service told of leases; its defaults, until it has spoken."""

    lease_ms: int = 15_000
    interval_ms: int = 5_000

    @property
    def attempt_ms(self) -> int:
        """How long one attempt may take."""
        return min(self.lease_ms // 5, ATTEMPT_LIMIT_MS)

    @property
    def spacing_ms(self) -> int:
        """The time between two heartbeats when all goes well."""
        return min(self.interval_ms, self.lease_ms // 2)

    @property
    def retry_ms(self) -> int:
        """The first pause after every URL has failed."""
        return min(self.interval_ms, self.lease_ms // 20)


def terms_of(lease_ms: int, interval_ms: int) -> Terms:
    """Terms as told, within reason: no answer makes the relay spin, or sleep for ever."""
    lease = min(max(lease_ms, 1_000), LONGEST_LEASE_MS)
    return Terms(lease, min(max(interval_ms, 100), lease))


class DeregisterRequest(msgspec.Struct, frozen=True):
    """Why the pool is to leave the list."""

    reason: DeregistrationReason
    detail: str | None = None


class Register(msgspec.Struct, frozen=True):
    """Send the facts, with ``relay_id``, to URL number ``url``, within ``timeout_ms``."""

    url: int
    relay_id: str
    facts: bytes
    timeout_ms: int


class Deregister(msgspec.Struct, frozen=True):
    """Take back what ``relay_id`` registered, at URL number ``url``, within ``timeout_ms``."""

    url: int
    relay_id: str
    departing: DeregisterRequest
    timeout_ms: int


class Wait(msgspec.Struct, frozen=True):
    """Nothing to send before ``until_ms``; with ``None``, before something happens."""

    until_ms: int | None


Step = Register | Deregister | Wait


class HeartbeatAccepted(msgspec.Struct, frozen=True):
    """The registration was taken. ``created``: the pool was not in the list before."""

    terms: Terms
    created: bool = False
    conflict: bool = False


class HeartbeatGone(msgspec.Struct, frozen=True):
    """The deregistration was taken."""


class Superseded(msgspec.Struct, frozen=True):
    """``409``: this ``relay_id`` has left."""

    detail: str


class HeartbeatRefused(msgspec.Struct, frozen=True):
    """The service understood and said no; asking again soon would not help."""

    status: int
    detail: str


class HeartbeatFailed(msgspec.Struct, frozen=True):
    """No useful answer. The request may have taken effect all the same."""

    detail: str
    retry_after_ms: int | None = None


Outcome = HeartbeatAccepted | HeartbeatGone | Superseded | HeartbeatRefused | HeartbeatFailed


class Phase(StrEnum):
    """Where a pool stands between its server and discovery."""

    WAITING = "waiting"
    JOINING = "joining"
    REGISTERED = "registered"
    LEAVING = "leaving"


class Heartbeat:
    """The state of one pool towards discovery. Ask `next` for the step, do it, tell `ended` what came of it.

    All times are milliseconds of one monotonic clock. ``new_id`` makes relay ids, ``draw`` numbers in [0, 1).
    """

    def __init__(self, urls: int, *, new_id: Callable[[], str], draw: Callable[[], float]) -> None:
        self._urls = urls
        self._new_id = new_id
        self._draw = draw
        self.terms = Terms()
        self.relay_id = new_id()
        self.url = 0
        self.problem: HeartbeatRefused | HeartbeatFailed | None = None
        """What the last attempt met with; nothing while there is nothing to attempt."""
        self.failed_rounds = 0
        self.listed_until_ms: int | None = None
        """Until when the pool is surely listed, as far as a relay can know."""
        self._claimed_until_ms: int | None = None
        """Until when it may be listed: also an attempt without an answer may have been heard."""
        self._conflict_until_ms: int | None = None
        self._facts: bytes | None = None
        self._departing: DeregisterRequest | None = None
        self._ending = False
        self._due_ms: int | None = None
        self._tried = 0
        self._superseded = False
        self._step: Register | Deregister | None = None
        self._started_ms = 0

    def phase(self, now_ms: int) -> Phase:
        if self._departing is not None:
            return Phase.LEAVING
        if self._facts is None:
            return Phase.WAITING
        return Phase.REGISTERED if self.listed(now_ms) else Phase.JOINING

    def listed(self, now_ms: int) -> bool:
        """Whether the last good heartbeat's lease still runs."""
        return self.listed_until_ms is not None and now_ms < self.listed_until_ms

    def conflict(self, now_ms: int) -> bool:
        """Whether another relay registered the pool in turn with this one within the last lease."""
        return self._conflict_until_ms is not None and now_ms < self._conflict_until_ms

    def set_document(self, now_ms: int, facts: bytes) -> None:
        """The server is up and serves: keep ``facts`` registered."""
        if self._ending:
            return
        if self._departing is not None:
            self._departing = None
            self.relay_id = self._new_id()
            self._due_ms = now_ms
        elif self._facts is None or (facts != self._facts and not self._is_failing):
            self._due_ms = now_ms
        self._facts = facts

    def withdraw(self, now_ms: int, departing: DeregisterRequest) -> None:
        """The server is down: see that the pool is not listed."""
        if self._ending:
            return
        self._facts = None
        if self._departing is None:
            self._depart(now_ms, departing)

    def leave(self, now_ms: int) -> None:
        """The relay stops: see that the pool is not listed, unless another relay registers it too. This is final."""
        self._facts, self._ending = None, True
        self.failed_rounds = 0  # long pauses are for a relay that has time
        if self.conflict(now_ms):
            self.forget()
        elif self._departing is None:
            self._depart(now_ms, DeregisterRequest(DeregistrationReason.RELAY_STOPPING))
        else:
            self._send_now(now_ms)

    def forget(self) -> None:
        """Send nothing more, and leave what is listed to its lease or to another relay. This is final."""
        self._facts = self._departing = None
        self._ending = True

    def next(self, now_ms: int) -> Step:
        """What to do now. A step other than `Wait` is to be answered by `ended` before the next call."""
        if self._departing is not None and not self._maybe_listed(now_ms):
            self._reset()
        if self._departing is None and self._facts is None:
            return Wait(None)
        if self._due_ms is not None and now_ms < self._due_ms:
            return Wait(self._due_ms)
        self._started_ms = now_ms
        if self._departing is not None:
            self._step = Deregister(self.url, self.relay_id, self._departing, self.terms.attempt_ms)
        else:
            assert self._facts is not None
            self._step = Register(self.url, self.relay_id, self._facts, self.terms.attempt_ms)
        return self._step

    def ended(self, now_ms: int, outcome: Outcome) -> None:
        """What came of the step last given out."""
        step, self._step = self._step, None
        if isinstance(step, Register) and not isinstance(outcome, (HeartbeatRefused, Superseded)):
            self._claimed_until_ms = now_ms + self.terms.lease_ms
        match outcome:
            case HeartbeatAccepted():
                self._renewed(now_ms, outcome, step)
            case HeartbeatGone():
                self._clear_errors()
                self._reset()
            case Superseded() if isinstance(step, Register) and not self._superseded:
                self.relay_id = self._new_id()
                self._superseded = True
                self._due_ms = now_ms
            case Superseded():
                if isinstance(step, Register):
                    self.relay_id = self._new_id()
                self._refused(now_ms, HeartbeatRefused(409, outcome.detail))
            case HeartbeatRefused():
                self._refused(now_ms, outcome)
            case HeartbeatFailed():
                self._failed(now_ms, outcome)
        if isinstance(step, Register) and self._departing is not None:
            self._send_now(now_ms)

    @property
    def _is_failing(self) -> bool:
        return isinstance(self.problem, HeartbeatFailed)

    def _maybe_listed(self, now_ms: int) -> bool:
        return self._claimed_until_ms is not None and now_ms < self._claimed_until_ms

    def _depart(self, now_ms: int, departing: DeregisterRequest) -> None:
        if self._step is not None or self._maybe_listed(now_ms):
            self._departing = departing
            self._send_now(now_ms)
        else:
            self.problem = None

    def _send_now(self, now_ms: int) -> None:
        self._due_ms, self._tried = now_ms, 0

    def _clear_errors(self) -> None:
        self.problem = None
        self.failed_rounds = self._tried = 0
        self._superseded = False

    def _reset(self) -> None:
        self._departing = self.problem = None
        self.listed_until_ms = self._claimed_until_ms = self._conflict_until_ms = None
        self.relay_id = self._new_id()

    def _renewed(self, now_ms: int, outcome: HeartbeatAccepted, step: Register | Deregister | None) -> None:
        self._clear_errors()
        self.terms = outcome.terms
        self.listed_until_ms = self._started_ms + self.terms.lease_ms
        self._claimed_until_ms = now_ms + self.terms.lease_ms
        self._conflict_until_ms = self.listed_until_ms if outcome.conflict else None
        if self._ending and outcome.conflict:
            self.forget()
        if isinstance(step, Register) and step.facts != self._facts:
            self._due_ms = now_ms
        else:
            self._due_ms = self._started_ms + int(self.terms.spacing_ms * (1 - JITTER * self._draw()))

    def _refused(self, now_ms: int, outcome: HeartbeatRefused) -> None:
        self.problem = outcome
        self._superseded = False
        self._tried = 0
        self.url = (self.url + 1) % self._urls
        self._due_ms = now_ms + self._pause(now_ms, self.terms.spacing_ms)

    def _failed(self, now_ms: int, outcome: HeartbeatFailed) -> None:
        self.problem = outcome
        self.url = (self.url + 1) % self._urls
        self._tried += 1
        if self._tried < self._urls:
            self._due_ms = now_ms
            return
        self._tried = 0
        self.failed_rounds += 1
        backoff = self.terms.retry_ms * 2 ** min(self.failed_rounds - 1, 10) * (0.5 + self._draw() / 2)
        self._due_ms = now_ms + self._pause(now_ms, max(backoff, outcome.retry_after_ms or 0))

    def _pause(self, now_ms: int, wish_ms: float) -> int:
        """``wish_ms``, within the interval, and within the lease as long as another attempt can save it."""
        pause_ms = int(min(wish_ms, self.terms.interval_ms))
        if self.listed_until_ms is None:
            return pause_ms
        margin_ms = self.terms.lease_ms // 20
        spare_ms = self.listed_until_ms - now_ms - self.terms.attempt_ms - margin_ms
        return min(pause_ms, max(spare_ms, self.terms.retry_ms)) if spare_ms > -margin_ms else pause_ms
