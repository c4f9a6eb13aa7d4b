"""A file that is read again while the program runs."""

import os
import stat
from collections.abc import Callable
from typing import Generic, TypeVar

from poolmuster.model.errors import InvalidInput

FILE_LIMIT_BYTES = 1024 * 1024

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The parsed content of a small file, as of its last good reading.

    The bytes are compared, not the times of change: Kubernetes swaps the links to its volumes, and a file system may
    be too coarse. ``parse`` raises `InvalidInput`; a reading that fails leaves the last good value and says why in
    ``problem``. Without a path the value is the initial one for ever.
    """

    def __init__(self, path: str | None, parse: Callable[[bytes], T], initial: T) -> None:
        self.path = path
        self.value = initial
        self.problem: str | None = None
        self._parse = parse
        self._content: bytes | None = None

    def refresh(self) -> bool:
        """Read the file. Returns whether the value, or the problem with it, changed."""
        if self.path is None:
            return False
        before = self.problem
        try:
            content = self._read(self.path)
            if content == self._content:
                self.problem = None
                return before is not None
            self.value, self._content, self.problem = self._parse(content), content, None
        except InvalidInput as error:
            faults = "".join(f" {fault.pointer}: {fault.detail}." for fault in error.faults)
            self.problem = f"{self.path}: {error.detail}{faults}"
            return self.problem != before
        return True

    def _read(self, path: str) -> bytes:
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
    """A pipe without a writer would hold up everything, SIGTERM included."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_token(content: bytes) -> str:
    """A bearer token alone in its file. Raises `InvalidInput`, which never shows it."""
    token = content.strip()
    if not token or any(not 0x21 <= byte <= 0x7E for byte in token):
        raise InvalidInput("holds no token: one line of visible ASCII characters is wanted")
    return token.decode("ascii")
