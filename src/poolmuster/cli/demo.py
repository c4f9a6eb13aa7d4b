"""``poolmuster demo``: the real programs at work, all on this machine."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path

import click

from poolmuster.cli.demo_view import DemoView
from poolmuster.cli.exit_codes import ExitCode, echo_err
from poolmuster.cli.options import command, option
from poolmuster.cli.values import POSITIVE_SECONDS
from poolmuster.client import AsyncClient
from poolmuster.demo.plan import DemoPlan, make_plan, suggestions
from poolmuster.demo.processes import ChildProcess, ProcessGroup
from poolmuster.model.errors import PoolmusterError

SERVICE = "discovery service"
MODEL_SERVER = "poolmuster.demo.model_server"
START_LIMIT_S = 20.0
LOOK_AGAIN_S = 0.1
LAST_LOOK_S = 0.3


@command("demo", help="Try it all on this machine: a service, two model servers, two relays.")
@option("--for", "for_s", type=POSITIVE_SECONDS, default=None, help="End by itself after so many seconds.")
def demo(for_s: float | None) -> int:
    return asyncio.run(_demo(for_s))


async def _demo(for_s: float | None) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    plan = make_plan()
    announce = Announcer(plan)
    async with ProcessGroup(announce.on_exit) as children:
        await children.start(SERVICE, "poolmuster", plan.service_arguments)
        for pool in plan.pools:
            await children.start(pool.server_name, MODEL_SERVER, pool.model_server_arguments)
            await children.start(pool.relay_name, "poolmuster", pool.relay_arguments(plan.service_url))
        if not await _is_up(plan, children, stop):
            return ExitCode.GOOD if stop.is_set() else _cannot_start(children.all[SERVICE])
        announce.start(children)
        async with AsyncClient(plan.service_url) as client, client.follow() as follower:
            view = announce.view = DemoView(follower, follower.updates())
            showing = asyncio.create_task(view.run())
            ending = asyncio.create_task(stop.wait())
            await asyncio.wait((showing, ending), timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            # The relays end first, so that the view shows their pools leave at once.
            await children.stop([pool.relay_name for pool in plan.pools])
            await asyncio.sleep(LAST_LOOK_S)
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
            announce.view = None
    click.echo("All that was started has ended.")
    return ExitCode.GOOD


async def _is_up(plan: DemoPlan, children: ProcessGroup, stop: asyncio.Event) -> bool:
    """Wait until the service answers. ``False`` if it never does, or the demo is to end before."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_LIMIT_S), AsyncClient(plan.service_url) as client:
            while children.all[SERVICE].running and not stop.is_set():
                with contextlib.suppress(PoolmusterError):
                    await client.list()
                    return True
                await asyncio.sleep(LOOK_AGAIN_S)
    return False


def _cannot_start(service: ChildProcess) -> int:
    echo_err(f"poolmuster demo: the {SERVICE} does not start: it {service.ending}.")
    for line in service.log_tail():
        echo_err(f"  {line}")
    return ExitCode.FAILED


class Announcer:
    """Prints which processes run, commands to try, and processes that ended."""

    def __init__(self, plan: DemoPlan) -> None:
        self._plan = plan
        self.view: DemoView | None = None

    def start(self, children: ProcessGroup) -> None:
        """Print the processes and commands to try."""
        lines = ["These run now, each a process of its own:", ""]
        urls = {SERVICE: self._plan.service_url}
        for pool in self._plan.pools:
            urls[pool.server_name] = pool.frontend_url
            urls[pool.relay_name] = f"http://127.0.0.1:{pool.relay_port}/status"
        width = max(map(len, children.all))
        lines += [f"  {name:<{width}}  pid {child.pid:<8} {urls[name]}" for name, child in children.all.items()]
        lines += ["", f"What they log is in {children.folder}/ until the demo ends. To try in another terminal:", ""]
        pids = {name: child.pid for name, child in children.all.items()}
        for what, line in suggestions(self._plan, pids, program()):
            lines += [f"  # {what}", f"  {line}"]
        click.echo("\n".join([*lines, ""]))
        sys.stdout.flush()

    def on_exit(self, child: ChildProcess) -> None:
        """A child ended, and not by the demo."""
        self._echo(f"{'died' if child.failed else 'ended':<10}{child.name} (pid {child.pid}) {child.ending}")
        for pool in self._plan.pools:
            if child.name == pool.relay_name:
                self._echo_restart(f"{program()} {shlex.join(pool.relay_arguments(self._plan.service_url))}")
            if child.name == pool.server_name:
                arguments = shlex.join(["-m", MODEL_SERVER, *pool.model_server_arguments])
                self._echo_restart(f"{shlex.quote(from_here(sys.executable))} {arguments}")

    def _echo_restart(self, line: str) -> None:
        self._echo(f"          to start it again: {line}")

    def _echo(self, line: str) -> None:
        if self.view is not None:
            self.view.echo(line)
        else:
            echo_err(line)


def program() -> str:
    """The command that calls poolmuster in the shell that started the demo."""
    name = Path(sys.argv[0])
    if name.name == "poolmuster" and name.exists():
        return shlex.quote(from_here(str(name)))
    return f"{shlex.quote(from_here(sys.executable))} -m poolmuster"


def from_here(path: str) -> str:
    """``path`` as short as it can be written: from the working directory, where it lies below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
