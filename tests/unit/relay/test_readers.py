"""What the relay reads: labels, pools, tokens, URLs; and what it makes of them."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import DeregistrationReason
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import parse_registration
from poolmuster.platform.files import WatchedFile, parse_token
from poolmuster.relay.discovery import document_of, with_relay_id
from poolmuster.relay.pools_file import parse_pools
from poolmuster.relay.probe import HealthState, Healthy, ServedModel, Unhealthy
from poolmuster.relay.settings import (
    PoolDefaults,
    PoolSettings,
    is_local,
    pod_namespace,
    server_root,
    unreachable_announcement,
    validate_health_path,
)
from poolmuster.relay.watched_files import parse_labels

KEY = PoolKey("c", "ns", "n")
POOL = PoolSettings(key=KEY, frontend_url="http://h:1", advertise_url="https://a.example.com")
HERE = ("http://127.0.0.1:8080",)
ELSEWHERE = ("http://localhost:8080", "https://discovery.example.com")


def go_quote(text: str) -> str:
    """As Go's ``%q`` writes what it takes for unprintable, and for the rest of the control characters."""
    simple = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    simple |= {"\\": "\\\\", '"': '\\"'}
    escaped = ""
    for char in text:
        point = ord(char)
        if char in simple:
            escaped += simple[char]
        elif point < 0x20 or point == 0x7F:
            escaped += f"\\x{point:02x}"
        elif char.isprintable():
            escaped += char
        else:
            escaped += f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
    return f'"{escaped}"'


NAMES = st.from_regex(r"[a-z]([a-z0-9.-]{0,10}/)?[a-z0-9]{1,10}-label", fullmatch=True)


@given(st.dictionaries(NAMES, st.text(max_size=40), max_size=6))
def test_labels_come_out_as_the_downward_api_put_them_in(labels: dict[str, str]) -> None:
    content = "\n".join(f"{name}={go_quote(value)}" for name, value in labels.items())
    assert parse_labels(content.encode()) == labels


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"", {}),
        (b'tier="gold"\n\nbuild="two"\n', {"tier": "gold", "build": "two"}),
        (b'a="\\xc3\\xa9"', {"a": "é"}),
        (b'a="\\xff"', {"a": "\N{REPLACEMENT CHARACTER}"}),
        (b'a="x=\\"y\\""\r\n', {"a": 'x="y"'}),
        (b'app="x"\npod-template-hash="7d9f"\n', {"app": "x"}),
        (b'a=""', {"a": ""}),
    ],
)
def test_labels_of_a_file(content: bytes, labels: dict[str, str]) -> None:
    assert parse_labels(content) == labels


@pytest.mark.parametrize(
    "content", [b"tier=gold", b'="x"', b'a="x', b'a="\\q"', b'a="\\ud800"', b'a="\\U00110000"', b"\xff", b'a="x" b']
)
def test_a_labels_file_of_another_form_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_labels(content)


@pytest.mark.parametrize(
    ("url", "root", "shortened"),
    [
        ("http://h:8000", "http://h:8000", False),
        ("http://h:8000/v1", "http://h:8000", True),
        ("http://h:8000/v1/", "http://h:8000", True),
        ("http://h/prefix/v1", "http://h/prefix", True),
        ("http://h/xv1", "http://h/xv1", False),
        ("http://v1", "http://v1", False),
    ],
)
def test_the_root_of_a_server(url: str, root: str, shortened: bool) -> None:
    assert server_root(url) == (root, shortened)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "127.0.0.1",
        "127.9.9.9",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:0.0.0.0]",
    ],
)
def test_hosts_that_mean_this_machine(host: str) -> None:
    assert is_local(f"http://{host}:8000")
    assert unreachable_announcement(f"http://{host}:8000", HERE) is None
    assert unreachable_announcement(f"http://{host}:8000", ELSEWHERE) == ELSEWHERE[1]


@pytest.mark.parametrize(
    "host", ["example.com", "10.0.0.1", "[2001:db8::1]", "[::ffff:10.0.0.1]", "mylocalhost", "[fe80::1%25eth0]"]
)
def test_hosts_that_others_can_reach(host: str) -> None:
    assert not is_local(f"http://{host}")
    assert unreachable_announcement(f"http://{host}", ELSEWHERE) is None


def test_facts_are_a_registration_of_all_that_is_known() -> None:
    settings = PoolSettings(
        key=KEY,
        frontend_url="http://10.0.0.1:8000",
        advertise_url="https://a.example.com",
        region="r",
        availability_zone="ra",
        weight=0,
        labels=(("tier", "gold"),),
        aliases=(("org/b", "bee"), ("org/b", "b"), ("not-served", "x")),
    )
    models = (ServedModel("org/b", 4096), ServedModel("a"))
    facts = document_of(settings, {"tier": "iron", "zone": "z"}, models)
    assert json.loads(facts) == {
        "cluster_id": "c",
        "namespace": "ns",
        "dgd_name": "n",
        "frontend_url": "https://a.example.com",
        "location": {"region": "r", "availability_zone": "ra"},
        "weight": 0,
        "labels": {"tier": "gold", "zone": "z"},
        "models": [{"id": "a"}, {"id": "org/b", "aliases": ["b", "bee"], "context_window": 4096}],
    }
    registration = parse_registration(with_relay_id(facts, 'odd "id"'))
    assert registration.relay_id == 'odd "id"'
    assert registration.pool.body == facts


