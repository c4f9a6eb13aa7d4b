r"""The files of one pool, read again while the relay runs: labels, a token, certificate authorities.

Labels stand as the Kubernetes downward API writes them, one ``name="value"`` a line, with the value quoted as Go's
``%q`` does it: ``\n``, ``\"``, ``\x1b``, ``\u00e9``, ``\U0001f600``. Labels by which Kubernetes tells the pods of a
workload apart are left out: they are no facts of the pool, and each rolling update would be a change to watchers.
"""

import re
import ssl

from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFile, parse_token
from poolmuster.platform.tls_client import empty_context, parse_authorities
from poolmuster.relay.settings import PoolSettings


class PoolFiles:
    """The labels, the token and the certificate authorities of one pool, each as of its last good read.

    A file of authorities that was never read well makes an empty context, which trusts no server.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._labels = WatchedFile[dict[str, str]](None, parse_labels, {})
        self._token = WatchedFile[str | None](None, parse_token, None)
        self._tls = WatchedFile[ssl.SSLContext | None](None, parse_authorities, None)
        self.adopt(settings)

    def adopt(self, settings: PoolSettings) -> None:
        """Change to the files that ``settings`` name. A file named before keeps its last good content."""
        if self._labels.path != settings.labels_file:
            self._labels = WatchedFile(settings.labels_file, parse_labels, {})
        if self._token.path != settings.token_file:
            self._token = WatchedFile(settings.token_file, parse_token, None)
        if self._tls.path != settings.ca_cert:
            initial = None if settings.ca_cert is None else empty_context()
            self._tls = WatchedFile(settings.ca_cert, parse_authorities, initial)

    @property
    def labels(self) -> dict[str, str]:
        return self._labels.value

    @property
    def token(self) -> str | None:
        return self._token.value

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._tls.value

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files now."""
        return tuple(each.problem for each in (self._labels, self._token, self._tls) if each.problem is not None)

    def refresh(self) -> bool:
        """Read them. Returns whether a value, or a problem, changed."""
        changed = [each.refresh() for each in (self._labels, self._token, self._tls)]
        return any(changed)


POD_LABELS = frozenset(
    {
        "pod-template-hash",
        "pod-template-generation",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
    }
)

_LINE = re.compile(r'([^\s="]+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|[abfnrtv\\\"'])|\\")
_SIMPLE = bytes.maketrans(b"abfnrtv\\\"'", b"\a\b\f\n\r\t\v\\\"'")


def parse_labels(content: bytes) -> dict[str, str]:
    """The labels in a downward-API file. Raises `InvalidInput`, naming the line that is wrong."""
    labels: dict[str, str] = {}
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput("is not UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match is None:
            raise InvalidInput(f'line {number} does not have the form name="value"')
        name = match[1]
        if name not in POD_LABELS:
            labels[name] = _unquote(match[2], number)
    return labels


def _unquote(text: str, line: int) -> str:
    def replace(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape is None:
            raise InvalidInput(f"line {line} has an escape that Go does not know")
        if escape[:1] in b"uU":
            point = int(escape[1:], 16)
            if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
                raise InvalidInput(f"line {line} has an escape that is no character")
            return chr(point).encode()
        if escape[:1] == b"x":
            return bytes([int(escape[1:], 16)])
        return escape.translate(_SIMPLE) if len(escape) == 1 else bytes([int(escape, 8) & 0xFF])

    # An escaped byte may be a part of a character, or of none.
    return _ESCAPE.sub(replace, text.encode()).decode("utf-8", "replace")
