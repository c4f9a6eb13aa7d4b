"""The servers under measurement: started on a core of their own, read from outside, ended with the run."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

SERVER_CORE = 0
LOAD_CORE = 1
LEASE_S = 10
"""Short, as a service that has just started is not at its usual work until a lease has passed."""

HEARTBEAT_S = 3

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CPUCLOCK_SCHED = 2
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # etcd's data must not wait for a disk


class Program:
    """One running server."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, folder: Path, *, observed: bool = False) -> None:
        self._process = process
        self.observed = observed
        self.host = "127.0.0.1"
        self.port = port
        self.folder = folder

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu_s(self) -> float:
        """Time that its threads were on a core, user and system. The kernel counts it in nanoseconds."""
        # The number of another process's clock, as clock_getcpuclockid makes it. Threads that have ended count too.
        return time.clock_gettime(~self._process.pid << 3 | _CPUCLOCK_SCHED)

    def resident_bytes(self) -> int:
        """Memory that it holds."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def open_files(self) -> int:
        """Its file descriptors."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_s(self, timeout_s: float) -> float:
        """How long it takes to end. Raises `subprocess.TimeoutExpired`."""
        started_s = time.monotonic()
        self._process.wait(timeout_s)
        return time.monotonic() - started_s

    def metric(self, name: str) -> dict[str, float]:
        """The samples of one metric, by what follows its name."""
        found = {}
        for line in fetch(self.url + "/metrics").decode().splitlines():
            if line.startswith(name):
                series, _, value = line.rpartition(" ")
                found[series.removeprefix(name)] = float(value)
        return found


def fetch(url: str) -> bytes:
    """A body, asked for once."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own server
        body: bytes = answer.read()
    return body


def fetch_head(url: str) -> dict[str, str]:
    """The headers of an answer, by their names in small letters."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own server
        return {name.lower(): value for name, value in answer.getheaders()}


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def running(
    command: list[str],
    port: int,
    ready_path: str,
    folder: Path,
    *,
    ready_port: int | None = None,
    observed: bool = False,
    core: int = SERVER_CORE,
    env: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """A server that is started on ``core``, waited for by ``ready_path`` (of ``ready_port``), and ended."""
    with (folder / "log").open("wb") as log:
        # A child inherits its cores, and etcd's scheduler counts them when it starts.
        os.sched_setaffinity(0, {core})
        try:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | dict(env or {}))
        finally:
            os.sched_setaffinity(0, {LOAD_CORE})
        program = Program(process, port, folder, observed=observed)
        try:
            _wait_ready(program, process, f"http://127.0.0.1:{ready_port or port}{ready_path}")
            yield program
        finally:
            process.kill()
            process.wait()


def _wait_ready(program: Program, process: "subprocess.Popen[bytes]", url: str) -> None:
    for _ in range(1000):
        if process.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            fetch(url)
            return
        time.sleep(0.02)
    raise SystemExit(f"A server did not start:\n{(program.folder / 'log').read_text(errors='replace')}")


@contextlib.contextmanager
def poolmuster(
    *flags: str,
    observed: bool = False,
    lease_s: int = LEASE_S,
    heartbeat_s: int = HEARTBEAT_S,
    host: str = "127.0.0.1",
    port: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """The service. ``observed`` measures each turn of its event loop, at the price of a busy core (`bench.server`)."""
    port, health_port = port or free_port(), free_port()
    module = "bench.server" if observed else "poolmuster"
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", module, "serve", "--listen", f"{host}:{port}"]
        command += ["--health-listen", f"127.0.0.1:{health_port}"]
        command += [
            "--limit-pools-per-cluster",
            "20000",
            "--lease-duration-secs",
            str(lease_s),
            "--heartbeat-interval-secs",
            str(heartbeat_s),
            *flags,
        ]
        if observed:
            command[3:3] = [name]
        with running(
            command, port, "/health/live", Path(name), ready_port=health_port, observed=observed, env=env
        ) as program:
            program.host = host
            yield program


@contextlib.contextmanager
def bare(size_bytes: int) -> Iterator[Program]:
    """A loop that only writes (`bench.bare`)."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "bench.bare", str(port), str(size_bytes)]
        with running(command, port, "/", Path(name)) as program:
            yield program


@contextlib.contextmanager
def etcd() -> Iterator[Program]:
    """An etcd with its data in memory and everything else as it comes."""
    port, peer_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        command = ["etcd", "--data-dir", f"{name}/data", "--log-level", "error"]
        for role, number in (("client", port), ("peer", peer_port)):
            url = f"http://127.0.0.1:{number}"
            advertise = "--advertise-client-urls" if role == "client" else "--initial-advertise-peer-urls"
            command += [f"--listen-{role}-urls", url, advertise, url]
        command += ["--initial-cluster", f"default=http://127.0.0.1:{peer_port}"]
        with running(command, port, "/health", Path(name)) as program:
            yield program
