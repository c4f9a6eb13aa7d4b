"""Checks the table and creates it, for operators: the service calls none of this. Calls block."""

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import Session

from poolmuster.model.source import SourceReason
from poolmuster.sources.dynamodb.aws import SIGNING_REGION, TableLocation
from poolmuster.sources.dynamodb.errors import ConditionFailed, meaning_of
from poolmuster.sources.polled.server_clock import parse_date
from poolmuster.sources.polled.table import POOL, StoreError

TIME_TO_LIVE = "expires_at"
KEYS = {"pk": "HASH", "sk": "RANGE"}
NO_POOL = "poolmuster-table-check"
"""A sort key that is no pool's, as it has no ``#``."""

CLOCK_LIMIT_S = 10.0
"""The slack of the default lease: a clock off by more could matter."""

POLL_S = 2.0
WAIT_LIMIT_S = 1800.0
"""A replica of a large table takes long, of a new one some minutes."""


class CheckState(StrEnum):
    """``unknown``: the caller has no permission to look, or the server does not support the call."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """The result of one check."""

    what: str
    state: CheckState
    detail: str


class MigrationStep(msgspec.Struct, frozen=True):
    """One change to make: ``make`` returns once it is in effect, or why it is not. It raises `StoreError`."""

    text: str
    make: Callable[[], str | None]


class TableAdmin:
    """Checks and changes one table."""

    def __init__(self, session: Session, place: TableLocation) -> None:
        self.place = place
        self._date: str | None = None
        found = session.get_credentials()
        self.credentials = "none found"
        local: dict[str, Any] = {}
        if found is not None:
            access_key = found.get_frozen_credentials().access_key or ""
            self.credentials = f"{found.method} (access key ...{access_key[-4:]})"
        elif place.is_local:
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
        """All that the service needs of the table. Raises `StoreError` only where nothing can be checked at all."""
        checks = self._checked("table", self._check_description)
        if checks[0].state is not CheckState.BAD:
            checks += self._checked("time to live", self._check_time_to_live)
            checks += self._checked("permission dynamodb:Query", self._check_query)
            checks += self._checked("permission dynamodb:PutItem", self._check_put)
        return [*checks, self._check_clock()]

    @staticmethod
    def _checked(what: str, check: Callable[[str], list[Check]]) -> list[Check]:
        """What ``check`` returns; where it fails, that. No permission to describe the table is no fault of it."""
        try:
            return check(what)
        except StoreError as error:
            may_fail = not what.startswith("permission")
            if may_fail and error.code == "AccessDeniedException":
                return [Check(what, CheckState.UNKNOWN, "not permitted to look, which the service does not need")]
            if may_fail and error.code == UNKNOWN_OPERATION:
                return [Check(what, CheckState.UNKNOWN, "this server does not know of it")]
            return [Check(what, CheckState.BAD, f"{error.reason}: {error.detail}")]

    def _check_description(self, what: str) -> list[Check]:
        table = self._describe()
        billing = table.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        paid = "on demand" if billing == "PAY_PER_REQUEST" else "provisioned capacity"
        usable = table["TableStatus"] in ("ACTIVE", "UPDATING")
        checks = [Check(what, _state(usable), f"{table['TableStatus']}, {paid}"), _check_keys(table)]
        for replica in table.get("Replicas", ()):
            status = replica.get("ReplicaStatus", "of unknown status")
            checks.append(Check(f"replica {replica['RegionName']}", _state(status in ("ACTIVE", "UPDATING")), status))
        return checks

    def _check_time_to_live(self, what: str) -> list[Check]:
        attribute = self._time_to_live()
        if attribute == TIME_TO_LIVE:
            return [Check(what, CheckState.GOOD, f"on, by {attribute}")]
        detail = f"by {attribute!r}" if attribute else "off"
        return [Check(what, CheckState.BAD, f"{detail}; it must be on, by {TIME_TO_LIVE}")]

    def _check_query(self, what: str) -> list[Check]:
        values = {":p": {"S": POOL}}
        self._call("query", KeyConditionExpression="pk = :p", ExpressionAttributeValues=values, Limit=1)
        return [Check(what, CheckState.GOOD, "given")]

    def _check_put(self, what: str) -> list[Check]:
        item = {"pk": {"S": POOL}, "sk": {"S": NO_POOL}}
        try:
            self._call("put_item", Item=item, ConditionExpression="attribute_exists(pk) AND attribute_not_exists(pk)")
        except ConditionFailed:
            return [Check(what, CheckState.GOOD, "given; nothing was written")]
        return [Check(what, CheckState.BAD, f"this server takes puts whose condition does not hold: {NO_POOL}")]

    def _check_clock(self) -> Check:
        server_s = parse_date(self._date)
        if server_s is None:
            return Check("clock", CheckState.UNKNOWN, "the server sends no date that can be read")
        ahead_s = time.time() - server_s - 0.5  # as the server's time has whole seconds
        if abs(ahead_s) < 1:
            return Check("clock", CheckState.GOOD, "this machine's agrees with the table's")
        where = f"this machine's is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the table's"
        return Check("clock", _state(abs(ahead_s) <= CLOCK_LIMIT_S), where)

    def plan(self, replicas: Iterable[str]) -> list[MigrationStep]:
        """The steps by which the table is there, with ``replicas``. Raises `StoreError`."""
        wanted = [region for region in dict.fromkeys(replicas) if region != self.place.region]
        try:
            table = self._describe()
        except StoreError as error:
            if error.reason is not SourceReason.TABLE_MISSING:
                raise
            table = None
        steps: list[MigrationStep] = []
        if table is None:
            what = f"Create the table: keys pk and sk (strings), billing on demand{', with a stream' if wanted else ''}"
            steps.append(MigrationStep(what, partial(self._create, stream=bool(wanted))))
        else:
            keys = _check_keys(table)
            if keys.state is CheckState.BAD:
                raise StoreError(SourceReason.BAD_ANSWER, f"{self.place} is there, but its key {keys.detail}")
            if wanted and not table.get("StreamSpecification", {}).get("StreamEnabled"):
                turn_on = partial(self._update, StreamSpecification=_STREAM)
                steps.append(MigrationStep("Turn on its stream, which replicas need", turn_on))
        steps.extend(self._plan_time_to_live(new=table is None))
        there = {replica["RegionName"] for replica in (table or {}).get("Replicas", ())}
        for region in wanted:
            if region not in there:
                add = partial(self._update, region, ReplicaUpdates=[{"Create": {"RegionName": region}}])
                steps.append(MigrationStep(f"Add a replica in {region}", add))
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
        self._call(
            "create_table",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in KEYS.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in KEYS],
            **({"StreamSpecification": _STREAM} if stream else {}),
        )
        self._wait()

    def _update(self, replica: str | None = None, **change: Any) -> None:
        self._call("update_table", **change)
        self._wait(replica)

    def _turn_on_time_to_live(self) -> str | None:
        how = {"Enabled": True, "AttributeName": TIME_TO_LIVE}
        try:
            self._call("update_time_to_live", TimeToLiveSpecification=how)
        except StoreError as error:
            if error.code != UNKNOWN_OPERATION:
                raise
            return "this server does not know of it: what has ended stays in the table, and is read all the same"
        return None

    def _wait(self, replica: str | None = None) -> None:
        """Wait until the table is active, and ``replica`` too."""
        deadline_s = time.monotonic() + WAIT_LIMIT_S
        while True:
            try:
                table = self._describe()
                status = {each["RegionName"]: each.get("ReplicaStatus") for each in table.get("Replicas", ())}
                if table["TableStatus"] == "ACTIVE" and (replica is None or status.get(replica) == "ACTIVE"):
                    return
            except StoreError as error:
                # A table that was just created may not be visible everywhere yet.
                if error.reason is not SourceReason.TABLE_MISSING:
                    raise
            if time.monotonic() > deadline_s:
                raise StoreError(SourceReason.TIMEOUT, f"{self.place} was not ready within {WAIT_LIMIT_S:.0f} s")
            time.sleep(POLL_S)

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
            found = error.response.get("Error", {})
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise meaning_of(status, found.get("Code", ""), found.get("Message", ""), where) from error
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


def _check_keys(table: dict[str, Any]) -> Check:
    kinds = {key["AttributeName"]: key["KeyType"] for key in table.get("KeySchema", ())}
    types = {each["AttributeName"]: each["AttributeType"] for each in table.get("AttributeDefinitions", ())}
    if kinds == KEYS and all(types.get(name) == "S" for name in KEYS):
        return Check("keys", CheckState.GOOD, "pk and sk, strings")
    has = ", ".join(f"{name} ({kind}, {types.get(name, '?')})" for name, kind in kinds.items())
    return Check("keys", CheckState.BAD, f"is {has}; must be pk (HASH, S), sk (RANGE, S)")
