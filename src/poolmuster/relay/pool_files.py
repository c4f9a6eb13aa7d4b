"""The files that belong to one pool, read again while the relay runs."""

import ssl

from poolmuster.platform.files import WatchedFile, parse_token
from poolmuster.platform.tls_client import empty_context, parse_authorities
from poolmuster.relay.labels_file import parse_labels
from poolmuster.relay.settings import PoolSettings


class PoolFiles:
    """The labels, the token and the certificate authorities of one pool, each as last read well.

    Where a file of authorities is named and was never read well, nobody is trusted.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._labels = WatchedFile[dict[str, str]](None, parse_labels, {})
        self._token = WatchedFile[str | None](None, parse_token, None)
        self._tls = WatchedFile[ssl.SSLContext | None](None, parse_authorities, None)
        self.follow(settings)

    def follow(self, settings: PoolSettings) -> None:
        """Go on with the files that ``settings`` name: those named before keep what they last held."""
        if self._labels.path != settings.labels_file:
            self._labels = WatchedFile(settings.labels_file, parse_labels, {})
        if self._token.path != settings.token_file:
            self._token = WatchedFile(settings.token_file, parse_token, None)
        if self._tls.path != settings.ca_cert:
            nobody = None if settings.ca_cert is None else empty_context()
            self._tls = WatchedFile(settings.ca_cert, parse_authorities, nobody)

    @property
    def labels(self) -> dict[str, str]:
        return self._labels.value

    @property
    def token(self) -> str | None:
        return self._token.value

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._tls.value

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files now."""
        return tuple(each.problem for each in (self._labels, self._token, self._tls) if each.problem is not None)

    def refresh(self) -> bool:
        """Read them. Returns whether a value, or a problem, changed."""
        changed = [each.refresh() for each in (self._labels, self._token, self._tls)]
        return any(changed)
