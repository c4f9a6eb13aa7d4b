"""Errors of DynamoDB: each becomes the one reason that tells an operator where to look."""

import json

import pytest

from poolmuster.model.source import SourceReason
from poolmuster.sources.dynamodb.errors import MESSAGE_CHARACTERS, ConditionFailed, error_of
from poolmuster.sources.polled.table import StoreError

PREFIX = "com.amazonaws.dynamodb.v20120810#"
COMMON = "com.amazon.coral.service#"


def trouble(status: int, kind: str, message: str = "no") -> StoreError:
    found = error_of(status, json.dumps({"__type": kind, "message": message}).encode(), "Table t (r, http://e)")
    assert isinstance(found, StoreError)
    return found


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (PREFIX + "ProvisionedThroughputExceededException", SourceReason.THROTTLED),
        (PREFIX + "RequestLimitExceeded", SourceReason.THROTTLED),
        (COMMON + "ThrottlingException", SourceReason.THROTTLED),
        ("Throttling", SourceReason.THROTTLED),
        (COMMON + "AccessDeniedException", SourceReason.ACCESS_DENIED),
        (COMMON + "UnrecognizedClientException", SourceReason.ACCESS_DENIED),
        (COMMON + "IncompleteSignatureException", SourceReason.ACCESS_DENIED),
        (COMMON + "MissingAuthenticationTokenException", SourceReason.ACCESS_DENIED),
        (COMMON + "InvalidSignatureException", SourceReason.ACCESS_DENIED),
        (COMMON + "ExpiredTokenException", SourceReason.CREDENTIALS_EXPIRED),
        (PREFIX + "ResourceNotFoundException", SourceReason.TABLE_MISSING),
        (COMMON + "ServiceUnavailable", SourceReason.UNREACHABLE),
        (PREFIX + "InternalServerError", SourceReason.UNREACHABLE),
        (PREFIX + "ValidationException", SourceReason.BAD_ANSWER),
        ("", SourceReason.BAD_ANSWER),
    ],
)
def test_each_code_has_its_reason(kind: str, reason: SourceReason) -> None:
    found = trouble(400, kind)
    assert found.reason is reason
    assert found.code == kind.rpartition("#")[2]
    assert found.detail.startswith("Table t (r, http://e) answered 400 ")


def test_an_error_of_the_tables_own_is_known_by_its_status_where_its_code_is_not() -> None:
    assert trouble(500, PREFIX + "SomethingNew").reason is SourceReason.UNREACHABLE
    assert trouble(503, COMMON + "ThrottlingException").reason is SourceReason.THROTTLED


def test_who_reads_lists_does_not_learn_role_and_account() -> None:
    role, table = "arn:aws:sts::111122223333:assumed-role/pm/i-1", "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/t"
    message = f"User: {role} is not authorized to perform: dynamodb:Query on resource: {table}, and so on ({role})"
    found = trouble(400, COMMON + "AccessDeniedException", message)
    assert role in found.detail
    assert "111122223333" not in found.shown
    for part in ("Table t (r, http://e)", "AccessDeniedException", "not authorized to perform: dynamodb:Query"):
        assert part in found.shown
    assert found.shown.endswith("on resource: (an ARN), and so on ((an ARN))")
    more = found.with_detail("more")
    assert (more.detail, more.shown, more.code) == (f"{found.detail}; more", f"{found.shown}; more", found.code)


@pytest.mark.parametrize(
    "message",
    [
        "Signature expired: 20261130T000000Z is now earlier than 20261130T005500Z (20261130T010000Z - 5 min.)",
        "Signature not yet current: 20261130T010000Z is still later than 20261130T000500Z (20261130T000000Z + 5 min.)",
    ],
)
def test_a_signature_refused_for_its_time_is_clock_skew(message: str) -> None:
    assert trouble(400, COMMON + "InvalidSignatureException", message).reason is SourceReason.CLOCK_SKEW


def test_a_token_that_expired_is_told_from_one_that_is_wrong() -> None:
    message = "The security token included in the request is expired"
    assert trouble(400, COMMON + "UnrecognizedClientException", message).reason is SourceReason.CREDENTIALS_EXPIRED


def test_a_missing_table_says_what_a_wrong_region_looks_like() -> None:
    assert "wrong region" in trouble(400, PREFIX + "ResourceNotFoundException").detail


def test_a_condition_that_did_not_hold_is_no_trouble() -> None:
    body = json.dumps({"__type": PREFIX + "ConditionalCheckFailedException", "message": "The conditional"}).encode()
    assert isinstance(error_of(400, body, "t"), ConditionFailed)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, SourceReason.UNREACHABLE),
        (404, SourceReason.BAD_ANSWER),
        (301, SourceReason.BAD_ANSWER),
        (502, SourceReason.UNREACHABLE),
        (503, SourceReason.UNREACHABLE),
        (504, SourceReason.UNREACHABLE),
    ],
)
@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"__type": 1}', b"\xff"])
def test_what_is_no_error_of_aws_came_from_something_in_between(status: int, reason: SourceReason, body: bytes) -> None:
    found = error_of(status, body, "t")
    assert isinstance(found, StoreError)
    assert found.reason is reason
    assert found.code == ""


def test_the_request_that_aws_repeats_with_its_session_token_is_not_repeated_here() -> None:
    message = (
        "The request signature we calculated does not match.\n\nThe Canonical String for this request should have "
        "been\n'POST\n/\n\nx-amz-security-token:SECRET'"
    )
    found = trouble(400, COMMON + "InvalidSignatureException", message)
    assert "SECRET" not in found.detail
    assert "does not match" in found.detail
    assert "SECRET" not in trouble(400, "x", "bad. The Canonical String should have been 'SECRET'").detail


def test_a_message_is_one_line_and_bounded() -> None:
    found = trouble(400, "x", "a" * 10_000)
    assert len(found.detail) < MESSAGE_CHARACTERS + 100
    capital = error_of(400, b'{"__type": "x", "Message": "said  with\\ttabs"}', "t")
    assert "said with tabs" in str(capital)