@given(st.permutations([ServedModel("a"), ServedModel("b", 1), ServedModel("c/d:e.f")]))
def test_equal_facts_are_equal_bytes_whatever_the_order_of_the_models(models: list[ServedModel]) -> None:
    assert document_of(POOL, {}, tuple(models)) == document_of(POOL, {}, tuple(reversed(models)))


def test_a_server_is_up_with_the_first_good_probe_and_down_after_enough_failed_ones() -> None:
    verdict = HealthState(unhealthy_after=3)
    serving, unfit = Healthy((ServedModel("a"),)), Unhealthy(DeregistrationReason.NO_MODELS, "none")
    assert (verdict.current, verdict.failures) == (None, 0)
    verdict.record(unfit)
    assert (verdict.current, verdict.failures) == (unfit, 1)
    verdict.record(serving)
    for failures in (1, 2):
        verdict.record(unfit)
        assert (verdict.current, verdict.latest, verdict.failures) == (serving, unfit, failures)
    verdict.record(unfit)
    assert verdict.current == unfit


def test_good_probes_between_failed_ones_keep_a_server_up() -> None:
    verdict = HealthState(unhealthy_after=2)
    serving, unfit = Healthy((ServedModel("a"),)), Unhealthy(DeregistrationReason.FRONTEND_UNHEALTHY, "500")
    for finding in (serving, unfit) * 5:
        verdict.record(finding)
        assert verdict.current == serving


POOLS = b"""
[[pools]]
name = "llama"
frontend = "http://llama.inference.svc:8000/v1"

[[pools]]
name = "qwen"
frontend = "http://10.0.0.2:8000"
cluster_id = "other"
namespace = "team"
advertise_url = "https://qwen.example.com/"
health_path = "/healthz"
frontend_token_file = "/t"
frontend_ca_cert = "/c"
region = "eu"
availability_zone = "eu-a"
weight = 7
labels_file = "/l"
labels = { tier = "gold", team = "a" }
aliases = { "Qwen/Qwen3-32B" = ["qwen", "q"] }
"""

DEFAULTS = PoolDefaults(cluster_id="c", namespace="ns", region="us", labels=(("tier", "iron"),))


def test_a_pools_file_takes_from_the_flags_what_it_does_not_say() -> None:
    llama, qwen = parse_pools(POOLS, DEFAULTS, ELSEWHERE).settings
    assert llama == PoolSettings(
        key=PoolKey("c", "ns", "llama"),
        frontend_url="http://llama.inference.svc:8000",
        advertise_url="http://llama.inference.svc:8000",
        region="us",
        labels=(("tier", "iron"),),
    )
    assert qwen == PoolSettings(
        key=PoolKey("other", "team", "qwen"),
        frontend_url="http://10.0.0.2:8000",
        advertise_url="https://qwen.example.com",
        health_path="/healthz",
        token_file="/t",
        ca_cert="/c",
        region="eu",
        availability_zone="eu-a",
        weight=7,
        labels_file="/l",
        labels=(("tier", "gold"), ("team", "a")),
        aliases=(("Qwen/Qwen3-32B", "qwen"), ("Qwen/Qwen3-32B", "q")),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"pools = 3", "not a list of pools"),
        (b"[[pools]]\nname = 'a'", "frontend"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://h'\ncolour = 'red'", "colour"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'ftp://h'", "/pools/0/frontend"),
        (b"[[pools]]\nname = ''\nfrontend = 'http://h'", "/pools/0/dgd_name"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://h'\nweight = -1", "/pools/0/weight"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://h'\nhealth_path = 'x'", "/pools/0/health_path"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://h'\n[[pools]]\nname = 'a'\nfrontend = 'http://h'", "twice"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://localhost:8000'", "elsewhere"),
        (b"= =", "not TOML"),
        (b"\xff", "not TOML"),
        (b"[[pools]]\nname = 'a'\nfrontend = 'http://h'\n" * 1001, "at most"),
    ],
)
def test_a_pools_file_that_is_wrong_says_where(content: bytes, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_pools(content, DEFAULTS, ELSEWHERE)
    assert says in caught.value.detail + "".join(
        f"{fault.pointer} {fault.detail}" for fault in caught.value.field_errors
    )


def test_a_v1_in_a_pools_file_is_taken_off_and_said() -> None:
    content = POOLS.replace(b"https://qwen.example.com/", b"https://qwen.example.com/v1/")
    pools = parse_pools(content, DEFAULTS, ELSEWHERE)
    assert [pool.advertise_url for pool in pools.settings] == [
        "http://llama.inference.svc:8000",
        "https://qwen.example.com",
    ]
    assert pools.warnings == (
        "the /v1 at the end of frontend of llama is taken off: http://llama.inference.svc:8000 is used",
        "the /v1 at the end of advertise_url of qwen is taken off: https://qwen.example.com is used",
    )


def test_a_pool_without_a_cluster_anywhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not valid"):
        parse_pools(POOLS, PoolDefaults(), HERE)


@pytest.mark.parametrize("path", ["health", "", "/he alth", "/é", "/x#y"])
def test_health_paths_that_are_none(path: str) -> None:
    assert validate_health_path(path) is not None


def test_the_namespace_is_the_pods_else_default(tmp_path: Path) -> None:
    path = tmp_path / "namespace"
    assert pod_namespace(path) == "default"
    path.write_text("inference\n")
    assert pod_namespace(path) == "inference"
    path.write_bytes(b"\xff")
    assert pod_namespace(path) == "default"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold up the relay, SIGTERM included."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        file = WatchedFile(str(path), parse_token, "")
        assert file.refresh()
        assert str(path) in (file.problem or "")
