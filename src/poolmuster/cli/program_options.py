"""The flags of every program that listens: its addresses, certificates, credentials and log, and how it starts."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from poolmuster.cli.exit_codes import ExitCode, echo_err
from poolmuster.cli.options import FILE, option, options, refuse_foreign
from poolmuster.cli.values import ADDRESS, POSITIVE_SECONDS, pair_type
from poolmuster.programs.logging import configure_logging
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings, UsageError

F = TypeVar("F", bound=Callable[..., Any])

ISSUER = pair_type("issuer", "jwks-file-or-url")
ISSUER_FILE = pair_type("issuer", "file")
CREDENTIALS, LOGGING = "Credentials", "Logging"
_CREDENTIAL_HELP = {
    "--auth-tokens": "File of credentials and their roles (poolmuster token create); read again on change.",
    "--tls-client-ca": "Certificates from these authorities (PEM) are credentials too, by their names.",
    "--auth-oidc": "Service-account tokens of this issuer are credentials too, by its keys. Repeatable.",
    "--auth-oidc-audience": "The audience that these tokens must be for.",
    "--auth-oidc-ca-cert": "Authorities to trust when this issuer's keys are fetched (PEM). Repeatable.",
    "--auth-oidc-token-file": "Bearer token for fetching this issuer's keys. Repeatable.",
    "--auth-oidc-refresh-secs": "How often keys are fetched from a URL; a withdrawn key counts for so long.",
    "--allow-anonymous": "Serve other machines without credentials: anyone may do anything.",
}
OIDC_FLAGS = [flag for flag in _CREDENTIAL_HELP if flag.startswith("--auth-oidc-")]


def listen_options(defaults: ListenSettings, *, group: str, default_variable: str | None = None) -> Callable[[F], F]:
    """Add the flags; `listen_settings` reads them. ``group`` is the heading of the addresses."""
    health = "A second address, plain HTTP, with health and metrics only, open to all who reach it."
    return options(
        option(
            "--listen",
            type=ADDRESS,
            default=str(defaults.listen),
            default_variable=default_variable,
            group=group,
            help="Address to serve on; ':8080' and '[::]:8080' mean all.",
        ),
        option("--health-listen", type=ADDRESS, group=group, help=health),
        option("--tls-cert-path", type=FILE, group=group, help="Serve HTTPS with this certificate chain (PEM)."),
        option("--tls-key-path", type=FILE, group=group, help="The certificate's key (PEM)."),
        *_credential_options(defaults.oidc),
    )


def _credential_options(oidc: OidcSettings) -> Iterator[Callable[[Any], Any]]:
    kinds: dict[str, dict[str, Any]] = {
        "--auth-tokens": {"type": FILE},
        "--tls-client-ca": {"type": FILE},
        "--auth-oidc": {"type": ISSUER, "multiple": True},
        "--auth-oidc-audience": {"default": oidc.audience},
        "--auth-oidc-ca-cert": {"type": ISSUER_FILE, "multiple": True},
        "--auth-oidc-token-file": {"type": ISSUER_FILE, "multiple": True},
        "--auth-oidc-refresh-secs": {"type": POSITIVE_SECONDS, "default": oidc.refresh_s},
        "--allow-anonymous": {"is_flag": True},
    }
    for flag, kind in kinds.items():
        yield option(flag, group=CREDENTIALS, help=_CREDENTIAL_HELP[flag], **kind)


def listen_settings(ctx: click.Context, flags: dict[str, Any]) -> ListenSettings:
    """The flags as settings. Stops with exit code 2 where they contradict each other."""
    if not flags["auth_oidc"]:
        refuse_foreign(ctx, "--auth-oidc", OIDC_FLAGS)
    names = ("listen", "health_listen", "tls_cert_path", "tls_key_path", "tls_client_ca", "auth_tokens")
    settings = ListenSettings(
        **{name: flags[name] for name in names},
        oidc=OidcSettings(
            issuers=flags["auth_oidc"],
            audience=flags["auth_oidc_audience"],
            ca_certs=flags["auth_oidc_ca_cert"],
            token_files=flags["auth_oidc_token_file"],
            refresh_s=flags["auth_oidc_refresh_secs"],
        ),
        allow_anonymous=flags["allow_anonymous"],
    )
    check_settings(ctx, settings.check)
    return settings


_FORMATS = click.Choice(["text", "json"])
_LEVELS = click.Choice(["debug", "info", "warning", "error"])

logging_options = options(
    option("--log-format", type=_FORMATS, group=LOGGING, help="Default: text on a terminal, else json."),
    option("--log-level", type=_LEVELS, default="info", group=LOGGING, help="The least that is logged."),
)
"""Add ``--log-format`` and ``--log-level``; `run_program` reads them."""


def check_settings(ctx: click.Context, check: Callable[[], None]) -> None:
    """Stop with exit code 2, and the line of the `UsageError`, where ``check`` raises one."""
    try:
        check()
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error


def run_program(ctx: click.Context, flags: dict[str, Any], program: Callable[[], None]) -> int:
    """Run a program until it ends, and return its exit code. A start that fails is one line on standard error."""
    configure_logging(flags["log_format"], flags["log_level"])
    # Imported late: a web server is not needed for --help, nor to report a mistake in the flags.
    from poolmuster.programs.listener import CannotListen
    from poolmuster.programs.stores import StoreConfigError

    try:
        check_settings(ctx, program)
    except StoreConfigError as error:
        echo_err(f"{ctx.command_path}: {error}")
        return ExitCode.FAILED
    except CannotListen as error:
        echo_err(f"{ctx.command_path}: {error}.")
        return ExitCode.FAILED
    return ExitCode.GOOD
