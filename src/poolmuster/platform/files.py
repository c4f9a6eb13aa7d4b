"""Small files that are read again while the program runs.

The bytes are compared, not the times of change: Kubernetes swaps the links to its volumes, and the timestamps of a file
system may be too coarse.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from poolmuster.model.errors import InvalidInput
from poolmuster.platform.threads import run_in_daemon_thread

FILE_LIMIT_BYTES = 1024 * 1024
WATCH_INTERVAL_MS = 250
"""A change counts when two reads agree, so within half a second."""

STALL_LIMIT_S = 2.0
"""A read that takes longer is a problem of the files: a change could not be noticed meanwhile."""

T = TypeVar("T")


class _ParsedFiles(Generic[T]):
    """``value`` is the parsed content of ``paths``, as of the last good read.

    ``parse`` gets the contents in the order of ``paths`` and raises `InvalidInput`.
    """

    value: T

    def __init__(self, paths: Sequence[str], parse: Callable[..., T]) -> None:
        self.paths = tuple(paths)
        self._parse = parse
        self._problem: str | None = None
        self._stalled = False
        self._used: tuple[bytes, ...] | str | None = None

    @property
    def problem(self) -> str | None:
        """Why the files cannot be used as they are now, which leaves the last good value."""
        return f"{', '.join(self.paths)}: a read does not end" if self._stalled else self._problem

    def _read(self) -> tuple[bytes, ...] | str:
        """The contents, or why there are none."""
        contents: list[bytes] = []
        for path in self.paths:
            try:
                contents.append(read_small_file(path))
            except InvalidInput as error:
                return f"{path}: {error.detail}"
        return tuple(contents)

    def _use(self, read: tuple[bytes, ...] | str) -> bool:
        """Parse what was read, if it differs. Returns whether the value, or the problem, changed."""
        if read == self._used:
            return False
        before, self._used = self._problem, read
        if isinstance(read, str):
            self._problem = read
            return read != before
        try:
            self.value, self._problem = self._parse(*read), None
        except InvalidInput as error:
            self._problem = f"{', '.join(self.paths)}: {error.line}"
        except Exception as error:  # noqa: BLE001  # the errors that libraries raise for a damaged file are no closed set
            self._problem = f"{', '.join(self.paths)}: cannot be used ({type(error).__name__})"
        return self._problem is None or self._problem != before


class WatchedFile(_ParsedFiles[T]):
    """One file that may be missing or bad at first: until the first good read the value is ``initial``.

    Without a path it is ``initial`` forever. A change counts at once.
    """

    def __init__(self, path: str | None, parse: Callable[[bytes], T], initial: T) -> None:
        super().__init__(() if path is None else (path,), parse)
        self.path = path
        self.value = initial

    def refresh(self) -> bool:
        """Read the file. Returns whether the value, or the problem, changed."""
        return self.path is not None and self._use(self._read())


class WatchedFiles(_ParsedFiles[T]):
    """Files that belong together, such as a certificate and its key, all good at first: raises `InvalidInput` else.

    A change counts when two reads in a row agree, so that neither a file that is being written in place nor a pair of
    which one was replaced already is used half.
    """

    def __init__(self, paths: Sequence[str], parse: Callable[..., T]) -> None:
        super().__init__(paths, parse)
        self._last_read = self._read()
        self._use(self._last_read)
        if self.problem is not None:
            raise InvalidInput(self.problem)

    @property
    def has_unconfirmed_change(self) -> bool:
        """Whether the last read found a change that no other read has confirmed yet."""
        return self._last_read != self._used

    def refresh(self) -> bool:
        """Read the files, which blocks. Returns whether the value, or the problem, changed."""
        before, self._last_read = self._last_read, self._read()
        return self._last_read == before and self._use(self._last_read)

    async def watch(self, sleep_ms: Callable[[float], Awaitable[None]], changed: Callable[[], None]) -> None:
        """Refresh them in a thread, four times a second, and call ``changed`` after each change. Runs until cancelled.

        A read that does not end within `STALL_LIMIT_S` is a ``problem`` until it ends.
        """
        while True:
            await sleep_ms(WATCH_INTERVAL_MS)
            reading = asyncio.ensure_future(run_in_daemon_thread("watched-files", self.refresh))
            try:
                await asyncio.wait([reading], timeout=STALL_LIMIT_S)
                self._stalled = not reading.done()
                if self._stalled:
                    changed()
                is_new = await reading
            finally:
                reading.cancel()
            was_stalled, self._stalled = self._stalled, False
            if is_new or was_stalled:
                changed()


def read_small_file(path: str) -> bytes:
    """The content of a regular file of at most `FILE_LIMIT_BYTES`. Raises `InvalidInput`, which does not name it."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:  # a Path takes no opener
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput("is no regular file")
            content = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}") from error
    if len(content) > FILE_LIMIT_BYTES:
        raise InvalidInput(f"is over {FILE_LIMIT_BYTES} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe without a writer would block everything, SIGTERM included."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_token(content: bytes) -> str:
    """A bearer token alone in its file. Raises `InvalidInput`, which never shows it."""
    token = content.strip()
    if not token or any(not 0x21 <= byte <= 0x7E for byte in token) or token[:1] in b"\"'":
        raise InvalidInput("holds no token: one line of visible ASCII characters is expected, without quotes")
    return token.decode("ascii")
