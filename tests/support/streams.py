"""Reading a watch in tests, in both formats, without the client's code."""

import json
from typing import Any

Event = dict[str, Any]


def read_sse(data: bytes) -> list[Event]:
    """Whole events of a stream so far. A comment is a ping; an event's id is checked against the one inside."""
    events: list[Event] = []
    blocks = data.split(b"\n\n")
    for block in blocks[:-1]:
        fields: dict[str, str] = {}
        for line in block.decode().split("\n"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        if "data" in fields:
            event = json.loads(fields["data"])
            assert event["id"] == fields["id"], "one event has two ids"
            events.append(event)
        else:
            events.append({"type": "ping"})
    return events


def read_ndjson(data: bytes) -> list[Event]:
    """Whole lines of a stream so far."""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


class Copy:
    """What a watcher that believes all it is told would hold of the list."""

    def __init__(self) -> None:
        self.pools: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.complete: bool | None = None
        self.last_id: str | None = None
        self.snapshots = 0

    def take(self, event: Event) -> None:
        """Take in one event."""
        self.last_id = event.get("id", self.last_id)
        match event["type"]:
            case "snapshot":
                self.snapshots += 1
                self.pools = {_key(pool): pool for pool in event["pools"]}
                self.complete = event["complete"]
            case "added":
                assert _key(event["pool"]) not in self.pools, "added, though it was there"
                self.pools[_key(event["pool"])] = event["pool"]
            case "changed":
                assert _key(event["pool"]) in self.pools, "changed, though it was not there"
                self.pools[_key(event["pool"])] = event["pool"]
            case "removed":
                del self.pools[_key(event["key"])]
            case "completeness":
                self.complete = event["complete"]
            case "ping" | "closing":
                pass
            case other:
                raise AssertionError(f"an event of the unknown type {other}")

    @property
    def pools_json(self) -> bytes:
        """The list's member ``pools``, in canonical form."""
        pools = [self.pools[key] for key in sorted(self.pools)]
        return json.dumps(pools, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _key(of: dict[str, Any]) -> tuple[str, str, str]:
    return (of["cluster_id"], of["namespace"], of["dgd_name"])
