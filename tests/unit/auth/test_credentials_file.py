"""The credentials file: what it may say, and what a mistake in it shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.auth.credentials_file import (
    ParsedCredentials,
    changes,
    credentials_line,
    digest_of,
    new_token,
    parse_credentials,
    warnings,
)
from poolmuster.model.auth import (
    AuthenticationError,
    AuthFailure,
    CertificateCredential,
    Role,
    ServiceAccountCredential,
    TokenCredential,
)
from poolmuster.model.errors import InvalidInput

DIGEST = "ab" * 32


def proof_of(token: str) -> TokenCredential:
    return TokenCredential(digest_of(token.encode()))


def certificate(*, uris: tuple[str, ...] = (), dns: tuple[str, ...] = ()) -> CertificateCredential:
    return CertificateCredential(uris, dns, b"anchor", 10**15)


def test_a_line_says_who_a_token_is_and_what_it_may_do() -> None:
    token = new_token()
    digest = digest_of(token.encode()).hex()
    found = parse_credentials(
        f'relay = {{sha256 = "{digest.upper()}", roles = ["register"], clusters = ["eu-*"], streams = 3, '
        "pools_per_cluster = 7, expires = 1970-01-01T00:00:01.5Z}".encode()
    ).find(proof_of(token))
    principal = found.principal
    assert (principal.name, principal.streams, principal.pools_per_cluster) == ("relay", 3, 7)
    assert found.expires_at_ms == 1500
    assert principal.has_role(Role.REGISTER)
    assert not principal.has_role(Role.READ)
    assert principal.can_register("eu-1")
    assert not principal.can_register("us-1")


def test_old_and_new_tokens_stand_side_by_side() -> None:
    old, new = new_token(), new_token()
    digests = ", ".join(f'"{digest_of(token.encode()).hex()}"' for token in (old, new))
    found = parse_credentials(f'a = {{sha256 = [{digests}], roles = ["read"]}}'.encode())
    assert found.find(proof_of(old)) is found.find(proof_of(new))


def test_a_certificate_is_known_by_its_names_uris_first() -> None:
    found = parse_credentials(
        b'a = {uri = "spiffe://x/a", roles = ["read"]}\n'
        b'b = {dns = ["B.example", "c.example"], roles = ["read"]}\n'
        b'c = {uri = "spiffe://x/c", roles = ["read"]}\n'
    )
    both = certificate(uris=("spiffe://x/zzz", "spiffe://x/c", "spiffe://x/a"), dns=("b.example",))
    assert found.find(both).principal.name == "c"
    assert found.find(certificate(dns=("other.example", "b.EXAMPLE"))).principal.name == "b"
    for stranger in (certificate(), certificate(uris=("spiffe://x/A",)), certificate(dns=("*.example",))):
        with pytest.raises(AuthenticationError) as refused:
            found.find(stranger)
        assert refused.value.reason is AuthFailure.UNKNOWN_CERTIFICATE


def test_a_service_account_is_known_by_issuer_namespace_and_name() -> None:
    found = parse_credentials(b'a = {issuer = "https://i", service_account = "ns/sa", roles = ["read"]}')
    assert found.find(ServiceAccountCredential("https://i", "ns", "sa", b"k", 1)).principal.name == "a"
    for account in (("https://j", "ns", "sa"), ("https://i", "sa", "ns"), ("https://i", "ns", "SA")):
        with pytest.raises(AuthenticationError) as refused:
            found.find(ServiceAccountCredential(*account, b"k", 1))
        assert refused.value.reason is AuthFailure.UNKNOWN_ACCOUNT


def test_patterns_match_whole_ids_exactly_as_they_are_written() -> None:
    def speaks_for(pattern: str, cluster_id: str) -> bool:
        line = credentials_line("a", sha256=DIGEST, roles=("register",), clusters=(pattern,))
        principal = parse_credentials(line.encode()).find(TokenCredential(bytes.fromhex(DIGEST))).principal
        return principal.can_register(cluster_id)

    assert speaks_for("*", "anything\nat all")
    assert speaks_for("eu-?", "eu-1")
    assert speaks_for("eu-[12]", "eu-2")
    assert speaks_for("a[*]", "a*")
    for pattern, cluster_id in (
        ("eu-1", "EU-1"),
        ("eu-1", "eu-1\n"),
        ("eu-*", "xeu-1"),
        ("eu-?", "eu-"),
        ("a.c", "abc"),
        ("\u00e9", "e\u0301"),
        ("eu-1", "eu-\uff11"),
    ):
        assert not speaks_for(pattern, cluster_id), (pattern, cluster_id)


def test_admin_may_everything_and_register_alone_not_even_read() -> None:
    found = parse_credentials(
        f'a = {{sha256 = "{DIGEST}", roles = ["admin"]}}\nb = {{uri = "x:y", roles = ["peer"]}}\n'.encode()
    )
    admin = found.find(TokenCredential(bytes.fromhex(DIGEST))).principal
    assert all(admin.has_role(role) for role in Role)
    assert admin.can_register("anything")
    peer = found.find(certificate(uris=("x:y",))).principal
    assert [role for role in Role if peer.has_role(role)] == [Role.PEER]
    assert not peer.can_register("anything")


SECRET = "pmt_planted-secret-0123456789abcdefghijklmnop"

BAD = {
    "nothing": b" \n",
    "not UTF-8": b'a = "\xff"',
    "not TOML": f"{SECRET}".encode(),
    "half a line": f'a = {{sha256 = "{SECRET}'.encode(),
    "no table": f'a = "{SECRET}"'.encode(),
    "no way": b'a = {roles = ["read"]}',
    "two ways": f'a = {{sha256 = "{DIGEST}", uri = "x:y", roles = ["read"]}}'.encode(),
    "an issuer alone": f'a = {{sha256 = "{DIGEST}", issuer = "i", roles = ["read"]}}'.encode(),
    "an account without issuer": b'a = {service_account = "a/b", roles = ["read"]}',
    "an account that is none": b'a = {issuer = "i", service_account = "b", roles = ["read"]}',
    "an account with a slash too many": b'a = {issuer = "i", service_account = "a/b/c", roles = ["read"]}',
    "the token itself": f'a = {{sha256 = "{SECRET}", roles = ["read"]}}'.encode(),
    "a digest too short": b'a = {sha256 = "abcd", roles = ["read"]}',
    "a digest with spaces": f'a = {{sha256 = "{"ab " * 21}a", roles = ["read"]}}'.encode(),
    "an unknown member": f'a = {{token = "{SECRET}", roles = ["read"]}}'.encode(),
    "no role": f'a = {{sha256 = "{DIGEST}", roles = []}}'.encode(),
    "an unknown role": f'a = {{sha256 = "{DIGEST}", roles = ["root"]}}'.encode(),
    "register without clusters": f'a = {{sha256 = "{DIGEST}", roles = ["register"]}}'.encode(),
    "clusters without register": f'a = {{sha256 = "{DIGEST}", roles = ["read"], clusters = ["*"]}}'.encode(),
    "an empty pattern": f'a = {{sha256 = "{DIGEST}", roles = ["register"], clusters = [""]}}'.encode(),
    "no streams": f'a = {{sha256 = "{DIGEST}", roles = ["read"], streams = 0}}'.encode(),
    "streams that are true": f'a = {{sha256 = "{DIGEST}", roles = ["read"], streams = true}}'.encode(),
    "a local time": f'a = {{sha256 = "{DIGEST}", roles = ["read"], expires = 2030-01-01T00:00:00}}'.encode(),
    "a name twice": f'a = {{sha256 = "{DIGEST}", roles = ["read"]}}\na = {{uri = "x:y", roles = ["read"]}}'.encode(),
    "a token twice": (
        f'a = {{sha256 = "{DIGEST}", roles = ["read"]}}\nb = {{sha256 = "{DIGEST.upper()}", roles = ["admin"]}}'
    ).encode(),
    "a URI that is none": b'a = {uri = "x", roles = ["read"]}',
    "an empty name": f'"" = {{sha256 = "{DIGEST}", roles = ["read"]}}'.encode(),
    "a name with a line end": f'"a\\n" = {{sha256 = "{DIGEST}", roles = ["read"]}}'.encode(),
    "a long name": f'"{"a" * 129}" = {{sha256 = "{DIGEST}", roles = ["read"]}}'.encode(),
    "deep nesting": b"a = " + b"[" * 10_000,
    "a number of many digits": b"a = " + b"1" * 5_000,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_a_mistake_is_one_clear_error_that_shows_no_secret(content: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_credentials(content)
    text = f"{refused.value.detail} {refused.value.field_errors!r}"
    assert SECRET not in text
    assert DIGEST not in text.lower()


def test_a_file_of_comments_lets_nobody_in() -> None:
    found = parse_credentials(b"\xef\xbb\xbf# nobody\n")
    with pytest.raises(AuthenticationError) as refused:
        found.find(proof_of("x"))
    assert refused.value.reason is AuthFailure.UNKNOWN_TOKEN


def test_no_repr_shows_a_digest() -> None:
    line = credentials_line("a", sha256=DIGEST, roles=("read",))
    found = parse_credentials(line.encode())
    assert repr(found) == "ParsedCredentials(1 tokens, 0 uris, 0 dns_names, 0 accounts)"
    assert "abab" not in repr(found.find(TokenCredential(bytes.fromhex(DIGEST))))


@given(
    name=st.text(min_size=1, max_size=40).filter(lambda text: text.strip() and text.isprintable()),
    clusters=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1).map(
        tuple
    ),
)
def test_the_line_that_is_printed_is_the_line_that_is_read(name: str, clusters: tuple[str, ...]) -> None:
    line = credentials_line(name, sha256=DIGEST, roles=("register", "read"), clusters=clusters)
    assert "\n" not in line
    found: ParsedCredentials = parse_credentials(line.encode())
    principal = found.find(TokenCredential(bytes.fromhex(DIGEST))).principal
    assert (principal.name, principal.clusters.patterns) == (name, clusters)


def test_what_a_mistake_looks_like_from_the_outside_is_told() -> None:
    for content, words in (
        ('a = {sha256 = "' + DIGEST + '", roles = ["reader"]}', "roles are read, register, peer, infer, admin"),
        ('a = {sha256 = "' + DIGEST + '", role = ["read"]}', "known are roles, sha256"),
        ('a = {sha256 = "' + DIGEST + '", roles = ["read"], expires = 2027-01-31}', "2030-01-31T00:00:00Z"),
        (f'a = {{sha256 = "{SECRET}", roles = ["read"]}}', "it is a token itself"),
        (f"# first\n{SECRET}\n", "holds a token in line 2"),
        (f'a = {{sha256 = "{DIGEST}", roles = ["read"]}}\n' * 2, 'sha256 = ["old", "new"]'),
    ):
        with pytest.raises(InvalidInput) as refused:
            parse_credentials(content.encode())
        text = f"{refused.value.detail} {refused.value.field_errors!r}"
        assert words in text.replace("\\'", "'"), content
        assert SECRET not in text


def test_one_role_needs_no_list() -> None:
    found = parse_credentials(f'a = {{sha256 = "{DIGEST}", roles = "read"}}'.encode())
    assert found.find(TokenCredential(bytes.fromhex(DIGEST))).principal.has_role(Role.READ)


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
