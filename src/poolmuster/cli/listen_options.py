"""The flags of every program that listens: where, with which certificate, and who is let in."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from poolmuster.cli.options import option, refuse_foreign
from poolmuster.cli.values import ADDRESS, POSITIVE_SECONDS, PairType
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings, UsageError

F = TypeVar("F", bound=Callable[..., Any])
Flag = Callable[[Any], Any]
"""What `option` makes: a decorator."""

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


def listen_options(defaults: ListenSettings, *, group: str, default_variable: str | None = None) -> Callable[[F], F]:
    """Add the flags; `listen_settings` reads them. ``group`` is the heading of the addresses."""
    flags = (*_address_flags(defaults, group, default_variable), *_credential_flags(defaults.oidc))

    def add(function: F) -> F:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return add


def _address_flags(defaults: ListenSettings, group: str, default_variable: str | None) -> tuple[Flag, ...]:
    return (
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
    )


def _credential_flags(oidc: OidcSettings) -> tuple[Flag, ...]:
    def flag(name: str, text: str, **more: Any) -> Flag:
        return option(name, group=CREDENTIALS, help=text, **more)

    return (
        flag(
            "--auth-tokens",
            "File that says who may do what (poolmuster token create); read again on change.",
            type=FILE,
        ),
        flag(
            "--tls-client-ca",
            "Certificates from these authorities (PEM) are credentials too, by their names.",
            type=FILE,
        ),
        flag(
            "--auth-oidc",
            "Service-account tokens of this issuer are credentials too, by its keys. Repeatable.",
            type=ISSUER,
            multiple=True,
        ),
        flag("--auth-oidc-audience", "The audience that these tokens must be for.", default=oidc.audience),
        flag(
            "--auth-oidc-ca-cert",
            "Whom to trust when this issuer's keys are fetched (PEM). Repeatable.",
            type=ISSUER_FILE,
            multiple=True,
        ),
        flag(
            "--auth-oidc-token-file",
            "Bearer token for fetching this issuer's keys. Repeatable.",
            type=ISSUER_FILE,
            multiple=True,
        ),
        flag(
            "--auth-oidc-refresh-secs",
            "How often keys are fetched from a URL; a withdrawn key counts for so long.",
            type=POSITIVE_SECONDS,
            default=oidc.refresh_s,
        ),
        flag("--allow-anonymous", "Serve other machines without credentials: anyone may do anything.", is_flag=True),
    )


def listen_settings(ctx: click.Context, flags: dict[str, Any]) -> ListenSettings:
    """The flags as settings. Stops with exit code 2 where they contradict each other."""
    if not flags["auth_oidc"]:
        refuse_foreign(ctx, "--auth-oidc", OIDC_FLAGS)
    settings = ListenSettings(
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
