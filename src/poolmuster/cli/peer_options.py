"""The flags that say where the other instances are."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from poolmuster.cli.options import option, refuse_foreign
from poolmuster.model.address import Address, parse_address
from poolmuster.model.errors import InvalidInput
from poolmuster.programs.settings.serve import PeerFlags

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # the older versions of click that we allow cannot be subscripted

F = TypeVar("F", bound=Callable[..., Any])

SERVICE = "--peer-service"
FLAGS = ("--peer-expect", "--peer-token-file", "--peer-ca-cert")
GROUP = "With --registration-storage memory"
FILE = click.Path(dir_okay=False)


class ServiceType(_Type):
    """``HOST[:PORT]``; without a port it is 0."""

    name = "host[:port]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        text = str(value)
        bare = text.count(":") == 0 or text.endswith("]")
        try:
            address = parse_address(f"{text}:0" if bare else text)
        except InvalidInput as error:
            self.fail(error.detail, param, ctx)
        if not address.host or address.is_unspecified:
            self.fail(f"{text!r} names no host that stands for the instances.", param, ctx)
        if not bare and not address.port:
            self.fail(f"{text!r} has the port 0, which nobody can be reached at.", param, ctx)
        return address


SERVICE_TYPE = ServiceType()


def peer_options() -> Callable[[F], F]:
    """Add the flags; `peer_settings` reads them."""
    flags = (
        option(
            SERVICE,
            "peer_services",
            type=SERVICE_TYPE,
            multiple=True,
            group=GROUP,
            help="Share registrations with the instances behind this name. Port: by default that of --listen. "
            "Repeatable.",
        ),
        option(
            "--peer-expect",
            type=click.IntRange(min=1),
            metavar="N",
            group=GROUP,
            help="The list is complete only while there are N instances, this one counted.",
        ),
        option("--peer-token-file", type=FILE, group=GROUP, help="Bearer token to show peers; read again on change."),
        option(
            "--peer-ca-cert",
            type=FILE,
            group=GROUP,
            help="Whom to trust for peers' certificates (PEM), instead of the system; read again on change.",
        ),
    )

    def add(function: F) -> F:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return add


def peer_settings(ctx: click.Context, flags: dict[str, Any]) -> PeerFlags:
    """The flags as settings. Stops with exit code 2 where one is set that needs another."""
    if not flags["peer_services"]:
        refuse_foreign(ctx, SERVICE, FLAGS)
    return PeerFlags(
        services=flags["peer_services"],
        expect=flags["peer_expect"] or 0,
        token_file=flags["peer_token_file"],
        ca_cert=flags["peer_ca_cert"],
    )


def refuse_peers(ctx: click.Context) -> None:
    """Stop with exit code 2 where one of the flags was set, and the store is one that is shared as it is."""
    refuse_foreign(ctx, "--registration-storage memory", (SERVICE, *FLAGS))
