"""Credentials, region and endpoint of AWS.

Credentials come from botocore's usual chain: environment, files, web identity, container and instance. botocore
refreshes them on the path of a call, which takes seconds; here a task of its own does it ahead of time, in a thread.
"""

import asyncio
import logging
import os
import re
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import ClientError, PartialCredentialsError, ProfileNotFound
from botocore.session import Session

from poolmuster.model.source import SourceReason
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.sources.polled.table import StoreError

SIGNING_REGION = "us-east-1"
"""What calls are signed for where an endpoint URL is given and no region: local servers take any."""

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
CHECK_EVERY_S = 1.0

_REGION = re.compile(r"[a-z0-9-]{1,63}")

# At debug level botocore logs what it signs, session tokens included.
logging.getLogger("botocore").setLevel(logging.WARNING)
# A refresh that fails is logged here, once; botocore would log each attempt, with sixty lines of traceback.
logging.getLogger("botocore.credentials").setLevel(logging.CRITICAL)

log = structlog.get_logger("poolmuster.dynamodb")


class RegionMissing(Exception):
    """Neither a region nor an endpoint URL is configured, or the region is no valid name."""


class TableLocation(msgspec.Struct, frozen=True):
    """Where the table is. ``region`` is ``None`` where none is configured."""

    table: str
    region: str | None
    endpoint_url: str

    @property
    def is_local(self) -> bool:
        """Whether it is a local server, which takes any signature: nobody should have to invent credentials for it."""
        return urlsplit(self.endpoint_url).scheme == "http"

    def __str__(self) -> str:
        return f"Table {self.table} ({self.region or 'no region'}, {self.endpoint_url})"


def find_location(session: Session, table: str, region: str | None, endpoint_url: str | None) -> TableLocation:
    """The location that flags and the AWS environment name.

    Raises `RegionMissing`, and `BotoCoreError` where the AWS configuration cannot be read.
    """
    found = region or next((os.environ[name] for name in REGION_VARIABLES if os.environ.get(name)), None)
    found = found or session.get_config_variable("region")
    if found is not None and _REGION.fullmatch(found) is None:
        # It becomes part of a host name, and of what is signed.
        raise RegionMissing(f"the AWS environment names {found[:80]!r} as the region, which is no valid name")
    if endpoint_url is not None:
        return TableLocation(table, found, endpoint_url.rstrip("/"))
    if found is None:
        raise RegionMissing(
            "the DynamoDB region is not known: pass --dynamodb-region, or set AWS_REGION or AWS_DEFAULT_REGION"
        )
    return TableLocation(table, found, f"https://dynamodb.{found}.{_dns_suffix(session, found)}")


def authorities(session: Session) -> ssl.SSLContext | bool:
    """The CAs for TLS: those that ``AWS_CA_BUNDLE`` or the AWS configuration names, else the usual ones.

    Raises `OSError` where the file cannot be used.
    """
    bundle = session.get_config_variable("ca_bundle")
    return ssl.create_default_context(cafile=bundle) if bundle else True


def _dns_suffix(session: Session, region: str) -> str:
    """The domain of ``region``'s partition: China's and others' are not the usual one."""
    partitions: list[dict[str, Any]] = session.get_data("partitions")["partitions"]
    found = (each["outputs"]["dnsSuffix"] for each in partitions if re.match(each["regionRegex"], region))
    return str(next(found, "amazonaws.com"))


class AwsSigner:
    """Signs calls with credentials that `run` keeps fresh."""

    def __init__(self, session: Session, location: TableLocation) -> None:
        self._session = session
        self._location = location
        self._source: Credentials | None = None
        self._frozen: ReadOnlyCredentials | None = None
        self._outdated = False
        self._failing = False
        self._looked = asyncio.Event()
        self._error = StoreError(SourceReason.CREDENTIALS_MISSING, "The AWS credentials are still being looked for")

    async def refresh(self) -> None:
        """Look for credentials, or refresh them where they are about to expire; off the event loop."""
        try:
            await run_in_daemon_thread("aws-credentials", self._refresh)
        except Exception as error:  # noqa: BLE001
            # Each of botocore's providers has errors of its own, a plain RuntimeError and KeyError among them, and
            # none may end the task that tries again.
            self._failed(error)
        else:
            if self._failing:
                log.info("The AWS credentials are renewed again")
            self._failing = False
        self._looked.set()

    def _failed(self, error: Exception) -> None:
        expired = self._frozen is not None or self._error.reason is SourceReason.CREDENTIALS_EXPIRED
        reason = SourceReason.CREDENTIALS_EXPIRED if expired else SourceReason.CREDENTIALS_MISSING
        what = f"The AWS credentials cannot be {'renewed' if expired else 'had'}"
        self._error = StoreError(reason, f"{what}: {_why(error)}")
        # Credentials that botocore refreshes know when they have expired; others have no such method.
        refresh_needed = getattr(self._source, "refresh_needed", None)
        if refresh_needed is not None and refresh_needed(refresh_in=0):
            self._frozen = None
        if not self._failing:
            # The present ones may be good for minutes yet, in which no call fails.
            log.warning(what, why=_why(error), still_good=self._frozen is not None)
        self._failing = True

    async def wait_looked(self, timeout_s: float) -> None:
        """Wait until credentials have been looked for once, but not for longer than ``timeout_s``."""
        looked = asyncio.create_task(self._looked.wait())
        await asyncio.wait((looked,), timeout=timeout_s)
        looked.cancel()

    def refused(self) -> None:
        """The table answered that they have expired: those of files or variables are looked up anew."""
        self._outdated = True

    def _refresh(self) -> None:
        if self._source is None:
            self._source = self._session.get_credentials()
        elif self._outdated:
            self._source = self._session.get_component("credential_provider").load_credentials() or self._source
        self._outdated = False
        if self._source is not None:
            self._frozen = self._source.get_frozen_credentials()
        elif self._location.is_local:
            self._frozen = ReadOnlyCredentials("local", "local", None)
        else:
            self._error = StoreError(SourceReason.CREDENTIALS_MISSING, "No AWS credentials were found")

    async def run(self) -> None:
        """Keep the credentials fresh until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(CHECK_EVERY_S)

    def sign(self, target: str, body: bytes) -> dict[str, str]:
        """The headers of a signed call of ``target`` (as in ``Query``). Raises `StoreError` without credentials."""
        if self._frozen is None:
            raise self._error.with_detail()
        if any(text is not None and not text.isprintable() for text in self._frozen):
            raise StoreError(
                SourceReason.CREDENTIALS_MISSING, "The AWS credentials hold a control character, such as an end of line"
            )
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{target}", "Content-Type": "application/x-amz-json-1.0"}
        request = AWSRequest(method="POST", url=self._location.endpoint_url + "/", data=body, headers=headers)
        SigV4Auth(self._frozen, "dynamodb", self._location.region or SIGNING_REGION).add_auth(request)
        return dict(request.headers.items())


def _why(error: Exception) -> str:
    """What failed, without anything that a token service may have received or answered."""
    if isinstance(error, ClientError):
        return f"{error.operation_name} answered {error.response.get('Error', {}).get('Code', 'an error')}"
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}: {error.filename}" if error.filename else str(error.strerror)
    if isinstance(error, PartialCredentialsError | ProfileNotFound):
        return str(error)  # names what is missing
    return type(error).__name__
