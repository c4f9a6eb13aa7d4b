"""When to send what to discovery: a state machine without a clock, a socket or random numbers of its own.

Rules:

1.  A heartbeat follows the start of the last good one after the interval that the service asked for, less a random
    part of up to a tenth, and at once when the facts changed. Half of the lease takes the place of an interval that is
    longer, since rule 3 could not hold otherwise.
2.  An attempt has a fifth of the lease, 3 s at most. A failed one goes on to the next URL at once; after all have
    failed in turn there is a pause, a twentieth of the lease at first and doubling up to the interval.
3.  One lost heartbeat never costs the lease: half + attempt + first pause + attempt is less than a lease. No pause,
    whatever asked for it, outlasts the interval, or the lease where the next attempt could still save it.
4.  ``409`` means that this ``relay_id`` was deregistered: a new one is sent at once, but only once in a row.
5.  Any other refusal (``4xx``) is tried again at the next heartbeat, at the next URL.
6.  A pool that may be listed is deregistered when its server is down, until that is done or the lease has surely
    ended. After that the relay takes a new ``relay_id``.
7.  A relay that stops leaves the pool to another that registers it in turn, if there is one: to take it off the list
    would show watchers a gap until the other's next heartbeat.
8.  After a relay has begun to stop, probes of the server change nothing.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from poolmuster.model.change import DeregistrationReason

ATTEMPT_LIMIT_MS = 3_000
JITTER = 0.1
LONGEST_LEASE_MS = 86_400_000


class Terms(msgspec.Struct, frozen=True):
    """The lease and the interval by the last response; before the first one, the service's defaults."""

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
    """The terms of a response within bounds, so that none makes the relay spin or sleep for ever."""
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
    """Deregister the pool that ``relay_id`` registered, at URL number ``url``, within ``timeout_ms``."""

    url: int
    relay_id: str
    request: DeregisterRequest
    timeout_ms: int


class Wait(msgspec.Struct, frozen=True):
    """Nothing to send before ``until_ms``; with ``None``, before the next call of another method."""

    until_ms: int | None


Step = Register | Deregister | Wait


class HeartbeatAccepted(msgspec.Struct, frozen=True):
    """The registration was accepted. ``created``: the pool was not listed before."""

    terms: Terms
    created: bool = False
    conflict: bool = False


class HeartbeatGone(msgspec.Struct, frozen=True):
    """The deregistration was accepted."""


class Superseded(msgspec.Struct, frozen=True):
    """``409``: this ``relay_id`` was deregistered."""

    detail: str


class HeartbeatRefused(msgspec.Struct, frozen=True):
    """The service understood the request and refused it; another attempt soon would not help."""

    status: int
    detail: str


class HeartbeatFailed(msgspec.Struct, frozen=True):
    """No useful answer. The request may have taken effect all the same."""

    detail: str
    retry_after_ms: int | None = None


Outcome = HeartbeatAccepted | HeartbeatGone | Superseded | HeartbeatRefused | HeartbeatFailed


class Phase(StrEnum):
    """The state of a pool between its server and discovery."""

    WAITING = "waiting"
    JOINING = "joining"
    REGISTERED = "registered"
    LEAVING = "leaving"


