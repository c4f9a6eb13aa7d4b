"""`poolmuster serve` that wants credentials, as a program, over TLS or not."""

import ssl
from pathlib import Path

import msgspec

from tests.support import principals
from tests.support.pki import Authority, replace_file
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster


class GuardedProgram(msgspec.Struct, frozen=True):
    """Where it is, and what it was given."""

    program: Program
    url: str
    health_url: str
    tokens: Path
    trust: ssl.SSLContext | None

    def write(self, content: str) -> None:
        """Another credentials file, in the place of the one before."""
        replace_file(self.tokens, content.encode())


def guarded(
    folder: Path,
    *flags: str,
    authority: Authority | None = None,
    host: str = "127.0.0.1",
    content: str | None = None,
) -> GuardedProgram:
    """The program, not started yet, with a token of each role, or with another ``content`` of its file.

    With an ``authority`` it serves HTTPS, by a certificate for this machine.
    """
    port, health_port = free_port(), free_port()
    tokens = folder / "tokens.toml"
    tokens.write_text(principals.lines() if content is None else content)
    trust = None
    if authority is not None:
        pair = authority.server("localhost", "127.0.0.1").write(folder, "server")
        flags = ("--tls-cert-path", pair.cert, "--tls-key-path", pair.key, *flags)
        trust = ssl.create_default_context(cadata=authority.pem.decode())
    health_url = f"http://127.0.0.1:{health_port}"
    program = poolmuster(
        "serve",
        *("--listen", f"{host}:{port}", "--health-listen", f"127.0.0.1:{health_port}"),
        *("--auth-tokens", str(tokens), "--log-level", "debug", "--log-format", "json"),
        *flags,
        folder=folder,
        ready_url=f"{health_url}/health/ready",
    )
    scheme = "http" if authority is None else "https"
    return GuardedProgram(program, f"{scheme}://127.0.0.1:{port}", health_url, tokens, trust)
