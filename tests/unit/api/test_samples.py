"""The samples are what the service answers, and they and the types of the OpenAPI document say the same."""

from typing import Any

import msgspec
import pytest

from poolmuster.api import schemas as shapes
from poolmuster.api.openapi import SAMPLES, document
from poolmuster.model.registration import RegistrationDocument
from poolmuster.model.schema import Problem, RegistrationResponse
from tests.support.samples import make_samples, written
from tests.support.variables import variable

TYPES: dict[str, Any] = {
    "registration": RegistrationDocument,
    "registered": RegistrationResponse,
    "list_warming_up": shapes.PoolListBody,
    "list": shapes.PoolListBody,
    "list_with_leases": shapes.PoolListBody,
    "pool": shapes.OnePool,
    "pool_with_conflict": shapes.OnePool,
    "pool_gone": shapes.OnePool,
    "routers": shapes.Routers,
    "changes": shapes.Changes,
    "status": shapes.Status,
    "problems": list[Problem],
    "watch": list[shapes.WatchEvent],
}
WRITE = bool(variable("WRITE_SAMPLES"))


async def test_the_file_of_samples_is_what_the_service_answers() -> None:
    """To write the file anew after a change on purpose, set the variable ``POOLMUSTER_WRITE_SAMPLES``."""
    text = written(await make_samples())
    if WRITE:
        SAMPLES.write_text(text)
    assert SAMPLES.read_text() == text


@pytest.mark.parametrize(("name", "kind"), TYPES.items())
def test_a_sample_has_exactly_the_members_that_its_type_has(name: str, kind: Any) -> None:
    """What a type does not know is lost on the way there and back, and what it wants is missed."""
    sample = msgspec.json.decode(SAMPLES.read_bytes())[name]
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(sample, kind))) == sample


def test_there_is_a_sample_of_everything() -> None:
    samples = msgspec.json.decode(SAMPLES.read_bytes())
    assert list(samples) == list(TYPES)
    events = {kind.__struct_config__.tag for kind in shapes.WatchEvent.__args__}
    entries = {kind.__struct_config__.tag for kind in shapes.ChangeEntry.__args__}
    assert {event["type"] for event in samples["watch"]} == events
    assert {change["type"] for change in samples["changes"]["changes"]} == entries


def test_every_reference_of_the_document_leads_somewhere() -> None:
    described = document()

    def check(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                at: Any = described
                for name in value["$ref"].removeprefix("#/").split("/"):
                    at = at[name]
            for each in value.values():
                check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    check(described)


def test_head_is_described_wherever_get_is() -> None:
    for path, item in document()["paths"].items():
        if "get" in item:
            assert item["head"]["responses"].keys() == item["get"]["responses"].keys(), path
