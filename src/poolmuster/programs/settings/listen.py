"""Where a program is reached, and by whom: alike for every program that listens."""

import msgspec

from poolmuster.model.address import Address

DEFAULT_AUDIENCE = "poolmuster"
ANYONE_FLAG = "--allow-anonymous"


class UsageError(Exception):
    """Settings that cannot be served with. The text is one line that names the flag."""


Pairs = tuple[tuple[str, str], ...]


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose service-account tokens count. ``issuers`` are pairs of an issuer and the place of its keys: file or URL.

    ``ca_certs`` and ``token_files`` are pairs of an issuer and a file, for those whose keys are fetched: one cluster's
    token is nothing to be shown to another.
    """

    issuers: Pairs = ()
    audience: str = DEFAULT_AUDIENCE
    ca_certs: Pairs = ()
    token_files: Pairs = ()
    refresh_s: float = 1.0

    def check(self) -> None:
        """Raise `UsageError` where the settings contradict each other."""
        sources = dict(self.issuers)
        for flag, pairs in (
            ("--auth-oidc", self.issuers),
            ("--auth-oidc-ca-cert", self.ca_certs),
            ("--auth-oidc-token-file", self.token_files),
        ):
            issuers = [issuer for issuer, _ in pairs]
            for issuer in issuers:
                if issuers.count(issuer) > 1:
                    raise UsageError(f"{flag} names the issuer {issuer!r} twice")
                if "://" not in sources.get(issuer, "") and pairs is not self.issuers:
                    raise UsageError(f"{flag} is for {issuer!r}, whose keys are not fetched from a URL by --auth-oidc")


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses, certificates and credentials of a program that listens. Files are named by path."""

    listen: Address = Address("127.0.0.1", 8080)
    health_listen: Address | None = None
    tls_cert_path: str | None = None
    tls_key_path: str | None = None
    tls_client_ca: str | None = None
    auth_tokens: str | None = None
    oidc: OidcSettings = OidcSettings()
    allow_anonymous: bool = False

    @property
    def loopback_only(self) -> bool:
        """Whether requests must name this machine: nobody else can connect, and no credentials are wanted."""
        return self.listen.is_loopback and self.auth_tokens is None

    @property
    def health_loopback_only(self) -> bool:
        """The same of ``health_listen``, which never wants credentials."""
        return self.health_listen is not None and self.health_listen.is_loopback

    def check(self) -> None:
        """Raise `UsageError` where the settings contradict each other."""
        if (self.tls_cert_path is None) != (self.tls_key_path is None):
            given, missing = "--tls-cert-path", "--tls-key-path"
            if self.tls_cert_path is None:
                given, missing = missing, given
            raise UsageError(f"{given} needs {missing}")
        if self.tls_client_ca is not None and self.tls_cert_path is None:
            raise UsageError("--tls-client-ca needs --tls-cert-path and --tls-key-path")
        for flag, value in (("--tls-client-ca", self.tls_client_ca), ("--auth-oidc", self.oidc.issuers)):
            if value and self.auth_tokens is None:
                raise UsageError(f"{flag} needs --auth-tokens, the file that says what each of them may do")
        if self.auth_tokens is not None and self.allow_anonymous:
            raise UsageError(f"{ANYONE_FLAG} contradicts --auth-tokens: with credentials nobody is anonymous")
        self.oidc.check()
        if not self.listen.is_loopback and self.auth_tokens is None and not self.allow_anonymous:
            raise UsageError(
                f"--listen {self.listen} is reachable from other machines, and no credentials are set: "
                f"listen on 127.0.0.1, pass --auth-tokens FILE, or let anyone in by {ANYONE_FLAG}"
            )
