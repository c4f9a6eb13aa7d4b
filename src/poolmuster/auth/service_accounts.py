"""Service accounts of Kubernetes, proved by the tokens that their clusters sign."""

from collections.abc import Callable, Mapping
from hashlib import sha256

from poolmuster.auth.jwk import SigningKey
from poolmuster.auth.jwks import KeySet
from poolmuster.auth.rate_limit import Mark, RejectedTokenCache, VerificationBudget
from poolmuster.auth.service_account_token import ServiceAccountToken, parse_service_account_token
from poolmuster.model.auth import AuthenticationError, AuthFailure, ServiceAccountCredential
from poolmuster.ports.clock import Clock

CLOCK_SLACK_MS = 5_000
"""How far an issuer's clock may be ahead. Nothing is added to the end of a token."""

ISSUER_TOLD_CHARACTERS = 100

Known = Callable[[str, str, str], bool]
"""Whether anything is known of an issuer's namespace and account."""


class ServiceAccounts:
    """Proves service accounts of ``issuers``, by tokens that are made for ``audience``.

    Nothing is asked of anybody: the keys are those that each issuer's set holds now. What is known of a token without
    its signature is checked first, so that a signature is verified only where everything else fits.

    ``verifications``, ``wrong_signatures`` and ``put_off`` (too many wrong ones lately) count for metrics.
    """

    def __init__(
        self, issuers: Mapping[str, KeySet], audience: str, clock: Clock, budget: VerificationBudget | None = None
    ) -> None:
        self.issuers = issuers
        self.verifications = 0
        self.wrong_signatures = 0
        self.put_off = 0
        self._audience = audience
        self._clock = clock
        self._budget = budget or VerificationBudget(clock)
        self._refused = RejectedTokenCache()

    def verify(self, token: str, known: Known) -> ServiceAccountCredential:
        """The account of ``token``. Raises `AuthenticationError`.

        ``known`` returns whether an account is in the credentials file: only such a token is verified.
        """
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        if self._was_refused(digest):
            raise _wrong_signature()
        claimed = parse_service_account_token(token)
        keys = self._check_claims(claimed, known)
        key = _key_of(keys, claimed)
        self._verify(claimed, key, digest, (claimed.issuer, keys.generation))
        return ServiceAccountCredential(
            issuer=claimed.issuer,
            namespace=claimed.namespace,
            account=claimed.account,
            key=key.thumbprint,
            expires_at_ms=claimed.expires_at_ms,
        )

    def holds(self, proof: ServiceAccountCredential) -> bool:
        """Whether the key that signed is still one of its issuer's."""
        keys = self.issuers.get(proof.issuer)
        return keys is not None and keys.holds(proof.key)

    def _was_refused(self, digest: bytes) -> bool:
        mark = self._refused.mark(digest)
        if mark is None:
            return False
        issuer, generation = mark
        return self.issuers[issuer].generation == generation

    def _check_claims(self, claimed: ServiceAccountToken, known: Known) -> KeySet:
        """Everything but the signature. Returns the keys of the issuer."""
        keys = self.issuers.get(claimed.issuer)
        if keys is None:
            said = f"{claimed.issuer[:ISSUER_TOLD_CHARACTERS]!a}"
            raise AuthenticationError(
                AuthFailure.UNKNOWN_ISSUER, f"the token is issued by {said}, which is not one of ours"
            )
        who = f"{claimed.namespace}/{claimed.account} of {claimed.issuer}"
        now_ms = self._clock.wall_ms()
        if now_ms >= claimed.expires_at_ms:
            raise AuthenticationError(AuthFailure.EXPIRED, f"the token of {who} has expired")
        if now_ms < claimed.begins_at_ms - CLOCK_SLACK_MS:
            raise AuthenticationError(
                AuthFailure.NOT_YET_VALID, f"the token of {who} does not count yet: is a clock wrong?"
            )
        if self._audience not in claimed.audiences:
            text = f"the token of {who} is not made for the audience {self._audience!r}"
            raise AuthenticationError(AuthFailure.WRONG_AUDIENCE, text)
        if not known(claimed.issuer, claimed.namespace, claimed.account):
            raise AuthenticationError(AuthFailure.UNKNOWN_ACCOUNT, f"no line is for the service account {who}")
        return keys

    def _verify(self, claimed: ServiceAccountToken, key: SigningKey, digest: bytes, mark: Mark) -> None:
        pod = claimed.pod_uid or digest
        who = (claimed.issuer, claimed.namespace, claimed.account, pod)
        if not self._budget.allows(who):
            self.put_off += 1
            text = "too many tokens with wrong signatures came lately, so this one has to come again"
            raise AuthenticationError(AuthFailure.BUSY, text)
        self.verifications += 1
        if not key.has_signed(claimed.signed, claimed.signature, claimed.algorithm):
            self.wrong_signatures += 1
            self._budget.was_wrong(who, key.cost_us)
            self._refused.add(digest, mark)
            raise _wrong_signature()
        self._budget.was_right(who)


def _key_of(keys: KeySet, claimed: ServiceAccountToken) -> SigningKey:
    """The key that the token names, if it may be verified by it."""
    if not keys.is_known:
        text = f"the keys of {claimed.issuer} are not known: {keys.problem}"
        raise AuthenticationError(AuthFailure.NO_KEYS, text)
    key = keys.key(claimed.key_id)
    if key is None:
        keys.request_refresh()
        text = f"the token names a key that is not among those of {claimed.issuer}"
        raise AuthenticationError(AuthFailure.UNKNOWN_KEY, text)
    if claimed.algorithm not in key.algorithms:
        text = f"the token's algorithm is not that of the key of {claimed.issuer} that it names"
        raise AuthenticationError(AuthFailure.ALGORITHM, text)
    return key


def _wrong_signature() -> AuthenticationError:
    return AuthenticationError(AuthFailure.BAD_SIGNATURE, "the token is not signed by the key that it names")
