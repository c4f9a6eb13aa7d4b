"""What holds for every file of the repository: its size, and what no file may name."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.parts import ROOT

LINES_LIMIT = 400
CODE = {".py", ".sh", ".css", ".js", ".html"}


def _dotted(*labels: str) -> str:
    return ".".join(labels)


# Composed, so that this file passes its own test.
REGISTRIES = (
    _dotted("pypi", "org"),
    _dotted("pythonhosted", "org"),
    _dotted("npmjs", "org"),
    _dotted("npmjs", "com"),
    _dotted("debian", "org"),
    _dotted("docker", "io"),
    _dotted("ghcr", "io"),
    _dotted("crates", "io"),
    _dotted("proxy", "golang", "org"),
    _dotted("huggingface", "co"),
)
FORBIDDEN = {
    "a package registry: where packages come from is the machine's own setting": "|".join(map(re.escape, REGISTRIES)),
    "a folder of one machine": r"(?<![\w.}$-])/" + "(?:work|root|home|Users)" + r"/\w",
    "a folder outside the repository": r"\.\./" + "shared",
    "an index that a lock file would carry to other machines": r"--(?:extra-)?" + "index-url|--find" + "-links",
    "a thing left to do: it belongs in the tracker": r"\b(?:TO" + "DO|FIX" + r"ME|X" + r"XX)\b",
}


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git repository, whose files could be told from what was built")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize(("what", "pattern"), FORBIDDEN.items(), ids=list(FORBIDDEN))
def test_no_file_names(what: str, pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in _files()
        for number, line in enumerate((_text(path) or "").splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == [], f"{what}\n" + "\n".join(found)


def test_no_source_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {path: len((_text(path) or "").splitlines()) for path in _files() if path.suffix in CODE}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LINES_LIMIT} == {}


def test_every_package_of_the_source_says_what_it_is_for() -> None:
    silent = [
        str(path.parent.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if path.name == "__init__.py" and not path.read_text().startswith('"""')
    ]
    assert silent == []


def test_every_lock_file_has_a_hash_for_each_package() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        packages = re.split(r"\n(?=\S)", path.read_text().strip())
        assert [each.splitlines()[0] for each in packages if "--hash=sha256:" not in each] == [], path.name


def test_the_lock_files_hold_one_version_of_each_package() -> None:
    lock = ROOT / "requirements"
    versions = {
        name: dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (lock / f"{name}.txt").read_text(), re.MULTILINE))
        for name in ("runtime", "bench", "dev")
    }
    for name in ("runtime", "bench"):
        shared = versions[name].keys() & versions["dev"].keys()
        assert {package: versions[name][package] for package in shared} == {
            package: versions["dev"][package] for package in shared
        }
    assert versions["runtime"].keys() <= versions["dev"].keys()


def test_each_class_name_stands_once() -> None:
    classes: dict[str, list[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}
