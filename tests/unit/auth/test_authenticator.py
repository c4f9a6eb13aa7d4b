"""Who presents this, and does it still count: on a clock that the test moves."""

import pytest

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import digest_of, new_token, parse_credentials
from poolmuster.auth.service_accounts import IsKnownAccount, ServiceAccounts
from poolmuster.model.auth import AuthenticationError, AuthFailure, CertificateCredential, ServiceAccountCredential
from poolmuster.ports.authenticator import AuthContext
from tests.support.clock import ManualClock

DAY_MS = 86_400_000


class Accounts(ServiceAccounts):
    """Verifies every token as the same account's, signed by the same key."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__({}, "", clock)
        self.clock = clock
        self.keys = {b"key"}
        self.verified: list[str] = []

    def verify(self, token: str, is_known: IsKnownAccount) -> ServiceAccountCredential:
        self.verified.append(token)
        if not is_known("https://i", "ns", "sa"):
            raise AuthenticationError(AuthFailure.UNKNOWN_ACCOUNT, "")
        return ServiceAccountCredential("https://i", "ns", "sa", b"key", self.clock.wall_ms() + 1000)

    def holds(self, credential: ServiceAccountCredential) -> bool:
        return credential.key in self.keys


class World:
    """An authenticator with a file that the test writes, and stand-ins for authorities and signing keys."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.credentials = parse_credentials(b"# nobody")
        self.anchors = {b"anchor"}
        self.accounts = Accounts(clock)
        self.auth = CredentialAuthenticator(
            lambda: self.credentials, clock, accounts=self.accounts, trusts=lambda anchor: anchor in self.anchors
        )

    def write(self, content: str) -> None:
        self.credentials = parse_credentials(content.encode())
        self.auth.invalidate()

    def refused(self, authorization: bytes | None, certificate: CertificateCredential | None = None) -> AuthFailure:
        with pytest.raises(AuthenticationError) as refused:
            self.auth.authenticate(authorization, certificate)
        return refused.value.reason


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


def bearer(token: str, scheme: str = "Bearer ") -> bytes:
    return f"{scheme}{token}".encode()


def line(name: str, token: str, more: str = "") -> str:
    return f'{name} = {{sha256 = "{digest_of(token.encode()).hex()}", roles = ["read"]{more}}}\n'


def certificate(uri: str, expires_at_ms: int, anchor: bytes = b"anchor") -> CertificateCredential:
    return CertificateCredential((uri,), (), anchor, expires_at_ms)


def test_a_known_token_is_admitted_however_the_scheme_is_written(world: World) -> None:
    token = new_token()
    world.write(line("a", token))
    for scheme in ("Bearer ", "bearer ", "BEARER   "):
        assert world.auth.authenticate(bearer(token, scheme), None).principal.name == "a"
    assert world.auth.authenticate(bearer(token), None) is world.auth.authenticate(bearer(token), None), (
        "it is remembered"
    )


def test_what_is_not_known_or_malformed_is_refused_with_its_reason(world: World) -> None:
    token = new_token()
    world.write(line("a", token))
    assert world.refused(None) is AuthFailure.MISSING
    for header in (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic " + token.encode(),
        token.encode(),
        b"Bearer a b",
        b"Bearer \xe9",
    ):
        assert world.refused(header) is AuthFailure.MALFORMED, header
    for wrong in (token[:-1], token + "x", token.swapcase(), new_token(), digest_of(token.encode()).hex()):
        assert world.refused(bearer(wrong)) is AuthFailure.UNKNOWN_TOKEN


def test_a_revoked_token_is_refused_from_the_next_generation_on(world: World) -> None:
    token = new_token()
    world.write(line("a", token))
    admission = world.auth.authenticate(bearer(token), None)
    world.write("# nobody")
    assert world.refused(bearer(token)) is AuthFailure.UNKNOWN_TOKEN
    with pytest.raises(AuthenticationError):
        world.auth.reauthenticate(admission)


def test_an_admission_is_renewed_as_what_it_has_become(world: World) -> None:
    token = new_token()
    world.write(line("a", token))
    admission = world.auth.authenticate(bearer(token), None)
    assert world.auth.reauthenticate(admission) is admission
    world.write(line("b", token, ", streams = 1"))
    renewed = world.auth.reauthenticate(admission)
    assert (renewed.principal.name, renewed.principal.streams) == ("b", 1)


def test_a_line_ends_when_it_says_so_on_remembered_admissions_too(world: World) -> None:
    token = new_token()
    ends_ms = world.clock.wall_ms() // 1000 * 1000 + 2000
    world.write(line("a", token, f", expires = {instant(ends_ms)}"))
    admission = world.auth.authenticate(bearer(token), None)
    assert admission.expires_at_ms == ends_ms
    world.clock.step_wall(ends_ms - world.clock.wall_ms() - 1)
    world.auth.authenticate(bearer(token), None)
    world.clock.step_wall(1)
    assert world.refused(bearer(token)) is AuthFailure.EXPIRED
    with pytest.raises(AuthenticationError):
        world.auth.reauthenticate(admission)


