"""Real DynamoDB servers for tests.

The default is ministack, which is in the lock file, or what ``DYNAMODB_URL`` names: a real table's endpoint too, with
credentials from the AWS environment. The second is dynalite, where ``make parts`` has installed it.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.sources.dynamodb.items import Attributes, attributes_of
from poolmuster.sources.polled.items import live_item
from tests.support.parts import BOTOCORE, DYNALITE
from tests.support.ports import free_port

URL_VARIABLE = "DYNAMODB_URL"
REGION = "us-east-1"
START_TIMEOUT_S = 30.0
BATCH = 25

NOWHERE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""Variables under which no AWS library looks beyond this machine, or into its owner's files."""

_tables = itertools.count(1)


class Unfaithful(StrEnum):
    """Where a server is known to differ from DynamoDB. Tests that come upon it say so by this name."""

    TIME_TO_LIVE = "its time to live is off and cannot be turned on"
    KEY_CHARACTERS = "it counts a key's length in characters, where DynamoDB counts bytes"


KNOWN_TO_DIFFER: dict[str, frozenset[Unfaithful]] = {"dynalite": frozenset(Unfaithful)}
"""By the server's name."""


class TableServer:
    """A running server. Every test makes itself a table."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._clients: dict[str, Any] = {}

    @property
    def differs(self) -> frozenset[Unfaithful]:
        """Where it is known to differ from DynamoDB."""
        return KNOWN_TO_DIFFER.get(self.name, frozenset())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, region: str) -> Any:
        """A client of this server in a region, which it may keep tables apart by."""
        from botocore.session import Session  # late: the tests of what needs no extra run without it

        if region not in self._clients:
            session = Session()
            found = session.get_credentials() if URL_VARIABLE in os.environ else None
            self._clients[region] = session.create_client(
                "dynamodb",
                region_name=region,
                endpoint_url=self.url,
                aws_access_key_id=found.access_key if found else "test",
                aws_secret_access_key=found.secret_key if found else "test",
                aws_session_token=found.token if found else None,
            )
        return self._clients[region]

    def create(self, region: str | None = None) -> "Table":
        """A new, empty table of the layout, ready for use."""
        client = self.client(region or os.environ.get("AWS_REGION", REGION))
        name = f"poolmuster-test-{next(_tables)}-{uuid.uuid4().hex[:12]}"
        client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 0.05, "MaxAttempts": 1200})
        return Table(self, client, name)


def item_key(key: PoolKey) -> Attributes:
    """The primary key under which ``key`` is stored."""
    return {"pk": {"S": "POOL"}, "sk": {"S": key.storage_key}}


def live_attributes(registration: Registration, *, ends_ms: int, lease_ms: int, writer: str) -> Attributes:
    """The item of a registration as DynamoDB has it."""
    return attributes_of(live_item(registration, ends_ms=ends_ms, lease_ms=lease_ms, writer=writer))


class Table:
    """One table of a server, written and read as another implementation would."""

    def __init__(self, server: TableServer, client: Any, name: str) -> None:
        self.server = server
        self._client = client
        self.name = name

    def put(self, item: Attributes) -> None:
        self._client.put_item(TableName=self.name, Item=item)

    def put_all(self, items: Iterable[Attributes]) -> None:
        """Put many, none of which shares its key with another."""
        rest = list(items)
        while rest:
            batch, rest = rest[:BATCH], rest[BATCH:]
            answer: Any = self._client.batch_write_item(
                RequestItems={self.name: [{"PutRequest": {"Item": item}} for item in batch]}
            )
            rest += [each["PutRequest"]["Item"] for each in answer["UnprocessedItems"].get(self.name, [])]

    def put_foreign(self, registration: Registration, ends_ms: int) -> None:
        """Put what an implementation writes that knows the shared attributes only."""
        item = live_attributes(registration, ends_ms=ends_ms, lease_ms=1, writer="x")
        self.put({name: item[name] for name in ("pk", "sk", "registration", "lease_ends_ms", "expires_at")})

    def items(self) -> list[dict[str, Any]]:
        """Every item there is."""
        found: list[dict[str, Any]] = []
        for page in self._client.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True):
            found += page["Items"]
        return found

    def query(self) -> list[dict[str, Any]]:
        """The server's answer to a query of all pools, page by page."""
        query = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "POOL"}}}
        pages = self._client.get_paginator("query").paginate(TableName=self.name, ConsistentRead=True, **query)
        return [{name: value for name, value in page.items() if name != "ResponseMetadata"} for page in pages]

    def delete(self, item: Attributes) -> None:
        self._client.delete_item(TableName=self.name, Key={name: item[name] for name in ("pk", "sk")})

    def drop(self) -> None:
        """Delete the table."""
        self._client.delete_table(TableName=self.name)


@contextlib.contextmanager
def ministack(folder: Path) -> Iterator[TableServer]:
    """A ministack in a process of its own, on loopback."""
    port = free_port()
    env = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "SERVICES": "dynamodb", "LOG_LEVEL": "WARNING"}
    # Its script is its interface, and lies beside the interpreter that the tests run on.
    script = Path(sys.executable).with_name("ministack")
    with _running([sys.executable, str(script)], env, folder / "ministack.log", port) as url:
        yield from _serving(url, "ministack")


@contextlib.contextmanager
def dynalite(folder: Path) -> Iterator[TableServer]:
    """A dynalite in a process of its own; the calling test is left out where it is not here."""
    BOTOCORE.require()
    program = DYNALITE.require()
    port = free_port()
    wait_not = ("--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0")
    command = ["node", str(program), "--host", "127.0.0.1", "--port", str(port), *wait_not]
    with _running(command, {}, folder / "dynalite.log", port) as url:
        yield from _serving(url, "dynalite")


@contextlib.contextmanager
def default_server(folder: Path) -> Iterator[TableServer]:
    """The server that ``DYNAMODB_URL`` names, else ministack."""
    BOTOCORE.require()
    url = os.environ.get(URL_VARIABLE)
    if url:
        yield from _serving(url, "DYNAMODB_URL")
        return
    with ministack(folder) as server:
        yield server


def _serving(url: str, name: str) -> Iterator[TableServer]:
    server = TableServer(url, name)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def _running(command: list[str], env: dict[str, str], log: Path, port: int) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | NOWHERE | env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
        )
    try:
        _wait_up(url, process, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_up(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    ends_s = time.monotonic() + START_TIMEOUT_S
    while True:
        request = urllib.request.Request(  # noqa: S310  # the address is ours
            url,
            data=msgspec.json.encode({}),
            headers={
                "X-Amz-Target": "DynamoDB_20120810.ListTables",
                "Content-Type": "application/x-amz-json-1.0",
                "Authorization": f"AWS4-HMAC-SHA256 Credential=t/20260101/{REGION}/dynamodb/aws4_request, "
                "SignedHeaders=host;x-amz-date, Signature=0",
                "X-Amz-Date": "20260101T000000Z",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=2):  # noqa: S310  # the address is ours
                return
        except urllib.error.HTTPError as answer:
            with answer:
                return  # it speaks
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > ends_s:
            raise AssertionError(f"{command_of(process)} did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


def command_of(process: "subprocess.Popen[bytes]") -> str:
    """What was started, for people."""
    return " ".join(str(word) for word in process.args) if isinstance(process.args, list) else str(process.args)
