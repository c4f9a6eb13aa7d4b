"""What is told about a credentials file that can be read."""

from poolmuster.auth.credentials_file import changes, parse_credentials, warnings

FILE = """
token = {sha256 = "AA", roles = ["read"]}
old = {sha256 = "BB", roles = ["read"], expires = 2020-01-01T00:00:00Z}
named = {uri = "spiffe://x/y", roles = ["read"]}
wild = {dns = "*.example.com", roles = ["read"]}
pod = {issuer = "https://i", service_account = "a/b", roles = ["read"]}
slash = {issuer = "https://i/", service_account = "a/b", roles = ["read"]}
""".replace("AA", "aa" * 32).replace("BB", "bb" * 32)
NOW_MS = 1_800_000_000_000


def doubted(*, issuers: tuple[str, ...], certificates: bool) -> dict[str, str]:
    found = warnings(parse_credentials(FILE.encode()), issuers=issuers, certificates=certificates, now_ms=NOW_MS)
    return dict(found)


def test_what_can_never_count_is_told() -> None:
    found = doubted(issuers=(), certificates=False)
    assert sorted(found) == ["named", "old", "pod", "slash", "wild"]
    assert "expired" in found["old"]
    assert "--tls-client-ca" in found["named"]
    assert "'https://i'" in found["pod"]


def test_what_counts_is_not_doubted_and_an_issuer_that_no_line_names_is() -> None:
    found = doubted(issuers=("https://i", "https://other"), certificates=True)
    assert sorted(found) == ["https://other", "old", "slash", "wild"]
    assert "stands for nothing but itself" in found["wild"]


def test_a_reload_tells_who_came_who_went_and_who_is_another() -> None:
    before = parse_credentials(FILE.encode())
    after = parse_credentials(
        FILE.replace("token =", "fresh =")
        .replace("aa" * 32, "cc" * 32)
        .replace('y", roles = ["read"]', 'y", roles = ["peer"]')
        .encode()
    )
    assert changes(before, after) == {"added": ["fresh"], "removed": ["token"], "changed": ["named"]}
    assert changes(after, after) == {"added": [], "removed": [], "changed": []}
    assert "aa" * 32 not in repr(before.lines)