def instant(wall_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_certificate_counts_while_its_name_its_authority_and_its_time_do(world: World) -> None:
    world.write('a = {uri = "spiffe://x/a", roles = ["read"]}')
    proof = certificate("spiffe://x/a", world.clock.wall_ms() + DAY_MS)
    admission = world.auth.authenticate(None, proof)
    assert admission.principal.name == "a"
    assert world.refused(None, certificate("spiffe://x/b", proof.expires_at_ms)) is AuthFailure.UNKNOWN_CERTIFICATE
    world.anchors = {b"another"}
    world.auth.invalidate()
    assert world.refused(None, proof) is AuthFailure.UNTRUSTED_AUTHORITY
    world.anchors = {b"anchor"}
    world.auth.invalidate()
    world.auth.authenticate(None, proof)
    world.clock.step_wall(DAY_MS)
    assert world.refused(None, proof) is AuthFailure.EXPIRED


def test_what_is_said_aloud_counts_and_not_the_certificate(world: World) -> None:
    world.write('a = {uri = "spiffe://x/a", roles = ["read"]}')
    proof = certificate("spiffe://x/a", world.clock.wall_ms() + DAY_MS)
    assert world.refused(bearer("wrong"), proof) is AuthFailure.UNKNOWN_TOKEN


def test_without_authorities_no_certificate_counts(world: World) -> None:
    world.write('a = {uri = "spiffe://x/a", roles = ["read"]}')
    bare = CredentialAuthenticator(lambda: world.credentials, world.clock)
    with pytest.raises(AuthenticationError):
        bare.authenticate(None, certificate("spiffe://x/a", world.clock.wall_ms() + DAY_MS))


def test_a_service_account_is_proved_once_and_judged_again(world: World) -> None:
    jwt = "aaa.bbb.ccc"
    world.write("# nobody")
    assert world.refused(bearer(jwt)) is AuthFailure.UNKNOWN_ACCOUNT
    world.write('a = {issuer = "https://i", service_account = "ns/sa", roles = ["read"]}')
    admission = world.auth.authenticate(bearer(jwt), None)
    assert world.auth.authenticate(bearer(jwt), None) is admission
    assert world.accounts.verified == [jwt, jwt], "not for the third"
    world.accounts.keys = set()
    world.auth.invalidate()
    with pytest.raises(AuthenticationError) as refused:
        world.auth.reauthenticate(admission)
    assert refused.value.reason is AuthFailure.UNKNOWN_KEY


def test_a_service_accounts_token_ends_with_itself(world: World) -> None:
    world.write('a = {issuer = "https://i", service_account = "ns/sa", roles = ["read"]}')
    admission = world.auth.authenticate(bearer("a.b.c"), None)
    world.clock.step_wall(1000)
    with pytest.raises(AuthenticationError) as refused:
        world.auth.reauthenticate(admission)
    assert refused.value.reason is AuthFailure.EXPIRED


def test_a_token_with_dots_that_has_a_line_is_a_token(world: World) -> None:
    world.write(line("a", "x.y.z"))
    assert world.auth.authenticate(bearer("x.y.z"), None).principal.name == "a"
    assert world.accounts.verified == []


def test_what_was_proved_is_judged_again_and_not_proved_again(world: World) -> None:
    world.write('a = {issuer = "https://i", service_account = "ns/sa", roles = ["read"]}')
    for name in ("a", "b"):
        world.write(f'{name} = {{issuer = "https://i", service_account = "ns/sa", roles = ["read"]}}')
        assert world.auth.authenticate(bearer("x.y.z"), None).principal.name == name
    assert world.accounts.verified == ["x.y.z"]
    world.write("# nobody")
    assert world.refused(bearer("x.y.z")) is AuthFailure.UNKNOWN_ACCOUNT
    assert world.accounts.verified == ["x.y.z"]
    assert world.auth._cache == {}, "who is refused is forgotten"


def test_what_is_remembered_is_bounded_and_never_what_was_presented(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poolmuster.auth.authenticator.CACHE_SIZE", 3)
    tokens = [new_token() for _ in range(5)]
    world.write("".join(line(f"p{number}", token) for number, token in enumerate(tokens)))
    first: AuthContext = world.auth.authenticate(bearer(tokens[0]), None)
    for scheme in ("Bearer ", "bearer ", "BEARER    "):
        assert world.auth.authenticate(bearer(tokens[0], scheme), None) is first, "one token, however it is written"
    for token in tokens:
        world.auth.authenticate(bearer(token), None)
    remembered = world.auth._cache
    assert len(remembered) == 3
    assert not any(token.encode() in key for key in remembered if isinstance(key, bytes) for token in tokens)
    assert tokens[0] not in repr(first)
    assert world.auth.authenticate(bearer(tokens[0]), None) is not first, "the oldest was forgotten"
