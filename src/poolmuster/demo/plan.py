"""What the demo starts, on which ports, and the commands to try on it."""

import json
import shlex
import socket
from collections.abc import Iterator
from typing import Self

import msgspec

SERVICE_PORT = 8080
RELAY_PORTS = 8081
MODEL_PORTS = 8001
HOST = "127.0.0.1"


class DemoPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of the demo: a model server and its relay."""

    cluster_id: str
    name: str
    region: str
    model: str
    alias: str
    context_window: int
    model_port: int
    relay_port: int
    namespace: str = "demo"

    @property
    def key(self) -> str:
        return f"{self.cluster_id}/{self.namespace}/{self.name}"

    @property
    def frontend_url(self) -> str:
        return f"http://{HOST}:{self.model_port}"

    @property
    def model_server_arguments(self) -> list[str]:
        return [
            *("--port", str(self.model_port)),
            *("--model", self.model),
            *("--context-window", str(self.context_window)),
        ]

    def relay_arguments(self, service_url: str) -> list[str]:
        return [
            "relay",
            *("--frontend", self.frontend_url),
            *("--discovery", service_url),
            *("--cluster-id", self.cluster_id),
            *("--namespace", self.namespace),
            *("--name", self.name),
            *("--region", self.region),
            *("--model-alias", f"{self.model}={self.alias}"),
            *("--listen", f"{HOST}:{self.relay_port}"),
        ]


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole demo."""

    service_port: int
    pools: tuple[DemoPool, ...]

    @property
    def service_url(self) -> str:
        return f"http://{HOST}:{self.service_port}"

    @property
    def service_arguments(self) -> list[str]:
        return ["serve", "--listen", f"{HOST}:{self.service_port}"]


def make_plan() -> DemoPlan:
    """A plan on ports that are free now: the usual ones where they are."""
    with _Ports() as ports:
        service_port = ports.take(SERVICE_PORT)
        pools = (
            DemoPool(
                cluster_id="us-east-1-demo",
                name="llama-70b",
                region="us-east-1",
                model="meta-llama/Llama-3.3-70B-Instruct",
                alias="llama-70b",
                context_window=131_072,
                model_port=ports.take(MODEL_PORTS),
                relay_port=ports.take(RELAY_PORTS),
            ),
            DemoPool(
                cluster_id="eu-west-1-demo",
                name="qwen-32b",
                region="eu-west-1",
                model="Qwen/Qwen3-32B",
                alias="qwen-32b",
                context_window=40_960,
                model_port=ports.take(MODEL_PORTS + 1),
                relay_port=ports.take(RELAY_PORTS + 1),
            ),
        )
    return DemoPlan(service_port=service_port, pools=pools)


class _Ports:
    """Free ports, held until all are chosen, so that no two are the same."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for each in self._held:
            each.close()

    def take(self, preferred: int) -> int:
        for port in (preferred, 0):
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.append(held)
            try:
                held.bind((HOST, port))
            except OSError:
                continue
            taken: int = held.getsockname()[1]
            return taken
        raise OSError("no port is free")


def suggestions(plan: DemoPlan, pids: dict[str, int], program: str) -> Iterator[tuple[str, str]]:
    """What to try: for each what it shows, and a command that works as it stands.

    ``pids`` are those of the children by name; ``program`` is how the shell calls poolmuster.
    """
    first, second = plan.pools
    discovery = f"--discovery {plan.service_url}"
    chat = json.dumps({"model": first.model, "stream": True, "messages": [{"role": "user", "content": "hello"}]})
    yield "the list, as programs read it", f"curl -s {plan.service_url}/pools"
    yield "the list, for people, and live", f"{program} pools -o wide -w {discovery}"
    yield "why a pool is listed or not", f"{program} why {second.key} {discovery}"
    yield "what changed, and why", f"{program} changes {discovery}"
    yield (
        "a chat with a pool's server",
        f"curl -sN {first.frontend_url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(chat)}",
    )
    yield "a relay dies: its pool expires one lease after", f"kill -9 {pids[relay_name(first)]}"
    yield "a relay stops: its pool leaves at once", f"kill {pids[relay_name(second)]}"
    yield "a model server dies: its relay, if it still runs, notices", f"kill -9 {pids[server_name(second)]}"


def relay_name(pool: DemoPool) -> str:
    """The name of a pool's relay among the children."""
    return f"relay of {pool.name}"


def server_name(pool: DemoPool) -> str:
    """The name of a pool's model server among the children."""
    return f"model server of {pool.name}"
