"""Parts that tests can use but not every machine has: how each is found, and what is said where it is not.

A test that wants one calls `require`. Without the part the test is left out with the reason, which the end of the run
lists; under ``make test-all``, where ``POOLMUSTER_TEST_ALL`` is set, leaving out is a failure (see ``tests/conftest``).
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.variables import variable

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"


def everything_wanted() -> bool:
    """Whether no test may be left out."""
    return variable("TEST_ALL") not in ("", "0")


@dataclass(frozen=True)
class Part:
    """Something installed apart from the lock file. ``find`` gives its path, or ``None`` where it is not usable."""

    name: str
    find: Callable[[], Path | None]
    how_to_get: str

    def require(self) -> Path:
        """The part's path; where there is none, the calling test is left out."""
        path = self.find()
        if path is None:
            pytest.skip(f"{self.name} is not here: {self.how_to_get}")
        return path


def _program(name: str) -> Callable[[], Path | None]:
    def find() -> Path | None:
        path = shutil.which(name)
        return Path(path) if path else None

    return find


def _dynamo_python() -> Path | None:
    python = CACHE / "dynamo" / "bin" / "python"
    # The stamp is written last: without it an installation was cut off.
    return python if python.exists() and (CACHE / "dynamo" / ".set-up").exists() else None


def _module(name: str) -> Callable[[], Path | None]:
    def find() -> Path | None:
        spec = importlib.util.find_spec(name)
        return Path(spec.origin) if spec is not None and spec.origin else None

    return find


def _dynalite() -> Path | None:
    program = CACHE / "dynalite" / "node_modules" / ".bin" / "dynalite"
    return program if program.exists() and shutil.which("node") else None


def _faketime() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)


def _private_network() -> Path | None:
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("nsenter") is None or os.geteuid() != 0:
        return None
    allowed = subprocess.run([unshare, "--net", "true"], check=False, capture_output=True, timeout=10)
    return Path(unshare) if allowed.returncode == 0 else None


def _lan() -> Path | None:
    if _private_network() is None or (ip := shutil.which("ip")) is None:
        return None
    # Two networks with a link between them, resolvers of their own, and packets that are dropped on the way.
    wanted = "ip link add name near type veth peer name far && ip rule add from 10.77.1.2 blackhole"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", wanted], check=False, capture_output=True, timeout=10
    )
    return Path(ip) if tried.returncode == 0 else None


def _time_namespace() -> Path | None:
    path = Path("/proc/self/ns/time")
    return path if path.exists() and os.geteuid() == 0 else None


DYNAMO = Part("NVIDIA Dynamo", _dynamo_python, "'make parts' installs it (690 MB)")
BOTOCORE = Part("botocore", _module("botocore"), "it comes with the extra 'dynamodb'")
DYNALITE = Part("dynalite", _dynalite, "'make parts' installs it by npm, which Debian has")
FAKETIME = Part("libfaketime", _faketime, "'make parts' installs Debian's libfaketime")
ETCD = Part("etcd", _program("etcd"), "'make parts' installs Debian's etcd-server")
OPENSSL = Part("openssl", _program("openssl"), "install Debian's openssl")
NGINX = Part("nginx", _program("nginx"), "'make parts' installs Debian's nginx-light")
CHROMIUM = Part("Chromium", _program("chromium"), "install Debian's chromium")
PRIVATE_NETWORK = Part("a private network namespace", _private_network, "it needs root and util-linux's unshare")
LAN = Part("a network of machines", _lan, "it needs root, util-linux's unshare and Debian's iproute2")
TIME_NAMESPACE = Part("a time namespace", _time_namespace, "it needs root and Linux 5.6")
