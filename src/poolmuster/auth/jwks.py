"""The signing keys of each issuer as they are known now: a file's, or (`poolmuster.auth.jwks_url`) a URL's."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog

from poolmuster.auth.jwk import TOLD_LIMIT, SigningKey, SigningKeys, parse_signing_keys
from poolmuster.platform.files import WatchedFiles
from poolmuster.ports.clock import Clock

log = structlog.get_logger("poolmuster.identity")


def _noop() -> None:
    """Nobody wants to know."""


class KeySet(ABC):
    """The keys of ``issuer``: those of the last good reading, swapped as a whole.

    A reading that fails, or in which there is no key that can be used, leaves them, and ``problem`` says why. So an
    endpoint that is broken locks nobody out; whoever means to trust an issuer no more takes it from the flags, or its
    accounts from the credentials file.

    ``tried`` is set when the first reading has ended, well or not. Whoever waits for it before letting anybody in turns
    nobody away just because it has only begun; it never takes long.

    ``generation`` grows whenever the keys change. ``on_withdrawal`` is called when a key is no longer among them: only
    then can somebody have been let in who must not be now.
    """

    def __init__(self, issuer: str, clock: Clock, on_withdrawal: Callable[[], None] = _noop) -> None:
        self.issuer = issuer
        self.generation = 0
        self.problem: str | None = "they were not fetched yet"
        self.fetched_at_ms: int | None = None
        self.failures = 0
        self.tried = asyncio.Event()
        self._clock = clock
        self._on_withdrawal = on_withdrawal
        self._keys = SigningKeys({})
        self._thumbprints: frozenset[bytes] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether there ever was a good reading."""
        return self.fetched_at_ms is not None

    def __len__(self) -> int:
        return len(self._keys.by_id)

    def key(self, key_id: str) -> SigningKey | None:
        """The key with this id."""
        return self._keys.by_id.get(key_id)

    def holds(self, thumbprint: bytes) -> bool:
        """Whether the key with this SHA-256 (RFC 7638) is one of them."""
        return thumbprint in self._thumbprints

    def request_refresh(self) -> None:
        """A key was asked for that is not there; perhaps it is new. Returns at once."""
        return

    @abstractmethod
    async def run(self) -> None:
        """Keep the keys up to date. Runs until cancelled."""

    def _confirm(self) -> None:
        """A reading has found nothing new."""
        self.fetched_at_ms = self._clock.wall_ms()
        if self.problem is not None and self.generation:
            log.info("The keys of an issuer can be read again", issuer=self.issuer)
        self.problem = None
        self.tried.set()

    def _take(self, keys: SigningKeys) -> None:
        """A reading was good."""
        self._confirm()
        if keys.unusable != self._keys.unusable and keys.unusable:
            why = list(keys.unusable[:TOLD_LIMIT])
            log.warning("Some keys of an issuer are not used", issuer=self.issuer, count=len(keys.unusable), why=why)
        before, after = self._keys.facts, keys.facts
        withdrawn = self._thumbprints
        self._keys = keys
        self._thumbprints = frozenset(key.thumbprint for key in keys.by_id.values())
        if before == after:
            return
        self.generation += 1
        log.info(
            "The keys of an issuer have changed",
            issuer=self.issuer,
            added=_shown(after.keys() - before.keys()),
            removed=_shown(before.keys() - after.keys()),
            replaced=_shown({key_id for key_id in before.keys() & after.keys() if before[key_id] != after[key_id]}),
        )
        if withdrawn - self._thumbprints:
            self._on_withdrawal()

    def _fail(self, problem: str) -> None:
        """A reading was not good."""
        self.failures += 1
        if problem != self.problem:
            log.warning(
                "The keys of an issuer cannot be read",
                issuer=self.issuer,
                why=problem,
                kept=len(self),
            )
        self.problem = problem
        self.tried.set()


class FileKeySet(KeySet):
    """The keys in a file. The first reading is at once, and raises `InvalidInput` where it is not good."""

    def __init__(self, issuer: str, path: str, clock: Clock, on_withdrawal: Callable[[], None] = _noop) -> None:
        super().__init__(issuer, clock, on_withdrawal)
        self._files = WatchedFiles([path], parse_signing_keys)
        self._take(self._files.value)

    async def run(self) -> None:
        """Watch the file."""
        await self._files.watch(self._clock.sleep_ms, self._file_changed)

    def _file_changed(self) -> None:
        if self._files.problem is None:
            self._take(self._files.value)
        else:
            self._fail(self._files.problem)


def _shown(key_ids: set[str]) -> list[str]:
    """Ids as they may stand in a log, whatever their issuer has put into them."""
    return [ascii(key_id[:80])[1:-1] for key_id in sorted(key_ids)]
