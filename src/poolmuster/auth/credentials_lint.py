"""What is worth a line in the log about a credentials file: what changed in it, and what in it can never count."""

from collections.abc import Collection, Iterator

from poolmuster.auth.credentials_file import ParsedCredentials


def changes(before: ParsedCredentials, after: ParsedCredentials) -> dict[str, list[str]]:
    """The names of the principals that came, went, or are other than they were."""
    return {
        "added": sorted(after.lines.keys() - before.lines.keys()),
        "removed": sorted(before.lines.keys() - after.lines.keys()),
        "changed": sorted(
            name for name in after.lines.keys() & before.lines.keys() if after.lines[name] != before.lines[name]
        ),
    }


def warnings(
    credentials: ParsedCredentials, *, issuers: Collection[str], certificates: bool, now_ms: int
) -> Iterator[tuple[str, str]]:
    """Names of principals, or issuers, that nobody can be let in by as things are, each with the reason.

    ``issuers`` are those whose tokens are taken, ``certificates`` is whether any are, ``now_ms`` the wall clock.
    """
    for name, line in credentials.lines.items():
        if line.expires is not None and line.expires.timestamp() * 1000 <= now_ms:
            yield name, f"it has expired, at {line.expires.isoformat()}"
        if (line.uri or line.dns) and not certificates:
            yield name, "it is known by a certificate, and --tls-client-ca is not set"
        if line.issuer is not None and line.issuer not in issuers:
            yield name, f"no --auth-oidc is for its issuer {line.issuer!r}"
        if any("*" in dns_name for dns_name in line.dns_names):
            yield name, "names of certificates are compared whole: a * in dns stands for nothing but itself"
    named = {line.issuer for line in credentials.lines.values()}
    for issuer in issuers:
        if issuer not in named:
            yield issuer, "it is an issuer of --auth-oidc, and no line names it"
