"""The table itself: is it as the service needs it, and what would make it so.

For operators only: the service never calls any of this, and needs no permission for it. Calls block.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import Session

from poolmuster.model.source import SourceReason
from poolmuster.sources.dynamodb.aws import SIGNING_REGION, TableLocation
from poolmuster.sources.dynamodb.errors import ConditionFailed, StoreError, meaning_of
from poolmuster.sources.dynamodb.items import PARTITION
from poolmuster.sources.dynamodb.server_clock import parse_date

TIME_TO_LIVE = "expires_at"
KEYS = {"pk": "HASH", "sk": "RANGE"}
NO_POOL = "poolmuster-table-check"
"""A sort key that is no pool's: it has no ``#``."""

CLOCK_LIMIT_S = 10.0
"""The slack of the default lease: a clock off by more could matter."""

POLL_S = 2.0
WAIT_LIMIT_S = 1800.0
"""A replica with a large table behind it takes long; a new one some minutes."""


class CheckState(StrEnum):
    """``unknown``: whoever asks is not permitted to look, or the server does not know of such a thing."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    state: CheckState
    detail: str


class MigrationStep(msgspec.Struct, frozen=True):
    """One change of the table, not yet made.

    ``make`` blocks until it is in effect and returns a remark where it is not. It raises `StoreError`.
    """

    text: str
    make: Callable[[], str | None]


class TableAdmin:
    """Looks at one table and changes it."""

    def __init__(self, session: Session, place: TableLocation, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.place = place
        self._sleep = sleep
        self._date: str | None = None
        found = session.get_credentials()
        self.credentials = "none found"
        local: dict[str, Any] = {}
        if found is not None:
            access_key = found.get_frozen_credentials().access_key or ""
            self.credentials = f"{found.method} (access key ...{access_key[-4:]})"
        elif urlsplit(place.endpoint_url).scheme == "http":
            local = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
            self.credentials = "none found; a local server takes any"
        self._client: Any = session.create_client(
            "dynamodb",
            region_name=place.region or SIGNING_REGION,
            endpoint_url=place.endpoint_url,
            config=Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2, "mode": "standard"}),
            **local,
        )

    def check(self) -> list[Check]:
        """All that the service needs of the table. Raises `StoreError` only where nothing can be said at all."""
        findings = self._check_description()
        if any(finding.what == "table" and finding.state is CheckState.BAD for finding in findings):
            return [*findings, self._check_clock()]
        return [*findings, self._check_time_to_live(), self._check_query(), self._check_put(), self._check_clock()]

    def _check_description(self) -> list[Check]:
        try:
            table = self._describe()
        except StoreError as trouble:
            return [_not_seen("table", trouble)]
        billing = table.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        paid = "on demand" if billing == "PAY_PER_REQUEST" else "provisioned capacity"
        usable = table["TableStatus"] in ("ACTIVE", "UPDATING")
        findings = [Check("table", _state(usable), f"{table['TableStatus']}, {paid}"), _check_keys(table)]
        findings.extend(
            Check(
                f"replica {replica['RegionName']}",
                _state(replica.get("ReplicaStatus") in ("ACTIVE", "UPDATING")),
                replica.get("ReplicaStatus", "of unknown status"),
            )
            for replica in table.get("Replicas", ())
        )
        return findings

    def _check_time_to_live(self) -> Check:
        try:
            attribute = self._time_to_live()
        except StoreError as trouble:
            return _not_seen("time to live", trouble)
        if attribute == TIME_TO_LIVE:
            return Check("time to live", CheckState.GOOD, f"on, by {attribute}")
        detail = f"by {attribute!r}" if attribute else "off"
        return Check("time to live", CheckState.BAD, f"{detail}; it must be on, by {TIME_TO_LIVE}")

    def _check_query(self) -> Check:
        try:
            self._call(
                "query",
                KeyConditionExpression="pk = :p",
                ExpressionAttributeValues={":p": {"S": PARTITION}},
                ConsistentRead=True,
                Limit=1,
            )
        except StoreError as trouble:
            return _bad("permission dynamodb:Query", trouble)
        return Check("permission dynamodb:Query", CheckState.GOOD, "given")

    def _check_put(self) -> Check:
        what = "permission dynamodb:PutItem"
        try:
            self._call(
                "put_item",
                Item={"pk": {"S": PARTITION}, "sk": {"S": NO_POOL}},
                ConditionExpression="attribute_exists(pk) AND attribute_not_exists(pk)",
            )
        except ConditionFailed:
            return Check(what, CheckState.GOOD, "given; nothing was written")
        except StoreError as trouble:
            return _bad(what, trouble)
        return Check(what, CheckState.BAD, f"this server takes puts whose condition does not hold: {NO_POOL}")

    def _check_clock(self) -> Check:
        if self._date is None:
            return Check("clock", CheckState.UNKNOWN, "the server does not say what time it is")
        told_s = parse_date(self._date)
        if told_s is None:
            return Check("clock", CheckState.UNKNOWN, "the server sends no date that can be read")
        # Half a second more, because the server's time has whole seconds.
        ahead_s = time.time() - told_s - 0.5
        if abs(ahead_s) < 1:
            return Check("clock", CheckState.GOOD, "this machine's agrees with the table's")
        where = f"this machine's is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the table's"
        return Check("clock", _state(abs(ahead_s) <= CLOCK_LIMIT_S), where)

    def plan(self, replicas: Iterable[str]) -> list[MigrationStep]:
        """What is to be done so that the table is there, with ``replicas``. Raises `StoreError`."""
        wanted = [region for region in dict.fromkeys(replicas) if region != self.place.region]
        try:
            table = self._describe()
        except StoreError as trouble:
            if trouble.reason is not SourceReason.TABLE_MISSING:
                raise
            table = None
        steps: list[MigrationStep] = []
        if table is None:
            what = "Create the table: keys pk and sk (strings), billing on demand"
            steps.append(
                MigrationStep(f"{what}, with a stream" if wanted else what, lambda: self._create(stream=bool(wanted)))
            )
        else:
            keys = _check_keys(table)
            if keys.state is CheckState.BAD:
                raise StoreError(SourceReason.BAD_ANSWER, f"{self.place} is there, but its key {keys.detail}")
            if wanted and not table.get("StreamSpecification", {}).get("StreamEnabled"):
                steps.append(MigrationStep("Turn on its stream, which replicas need", self._turn_on_stream))
        steps.extend(self._plan_time_to_live(new=table is None))
        there = {replica["RegionName"] for replica in (table or {}).get("Replicas", ())}
        steps.extend(
            MigrationStep(f"Add a replica in {region}", partial(self._add_replica, region))
            for region in wanted
            if region not in there
        )
        return steps

    def _plan_time_to_live(self, *, new: bool) -> list[MigrationStep]:
        if not new:
            attribute = self._time_to_live()
            if attribute == TIME_TO_LIVE:
                return []
            if attribute:
                detail = f"{self.place} has a time to live by {attribute!r}: turn that off first, which takes an hour"
                raise StoreError(SourceReason.BAD_ANSWER, detail)
        return [MigrationStep(f"Turn on time to live by {TIME_TO_LIVE}", self._turn_on_time_to_live)]

    def _create(self, *, stream: bool) -> None:
        more = {"StreamSpecification": _STREAM} if stream else {}
        self._call(
            "create_table",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in KEYS.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in KEYS],
            **more,
        )
        self._wait()

    def _turn_on_stream(self) -> None:
        self._call("update_table", StreamSpecification=_STREAM)
        self._wait()

    def _turn_on_time_to_live(self) -> str | None:
        how = {"Enabled": True, "AttributeName": TIME_TO_LIVE}
        try:
            self._call("update_time_to_live", TimeToLiveSpecification=how)
        except StoreError as trouble:
            if trouble.code != UNKNOWN_OPERATION:
                raise
            return "this server does not know of it: what has ended stays in the table, and is read all the same"
        return None

    def _add_replica(self, region: str) -> None:
        self._call("update_table", ReplicaUpdates=[{"Create": {"RegionName": region}}])
        self._wait(region)

    def _wait(self, replica: str | None = None) -> None:
        """Until the table is active, and ``replica`` too."""
        deadline_s = time.monotonic() + WAIT_LIMIT_S
        while True:
            try:
                table = self._describe()
                status = {each["RegionName"]: each.get("ReplicaStatus") for each in table.get("Replicas", ())}
                if table["TableStatus"] == "ACTIVE" and (replica is None or status.get(replica) == "ACTIVE"):
                    return
            except StoreError as trouble:
                # A table that was just created may not be seen everywhere yet.
                if trouble.reason is not SourceReason.TABLE_MISSING:
                    raise
            if time.monotonic() > deadline_s:
                raise StoreError(SourceReason.TIMEOUT, f"{self.place} was not ready within {WAIT_LIMIT_S:.0f} s")
            self._sleep(POLL_S)

    def _describe(self) -> dict[str, Any]:
        table = self._call("describe_table").get("Table")
        if not isinstance(table, dict) or "TableStatus" not in table:
            raise StoreError(SourceReason.BAD_ANSWER, f"{self.place} does not answer as a table of DynamoDB does")
        return table

    def _time_to_live(self) -> str | None:
        """The attribute by which items expire; ``None`` where they do not."""
        found = self._call("describe_time_to_live").get("TimeToLiveDescription", {})
        on = found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        return str(found.get("AttributeName")) if on else None

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make a call about this table. Raises `StoreError`, `ConditionFailed`."""
        where = str(self.place)
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(TableName=self.place.table, **arguments)
        except ClientError as error:
            self._observe_date(error.response.get("ResponseMetadata", {}))
            said = error.response.get("Error", {})
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise meaning_of(status, said.get("Code", ""), said.get("Message", ""), where) from error
        except NoCredentialsError as error:
            raise StoreError(SourceReason.CREDENTIALS_MISSING, "No AWS credentials were found") from error
        except BotoCoreError as error:
            raise StoreError(SourceReason.UNREACHABLE, f"{where} cannot be asked: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # botocore's parser takes the answer for one of DynamoDB's, whatever it is.
            raise StoreError(SourceReason.BAD_ANSWER, f"{where} does not answer as DynamoDB does") from error
        self._observe_date(answer.get("ResponseMetadata", {}))
        return answer

    def _observe_date(self, metadata: Mapping[str, Any]) -> None:
        self._date = metadata.get("HTTPHeaders", {}).get("date", self._date)


_STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
UNKNOWN_OPERATION = "UnknownOperationException"


def _state(good: bool) -> CheckState:
    return CheckState.GOOD if good else CheckState.BAD


def _not_seen(what: str, trouble: StoreError) -> Check:
    """What could not be looked at. Not being permitted to look says nothing about what is there."""
    if trouble.reason is SourceReason.ACCESS_DENIED and trouble.code == "AccessDeniedException":
        return Check(what, CheckState.UNKNOWN, "not permitted to look, which the service does not need")
    if trouble.code == UNKNOWN_OPERATION:
        return Check(what, CheckState.UNKNOWN, "this server does not know of it")
    return _bad(what, trouble)


def _bad(what: str, trouble: StoreError) -> Check:
    return Check(what, CheckState.BAD, f"{trouble.reason}: {trouble.detail}")


def _check_keys(table: dict[str, Any]) -> Check:
    kinds = {key["AttributeName"]: key["KeyType"] for key in table.get("KeySchema", ())}
    types = {each["AttributeName"]: each["AttributeType"] for each in table.get("AttributeDefinitions", ())}
    if kinds == KEYS and all(types.get(name) == "S" for name in KEYS):
        return Check("keys", CheckState.GOOD, "pk and sk, strings")
    has = ", ".join(f"{name} ({kind}, {types.get(name, '?')})" for name, kind in kinds.items())
    return Check("keys", CheckState.BAD, f"is {has}; must be pk (HASH, S), sk (RANGE, S)")
