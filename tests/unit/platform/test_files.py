"""Files that only together mean something, read again while the program runs."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import FILE_LIMIT_BYTES, WatchedFiles


def pair(left: bytes, right: bytes) -> tuple[bytes, bytes]:
    """Fits only where both say the same."""
    if left != right:
        raise InvalidInput("they do not fit")
    return left, right


def both(folder: Path, left: bytes, right: bytes | None = None) -> WatchedFiles[tuple[bytes, bytes]]:
    (folder / "left").write_bytes(left)
    (folder / "right").write_bytes(left if right is None else right)
    return WatchedFiles((str(folder / "left"), str(folder / "right")), pair)


def test_the_first_reading_is_taken_at_once_and_a_change_when_two_agree(tmp_path: Path) -> None:
    files = both(tmp_path, b"1")
    assert files.value == (b"1", b"1")
    assert not files.refresh()
    both(tmp_path, b"2")
    assert not files.refresh(), "it may still be written"
    assert files.value == (b"1", b"1")
    assert files.refresh()
    assert files.value == (b"2", b"2")
    assert not files.refresh()


def test_a_pair_of_which_one_was_replaced_already_is_no_news(tmp_path: Path) -> None:
    files = both(tmp_path, b"1")
    (tmp_path / "left").write_bytes(b"2")
    assert not files.refresh()
    (tmp_path / "right").write_bytes(b"2")
    assert not files.refresh()
    assert files.problem is None
    assert files.refresh()
    assert files.value == (b"2", b"2")


def test_what_cannot_be_used_leaves_the_last_good_value_and_says_why_once(tmp_path: Path) -> None:
    files = both(tmp_path, b"1")
    (tmp_path / "left").write_bytes(b"2")
    assert not files.refresh()
    assert files.refresh()
    assert files.problem is not None
    assert "they do not fit" in files.problem
    assert str(tmp_path / "left") in files.problem
    assert files.value == (b"1", b"1")
    assert not files.refresh(), "the same mistake is no news"
    (tmp_path / "left").write_bytes(b"1")
    assert not files.refresh()
    assert files.refresh()
    assert files.problem is None


def test_a_file_that_goes_and_comes_back_is_a_problem_and_none(tmp_path: Path) -> None:
    files = both(tmp_path, b"1")
    (tmp_path / "right").rename(tmp_path / "away")
    assert not files.refresh(), "it may be in the middle of a rename"
    assert files.refresh()
    assert files.problem == f"{tmp_path / 'right'}: cannot be read: No such file or directory"
    (tmp_path / "away").rename(tmp_path / "right")
    assert not files.refresh()
    assert files.refresh()
    assert [files.problem, files.value] == [None, (b"1", b"1")]


def test_links_swapped_as_kubernetes_does_it_are_a_change(tmp_path: Path) -> None:
    for name, content in (("..1", b"1"), ("..2", b"2")):
        (tmp_path / name).mkdir()
        for file in ("left", "right"):
            (tmp_path / name / file).write_bytes(content)
    (tmp_path / "..data").symlink_to("..1")
    for file in ("left", "right"):
        (tmp_path / file).symlink_to(f"..data/{file}")
    files = WatchedFiles((str(tmp_path / "left"), str(tmp_path / "right")), pair)
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert [files.refresh(), files.refresh()] == [False, True]
    assert files.value == (b"2", b"2")


def test_a_first_reading_that_fails_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="they do not fit") as refused:
        both(tmp_path, b"1", b"2")
    assert str(tmp_path / "left") in refused.value.detail
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (FILE_LIMIT_BYTES + 1))
    for name, why in (("none", "No such file"), ("pipe", "no regular file"), (".", "directory"), ("large", "is over")):
        with pytest.raises(InvalidInput, match=why) as refused:
            WatchedFiles((str(tmp_path / name),), bytes)
        assert str(tmp_path / name) in refused.value.detail


async def test_a_read_that_does_not_end_is_a_problem_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poolmuster.platform.files.STALL_LIMIT_S", 0.01)
    files = both(tmp_path, b"1")
    answers = threading.Event()
    monkeypatch.setattr(files, "refresh", lambda: not answers.wait())
    problems: asyncio.Queue[str | None] = asyncio.Queue()
    watching = asyncio.create_task(files.watch(lambda _: asyncio.sleep(0), lambda: problems.put_nowait(files.problem)))
    problem = await problems.get()
    assert problem is not None
    assert str(tmp_path / "left") in problem
    assert files.value == (b"1", b"1")
    answers.set()
    assert await problems.get() is None
    watching.cancel()