class Heartbeat:
    """The state of one pool towards discovery. Do the step that `next` returns, and give its outcome to `ended`.

    All times are milliseconds of one monotonic clock. ``new_id`` makes relay ids, ``rng`` draws from [0, 1).
    """

    def __init__(self, urls: int, *, new_id: Callable[[], str], rng: Callable[[], float]) -> None:
        self._urls = urls
        self._new_id = new_id
        self._rng = rng
        self.terms = Terms()
        self.relay_id = new_id()
        self.url = 0
        self.problem: HeartbeatRefused | HeartbeatFailed | None = None
        """The failure of the last attempt; ``None`` while there is nothing to attempt."""
        self.failed_rounds = 0
        self.listed_until_ms: int | None = None
        """Until when the pool is surely listed, as far as a relay can know."""
        self._maybe_listed_until_ms: int | None = None
        """Until when it may be listed: an attempt without a response may have taken effect."""
        self._conflict_until_ms: int | None = None
        self._facts: bytes | None = None
        self._request: DeregisterRequest | None = None
        self._ending = False
        self._due_ms: int | None = None
        self._tried = 0
        self._superseded = False
        self._step: Register | Deregister | None = None
        self._started_ms = 0

    def phase(self, now_ms: int) -> Phase:
        if self._request is not None:
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
        """The server is up: keep ``facts`` registered."""
        if self._ending:
            return
        if self._request is not None:
            self._request = None
            self.relay_id = self._new_id()
            self._due_ms = now_ms
        elif self._facts is None or (facts != self._facts and not self._is_failing):
            self._due_ms = now_ms
        self._facts = facts

    def withdraw(self, now_ms: int, request: DeregisterRequest) -> None:
        """The server is down: take the pool off the list."""
        if self._ending:
            return
        self._facts = None
        if self._request is None:
            self._begin_deregistering(now_ms, request)

    def leave(self, now_ms: int) -> None:
        """The relay stops: take the pool off the list, unless another relay registers it too. This is final."""
        self._facts, self._ending = None, True
        self.failed_rounds = 0  # a relay that stops has no time for long pauses
        if self.conflict(now_ms):
            self.forget()
        elif self._request is None:
            self._begin_deregistering(now_ms, DeregisterRequest(DeregistrationReason.RELAY_STOPPING))
        else:
            self._send_now(now_ms)

    def forget(self) -> None:
        """Send nothing more: a listed pool stays until its lease ends, or another relay renews it. This is final."""
        self._facts = self._request = None
        self._ending = True

    def next(self, now_ms: int) -> Step:
        """The step to do now. After one other than `Wait`, `ended` has to come before the next call."""
        if self._request is not None and not self._maybe_listed(now_ms):
            self._reset()
        if self._request is None and self._facts is None:
            return Wait(None)
        if self._due_ms is not None and now_ms < self._due_ms:
            return Wait(self._due_ms)
        self._started_ms = now_ms
        if self._request is not None:
            self._step = Deregister(self.url, self.relay_id, self._request, self.terms.attempt_ms)
        else:
            assert self._facts is not None
            self._step = Register(self.url, self.relay_id, self._facts, self.terms.attempt_ms)
        return self._step

    def ended(self, now_ms: int, outcome: Outcome) -> None:
        """Record the outcome of the last step."""
        step, self._step = self._step, None
        if isinstance(step, Register) and not isinstance(outcome, (HeartbeatRefused, Superseded)):
            self._maybe_listed_until_ms = now_ms + self.terms.lease_ms
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
        if isinstance(step, Register) and self._request is not None:
            self._send_now(now_ms)

    @property
    def _is_failing(self) -> bool:
        return isinstance(self.problem, HeartbeatFailed)

    def _maybe_listed(self, now_ms: int) -> bool:
        return self._maybe_listed_until_ms is not None and now_ms < self._maybe_listed_until_ms

    def _begin_deregistering(self, now_ms: int, request: DeregisterRequest) -> None:
        if self._step is not None or self._maybe_listed(now_ms):
            self._request = request
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
        self._request = self.problem = None
        self.listed_until_ms = self._maybe_listed_until_ms = self._conflict_until_ms = None
        self.relay_id = self._new_id()

    def _renewed(self, now_ms: int, outcome: HeartbeatAccepted, step: Register | Deregister | None) -> None:
        self._clear_errors()
        self.terms = outcome.terms
        self.listed_until_ms = self._started_ms + self.terms.lease_ms
        self._maybe_listed_until_ms = now_ms + self.terms.lease_ms
        self._conflict_until_ms = self.listed_until_ms if outcome.conflict else None
        if self._ending and outcome.conflict:
            self.forget()
        if isinstance(step, Register) and step.facts != self._facts:
            self._due_ms = now_ms
        else:
            self._due_ms = self._started_ms + int(self.terms.spacing_ms * (1 - JITTER * self._rng()))

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
        backoff = self.terms.retry_ms * 2 ** min(self.failed_rounds - 1, 10) * (0.5 + self._rng() / 2)
        self._due_ms = now_ms + self._pause(now_ms, max(backoff, outcome.retry_after_ms or 0))

    def _pause(self, now_ms: int, wish_ms: float) -> int:
        """``wish_ms``, within the interval, and within the lease as long as another attempt can save it."""
        pause_ms = int(min(wish_ms, self.terms.interval_ms))
        if self.listed_until_ms is None:
            return pause_ms
        margin_ms = self.terms.lease_ms // 20
        spare_ms = self.listed_until_ms - now_ms - self.terms.attempt_ms - margin_ms
        return min(pause_ms, max(spare_ms, self.terms.retry_ms)) if spare_ms > -margin_ms else pause_ms
