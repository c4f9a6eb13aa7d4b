r"""Labels as the Kubernetes downward API writes them into a file: one ``name="value"`` a line.

The value is quoted as Go's ``%q`` does it: ``\n``, ``\"``, ``\x1b``, ``\u00e9``, ``\U0001f600``.

Labels by which Kubernetes tells one pod of a workload from the next are left out. They say nothing of the pool, and
since they differ from pod to pod, each rolling update would show watchers a change.
"""

import re

from poolmuster.model.errors import InvalidInput

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
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
    b"'": b"'",
}


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
        if escape in _SIMPLE:
            return _SIMPLE[escape]
        return bytes([int(escape, 8) & 0xFF])

    # Byte escapes stand for parts of characters, or for bytes that never were one.
    return _ESCAPE.sub(replace, text.encode()).decode("utf-8", "replace")
