"""``python -m bench.table_by_heart PORT POOLS``: a table that answers a query in no time, as nobody's real one does.

What is measured with it is the service alone. Its pools are renewed every five seconds, a fifth of them between any two
reads; pages are cut where DynamoDB cuts them.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

from bench.pools import body
from bench.table_servers import dumps, item_bytes
from poolmuster.model.registration import parse_registration
from poolmuster.sources.dynamodb.items import Attributes, attributes_of
from poolmuster.sources.polled.items import live_item

PAGE_BYTES = 1 << 20
HEARTBEAT_S = 5
LEASE_MS = 15_000
HEAD_END = b"\r\n\r\n"
DIGITS = 13
"""Of an instant in milliseconds, for the next two centuries."""


def _place(group: int) -> str:
    """What stands in a page where the ends of one group's leases will."""
    return f"@{group}".ljust(DIGITS, "@")


class Pages:
    """All items, in order, as the answers to queries."""

    def __init__(self, pools: int) -> None:
        registrations = sorted(
            (parse_registration(body(number)) for number in range(pools)),
            key=lambda each: each.key.storage_key.encode(),
        )
        self._pages: list[bytes] = []
        self._number_after: dict[str | None, int] = {None: 0}
        page: list[bytes] = []
        size = 0
        for number, registration in enumerate(registrations):
            item = attributes_of(live_item(registration, ends_ms=0, lease_ms=LEASE_MS, writer="-/another"))
            item["lease_ends_ms"] = {"N": _place(number % HEARTBEAT_S)}
            size += item_bytes(item)
            page.append(dumps(item))
            last = number == pools - 1
            if size >= PAGE_BYTES or last:
                more: Attributes | None = None if last else {name: item[name] for name in ("pk", "sk")}
                self._pages.append(_page(page, size, more))
                self._number_after[registration.key.storage_key] = len(self._pages)
                page, size = [], 0

    def after(self, start: Attributes | None) -> bytes:
        """The page that begins after the key ``start``, as of now."""
        page = self._pages[self._number_after[start["sk"]["S"] if start else None]]
        now_s = time.time()
        for group in range(HEARTBEAT_S):
            renewed_s = (now_s - group) // HEARTBEAT_S * HEARTBEAT_S + group
            page = page.replace(_place(group).encode(), b"%d" % (renewed_s * 1000 + LEASE_MS))
        return page


def _page(items: list[bytes], size: int, more: Attributes | None) -> bytes:
    rest: dict[str, object] = {"Count": len(items), "ConsumedCapacity": {"CapacityUnits": (size + 4095) // 4096}}
    if more is not None:
        rest["LastEvaluatedKey"] = more
    return b'{"Items":[' + b",".join(items) + b"]," + dumps(rest)[1:]


class Connection(asyncio.Protocol):
    """One connection; its client sends one request at a time."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, content = self._data.partition(HEAD_END)
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if not end or len(content) < length:
            return
        self._data = b""
        answer = self._pages.after(json.loads(content).get("ExclusiveStartKey")) if b".Query" in head else b"{}"
        assert self._transport is not None, "connected"
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n")
        self._transport.write(b"Content-Length: %d\r\n\r\n" % len(answer) + answer)


async def _main(port: int, pools: int) -> None:
    pages = Pages(pools)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pages), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(int(sys.argv[1]), int(sys.argv[2])))
