"""Files that are read again while the program runs."""

import os
import stat
from collections.abc import Callable, Sequence
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
            content = read_small_file(self.path)
            if content == self._content:
                self.problem = None
                return before is not None
            self.value, self._content, self.problem = self._parse(content), content, None
        except InvalidInput as error:
            self.problem = f"{self.path}: {error.line}"
            return self.problem != before
        return True


class WatchedFiles(Generic[T]):
    """What several small files mean together, such as a certificate and its key, as of their last good reading.

    New contents are taken when two readings in a row agree, so that a file which is being written in place, or a pair
    of which one was replaced already, is never taken half. Contents that cannot be used leave the last good value and
    say why in ``problem``. ``parse`` gets the contents in the order of ``paths`` and raises `InvalidInput`.
    """

    def __init__(self, paths: Sequence[str], parse: Callable[..., T]) -> None:
        self.paths = tuple(paths)
        self.problem: str | None = None
        self._parse = parse
        self._seen: tuple[bytes, ...] | str | None = None
        self._accepted: tuple[bytes, ...] | str | None = None
        self.value = self._load()

    @property
    def has_unconfirmed_change(self) -> bool:
        """Whether the latest reading brought what no other has confirmed yet."""
        return self._seen != self._accepted

    def _load(self) -> T:
        """The first reading, which is taken at once. Raises `InvalidInput`, which names the file."""
        self._seen = self._accepted = found = self._read()
        return self._parsed(found)

    def refresh(self) -> bool:
        """Read the files, and block for as long as that takes. Returns whether the value, or its problem, changed."""
        found = self._read()
        settled, self._seen = found == self._seen, found
        if not settled or found == self._accepted:
            return False
        self._accepted = found
        before = self.problem
        try:
            self.value, self.problem = self._parsed(found), None
        except InvalidInput as error:
            self.problem = error.detail
            return self.problem != before
        return True

    def _read(self) -> tuple[bytes, ...] | str:
        """The contents, or why there are none."""
        contents: list[bytes] = []
        for path in self.paths:
            try:
                contents.append(read_small_file(path))
            except InvalidInput as error:
                return f"{path}: {error.detail}"
        return tuple(contents)

    def _parsed(self, found: tuple[bytes, ...] | str) -> T:
        if isinstance(found, str):
            raise InvalidInput(found)
        paths = ", ".join(self.paths)
        try:
            return self._parse(*found)
        except InvalidInput as error:
            raise InvalidInput(f"{paths}: {error.line}") from error
        except Exception as error:
            # What libraries raise for a damaged file is not a closed set, and none of it may end the program.
            raise InvalidInput(f"{paths}: cannot be used ({type(error).__name__})") from error


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
    """A pipe without a writer would hold up everything, SIGTERM included."""
    return os.open(path, flags | os.O_NONBLOCK)


def parse_token(content: bytes) -> str:
    """A bearer token alone in its file. Raises `InvalidInput`, which never shows it."""
    token = content.strip()
    if not token or any(not 0x21 <= byte <= 0x7E for byte in token) or token[:1] in b"\"'":
        raise InvalidInput("holds no token: one line of visible ASCII characters is wanted, without quotes")
    return token.decode("ascii")
