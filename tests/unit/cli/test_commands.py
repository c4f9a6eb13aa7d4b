"""The operator's commands: what they print, where, and how they end."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.exit_codes import NOT_ENOUGH
from poolmuster.cli.main import cli
from tests.unit.cli.stub import Canned, Stub, serving

NOWHERE = "http://127.0.0.1:1"
STALE = {"kind": "memory", "name": "m", "state": "stale", "reason": "warming_up", "clears_in_ms": 10_400}
POOL = {
    "cluster_id": "us-1",
    "namespace": "n/s",
    "dgd_name": "llama",
    "location": {"region": "us", "availability_zone": "us-a"},
    "models": [{"id": "m/llama", "aliases": ["l"], "context_window": 8192}, {"id": "other"}],
    "weight": 100,
    "frontend_url": "http://x",
    "labels": {"tier": "gold"},
    "big": 2**80,
}
EVIL = {"cluster_id": "eu\x1b[2J\n", "namespace": "n", "dgd_name": "\u202eb", "models": [{"id": "\x9b1m"}]}


def listing(*pools: dict[str, Any], complete: bool = True) -> Canned:
    sources = [] if complete else [STALE]
    return Canned(document={"pools": list(pools), "complete": complete, "revision": "b.1", "sources": sources})


def run(stub: Stub | None, *args: str, stdin: str | None = None, **env: str) -> Result:
    url = NOWHERE if stub is None else stub.url
    return CliRunner().invoke(cli, args, input=stdin, prog_name="poolmuster", env={"POOLMUSTER_DISCOVERY": url, **env})


@pytest.mark.parametrize(
    "command", [["pools"], ["pools", "-w"], ["why", "c/n/d"], ["changes"], ["deregister", "c/n/d"]]
)
def test_a_service_that_cannot_be_reached_is_one_line(command: list[str]) -> None:
    result = run(None, *command)
    assert result.exit_code == 1
    assert result.stderr == f"poolmuster: {NOWHERE} cannot be reached: Connection refused.\n"


def test_variables_of_other_commands_are_known_and_those_of_none_are_named() -> None:
    with serving({"GET /pools": listing()}) as stub:
        result = run(stub, "pools", POOLMUSTER_LEASE_DURATION_SECS="9", POOLMUSTER_LEASE_SECS="9")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert "POOLMUSTER_LEASE_SECS" in line


def test_pools_as_a_table_for_a_pipe() -> None:
    with serving({"GET /pools": listing(POOL, EVIL)}) as stub:
        narrow, wide = run(stub, "pools"), run(stub, "pools", "-o", "wide")
    assert narrow.stdout.splitlines() == [
        "CLUSTER       NAMESPACE   NAME      REGION   MODELS",
        "us-1          n/s         llama     us       m/llama, other",
        "eu\\x1b[2J\\n   n           \\u202eb   -        \\x9b1m",
    ]
    assert "us-a   l         8192, -   100      http://x   tier=gold" in wide.stdout
    assert narrow.stderr == ""


def test_pools_as_names_can_be_handed_back() -> None:
    with serving({"GET /pools": listing(POOL, EVIL)}) as stub:
        names = run(stub, "pools", "-o", "name").stdout.splitlines()
        assert names == ["us-1/n%2Fs/llama", "eu%1B[2J%0A/n/%E2%80%AEb"]
        run(stub, "why", names[0])
    assert stub.requests[1] == "GET /pools/us-1/n%2Fs/llama"


def test_pools_as_json_are_the_answer_itself() -> None:
    answer = listing(POOL)
    with serving({"GET /pools": answer}) as stub:
        assert run(stub, "pools", "-o", "json").stdout == answer.body.decode() + "\n"


def test_filters_reach_the_service_and_those_of_the_environment_are_told() -> None:
    with serving({"GET /pools": listing()}) as stub:
        result = run(stub, "pools", "--model", "a", "--model", "b", "--label", "x=1", POOLMUSTER_NAMESPACE="here")
    assert stub.requests == ["GET /pools?model=a&model=b&namespace=here&label=x%3D1"]
    assert result.stderr == "poolmuster: filtered by POOLMUSTER_NAMESPACE=here\n"


def test_an_estimated_list_says_why_and_until_when() -> None:
    with serving({"GET /pools": listing(complete=False)}) as stub:
        result, required = run(stub, "pools"), run(stub, "pools", "--require-complete")
    assert (result.exit_code, required.exit_code) == (0, 3)
    assert "memory m is stale (warming_up); complete in 11 s" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args", [["--require-complete", "-w"], ["-w", "-o", "name"], ["-o", "xml"], ["--token-file", "x"]]
)
def test_what_pools_does_not_do_is_a_usage_mistake(args: list[str]) -> None:
    result = run(None, "pools", *args)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_an_answer_of_something_else_is_one_line() -> None:
    with serving({"GET /pools": Canned(raw=b"<html>", content_type="text/html")}) as stub:
        result = run(stub, "pools")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_refusal_is_one_line_with_every_fault_and_nothing_for_the_terminal() -> None:
    problem = {
        "type": "urn:poolmuster:invalid",
        "detail": "Not \x1b[2J valid.",
        "errors": [{"pointer": "/a", "detail": "bad"}],
    }
    with serving({"POST /pools": Canned(400, problem)}) as stub:
        result = run(stub, "register", "--file", "-", stdin="{}")
    assert (result.exit_code, result.stderr) == (1, "poolmuster: Not \\x1b[2J valid. /a: bad.\n")


def test_register_by_flags() -> None:
    lease = {"duration_ms": 15_000, "heartbeat_interval_ms": 5_000, "ends_at_ms": 0}
    answer = {"lease": lease, "routers": [{"id": "r", "url": "http://r"}], "conflict": True}
    with serving({"POST /pools": Canned(201, answer)}) as stub:
        flags = "--cluster-id c --name d --region r --weight 0 --model a --model b --model-alias a=x --label k=v"
        result = run(stub, "register", *flags.split())
    assert json.loads(stub.bodies[0]) == {
        "cluster_id": "c",
        "namespace": "default",
        "dgd_name": "d",
        "weight": 0,
        "location": {"region": "r"},
        "models": [{"id": "a", "aliases": ["x"]}, {"id": "b"}],
        "labels": {"k": "v"},
    }
    assert result.stdout.splitlines() == [
        "c/default/d: lease of 15 s, ends 1970-01-01T00:00:00Z, register again every 5 s",
        "router r: http://r",
    ]
    assert "another relay" in result.stderr


def test_register_sends_a_file_as_it_is() -> None:
    lease = {"duration_ms": 1, "heartbeat_interval_ms": 1, "ends_at_ms": 1}
    text = '{"cluster_id": "c", "namespace":"n",  "dgd_name":"d", "x": 1e2}'
    with serving({"POST /pools": Canned(201, {"lease": lease})}) as stub:
        assert run(stub, "register", "--file", "-", stdin=text).exit_code == 0
    assert stub.bodies == [text.encode()]


@pytest.mark.parametrize(
    ("args", "env", "named"),
    [
        (["--name", "d"], {}, "--cluster-id"),
        (["--cluster-id", "c"], {}, "--name"),
        (["--cluster-id", "c", "--name", "d", "--model-alias", "m=x"], {}, "--model-alias"),
        (["--file", "-", "--weight", "1"], {}, "--weight"),
        (["--file", "-"], {"POOLMUSTER_REGION": "r"}, "--region (set by POOLMUSTER_REGION)"),
    ],
)
def test_register_refuses_what_does_not_go_together(args: list[str], env: dict[str, str], named: str) -> None:
    result = run(None, "register", *args, stdin="{}", **env)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert named in result.stderr


def test_deregister() -> None:
    with serving({"DELETE /pools/c/n/d": Canned(204)}) as stub:
        plain = run(stub, "deregister", "c/n/d")
        whole = run(stub, "deregister", "c/n/d", "--relay-id", "r", "--reason", "no_models", "--detail", "why not")
    assert stub.requests == [
        "DELETE /pools/c/n/d?reason=operator",
        "DELETE /pools/c/n/d?relay_id=r&reason=no_models&detail=why%20not",
    ]
    assert plain.stdout == "c/n/d: off the list\n"
    assert "'r'" in whole.stdout


def test_a_key_that_is_none_is_a_usage_mistake() -> None:
    for key in ("c/n", "c/n/", "c/n/%FF", "c/ /d"):
        result = run(None, "deregister", key)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), key


def test_status_has_a_row_for_each_instance_and_fails_if_one_is_away() -> None:
    status = {
        "instance": {"id": "b", "version": "1", "uptime_ms": 61_000, "stopping": False},
        "registration_storage": "memory",
        "lease_ms": 15_000,
        "pools": 3,
        "complete": False,
        "sources": [STALE],
        "watchers": 2,
        "revision": "b.1",
        "conflicts": [{"key": {"cluster_id": "c", "namespace": "n", "dgd_name": "d"}, "relay_ids": ["r1", "r2"]}],
    }
    with serving({"GET /status": Canned(document=status)}) as stub:
        result = run(None, "status", "--discovery", f"{stub.url},{NOWHERE}")
        as_json = run(None, "status", "-o", "json", "--discovery", f"{stub.url} {NOWHERE}")
    assert result.exit_code == 1
    header, first, second = result.stdout.splitlines()
    assert header.split()[:3] == ["INSTANCE", "STATE", "POOLS"]
    assert first.split() == f"{stub.url} estimated 3 memory 15 s 2 1 1 min 1 s 1 b.1".split()
    assert second.split()[:2] == [NOWHERE, "unreachable"]
    assert "complete in 11 s" in result.stderr
    assert "c/n/d is registered in turn by r1, r2" in result.stderr
    good, bad = map(json.loads, as_json.stdout.splitlines())
    assert (good["status"], good["error"]) == (status, None)
    assert bad["status"] is None
    assert "Connection refused" in bad["error"]


def test_changes() -> None:
    key = {"cluster_id": "c", "namespace": "n", "dgd_name": "d"}
    document = {
        "changes": [
            {"type": "added", "at_ms": 1_000, "key": key, "pool": key},
            {
                "type": "removed",
                "at_ms": 2_000,
                "key": key,
                "cause": "deregistered",
                "reason": "operator",
                "detail": "\x07",
            },
            {"type": "completeness", "at_ms": 3_000, "complete": False},
            {"type": "of the future"},
            5,
        ],
        "reaches_back": False,
        "known_since_at_ms": 0,
    }
    with serving({"GET /changes": Canned(document=document)}) as stub:
        result = run(stub, "changes", "--since", "60", "--region", "r")
        as_json = run(stub, "changes", "-o", "json")
    assert stub.requests == ["GET /changes?since=60.0&region=r", "GET /changes"]
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["1970-01-01T00:00:01Z", "added", "c/n/d", "-", "-", "-"],
        ["1970-01-01T00:00:02Z", "removed", "c/n/d", "deregistered", "operator", "\\x07"],
        ["1970-01-01T00:00:03Z", "estimated", "-", "-", "-", "-"],
        ["-", "of", "the", "future", "-", "-", "-", "-"],
    ]
    assert "since 1970-01-01T00:00:00Z only" in result.stderr
    assert json.loads(as_json.stdout) == document


def test_why_a_pool_is_listed() -> None:
    report = {
        "listed": True,
        "pool": POOL,
        "lease": {"ends_at_ms": 0, "relay_id": "r1"},
        "conflict": {"relay_ids": ["a", "b"]},
    }
    with serving({"GET /pools/us-1/n%2Fs/llama": Canned(document=report)}) as stub:
        good = run(stub, "why", "us-1/n%2Fs/llama", "--model", "l")
        bad = run(stub, "why", "us-1/n%2Fs/llama", "--model", "z")
    assert good.exit_code == 0
    assert good.stdout.splitlines() == [
        "ok     registration  registered by relay r1",
        "ok     lease         ends in 0 s unless renewed",
        "note   conflict      relays register it in turn: a, b",
        "ok     model         l is listed",
        "us-1/n%2Fs/llama is listed",
    ]
    assert bad.exit_code == 1
    assert "FAILS  model" in bad.stdout


@pytest.mark.parametrize(
    ("removal", "step", "text"),
    [
        ({"cause": "expired", "at_ms": 0}, "lease", "ended at 1970-01-01T00:00:00Z"),
        ({"cause": "deregistered", "at_ms": 0, "reason": "no_models", "detail": "x"}, "registration", "(no_models: x)"),
        ({"cause": "unlisted", "at_ms": 0}, "topology", "unlisted"),
        (None, "registration", "none is remembered"),
    ],
)
def test_why_a_pool_is_not_listed(removal: dict[str, Any] | None, step: str, text: str) -> None:
    report = {"listed": False, "pool": None, "removal": removal, "complete": False, "sources": [STALE]}
    with serving({"GET /pools/c/n/d": Canned(document=report)}) as stub:
        result = run(stub, "why", "c/n/d")
    assert result.exit_code == 1
    failing = next(line for line in result.stdout.splitlines() if line.startswith("FAILS"))
    assert failing.split()[1] == step
    assert text in failing
    assert "estimated" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"c/n/d is not listed: {step}: ")


def test_why_a_pool_nobody_knows_is_not_listed() -> None:
    near = {"cluster_id": "c", "namespace": "n", "dgd_name": "dd"}
    with serving({"GET /pools": listing(near)}) as stub:
        result = run(stub, "why", "c/n/d")
    assert result.exit_code == 1
    assert "The nearest that is listed: c/n/dd" in result.stdout


def watch_of(*events: dict[str, Any]) -> Canned:
    raw = b"".join(json.dumps(each).encode() + b"\n" for each in events)
    return Canned(content_type="application/x-ndjson", raw=raw)


def test_a_watch_that_is_refused_ends_with_its_reason() -> None:
    with serving({"GET /pools/watch": Canned(403, {"type": "urn:poolmuster:forbidden", "detail": "No."})}) as stub:
        result = run(stub, "pools", "-w")
    assert (result.exit_code, result.stderr) == (1, f"poolmuster: No. {NOT_ENOUGH}\n")
