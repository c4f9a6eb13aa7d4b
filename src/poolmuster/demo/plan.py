"""What the demo starts, on which ports, and the commands to try on it."""

import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack

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
    def relay_name(self) -> str:
        return f"relay of {self.name}"

    @property
    def server_name(self) -> str:
        return f"model server of {self.name}"

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
    with ExitStack() as held:
        service_port = _take_port(held, SERVICE_PORT)
        pools = (
            DemoPool(
                cluster_id="us-east-1-demo",
                name="llama-70b",
                region="us-east-1",
                model="meta-llama/Llama-3.3-70B-Instruct",
                alias="llama-70b",
                context_window=131_072,
                model_port=_take_port(held, MODEL_PORTS),
                relay_port=_take_port(held, RELAY_PORTS),
            ),
            DemoPool(
                cluster_id="eu-west-1-demo",
                name="qwen-32b",
                region="eu-west-1",
                model="Qwen/Qwen3-32B",
                alias="qwen-32b",
                context_window=40_960,
                model_port=_take_port(held, MODEL_PORTS + 1),
                relay_port=_take_port(held, RELAY_PORTS + 1),
            ),
        )
    return DemoPlan(service_port=service_port, pools=pools)


def _take_port(held: ExitStack, preferred: int) -> int:
    """A free port: ``preferred`` if it is free. ``held`` keeps it bound, so that the next call returns another."""
    for port in (preferred, 0):
        bound = held.enter_context(socket.socket())
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, port))
        except OSError:
            continue
        taken: int = bound.getsockname()[1]
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
    yield "a relay dies: its pool expires one lease after", f"kill -9 {pids[first.relay_name]}"
    yield "a relay stops: its pool leaves at once", f"kill {pids[second.relay_name]}"
    yield "a model server dies: its relay, if it still runs, notices", f"kill -9 {pids[second.server_name]}"
