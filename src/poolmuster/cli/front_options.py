"""The flags of every program that listens: where, with which certificate, and who is let in."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from poolmuster.cli.options import option, refuse_foreign
from poolmuster.cli.values import ADDRESS, POSITIVE_SECONDS, PairType
from poolmuster.wiring.front_settings import FrontSettings, OidcSettings, UsageError

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False)
ISSUER = PairType("issuer", "jwks-file-or-url")
ISSUER_FILE = PairType("issuer", "file")
CREDENTIALS = "Credentials"
OIDC_FLAGS = (
    "--auth-oidc-audience",
    "--auth-oidc-ca-cert",
    "--auth-oidc-token-file",
    "--auth-oidc-refresh-secs",
)


def front_options(defaults: FrontSettings, *, group: str, default_variable: str | None = None) -> Callable[[F], F]:
    """Add the flags; `front_settings` reads them. ``group`` is the heading of the addresses."""
    oidc = defaults.oidc
    flags = (
        option(
            "--listen",
            type=ADDRESS,
            default=str(defaults.listen),
            default_variable=default_variable,
            group=group,
            help="Address to serve on; ':8080' and '[::]:8080' mean all.",
        ),
        option(
            "--health-listen",
            type=ADDRESS,
            group=group,
            help="A second address, plain HTTP, with health and metrics only, open to all who reach it.",
        ),
        option("--tls-cert-path", type=FILE, group=group, help="Serve HTTPS with this certificate chain (PEM)."),
        option("--tls-key-path", type=FILE, group=group, help="The certificate's key (PEM)."),
        option(
            "--auth-tokens",
            type=FILE,
            group=CREDENTIALS,
            help="File that says who may do what (poolmuster token create); read again on change.",
        ),
        option(
            "--tls-client-ca",
            type=FILE,
            group=CREDENTIALS,
            help="Certificates from these authorities (PEM) are credentials too, by their names.",
        ),
        option(
            "--auth-oidc",
            type=ISSUER,
            multiple=True,
            group=CREDENTIALS,
            help="Service-account tokens of this issuer are credentials too, by its keys. Repeatable.",
        ),
        option(
            "--auth-oidc-audience",
            default=oidc.audience,
            group=CREDENTIALS,
            help="The audience that these tokens must be for.",
        ),
        option(
            "--auth-oidc-ca-cert",
            type=ISSUER_FILE,
            multiple=True,
            group=CREDENTIALS,
            help="Whom to trust when this issuer's keys are fetched (PEM). Repeatable.",
        ),
        option(
            "--auth-oidc-token-file",
            type=ISSUER_FILE,
            multiple=True,
            group=CREDENTIALS,
            help="Bearer token for fetching this issuer's keys. Repeatable.",
        ),
        option(
            "--auth-oidc-refresh-secs",
            type=POSITIVE_SECONDS,
            default=oidc.refresh_s,
            group=CREDENTIALS,
            help="How often keys are fetched from a URL; a withdrawn key counts for so long.",
        ),
        option(
            "--allow-anonymous",
            is_flag=True,
            group=CREDENTIALS,
            help="Serve other machines without credentials: anyone may do anything.",
        ),
    )

    def add(function: F) -> F:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return add


def front_settings(ctx: click.Context, flags: dict[str, Any]) -> FrontSettings:
    """The flags as settings. Stops with exit code 2 where they contradict each other."""
    if not flags["auth_oidc"]:
        refuse_foreign(ctx, "--auth-oidc", OIDC_FLAGS)
    settings = FrontSettings(
        listen=flags["listen"],
        health_listen=flags["health_listen"],
        tls_cert_path=flags["tls_cert_path"],
        tls_key_path=flags["tls_key_path"],
        tls_client_ca=flags["tls_client_ca"],
        auth_tokens=flags["auth_tokens"],
        oidc=OidcSettings(
            issuers=flags["auth_oidc"],
            audience=flags["auth_oidc_audience"],
            ca_certs=flags["auth_oidc_ca_cert"],
            token_files=flags["auth_oidc_token_file"],
            refresh_s=flags["auth_oidc_refresh_secs"],
        ),
        allow_anonymous=flags["allow_anonymous"],
    )
    try:
        settings.check()
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error
    return settings
