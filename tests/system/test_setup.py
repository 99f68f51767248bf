"""The lock files are complete and agree with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD = [Requirement(r) for r in PROJECT["build-system"]["requires"]]
CORE = [Requirement(r) for r in PROJECT["project"]["dependencies"]]
EXTRAS = {
    extra: [Requirement(r) for r in requirements]
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items()
}
WANTED = {
    "run": BUILD + CORE + EXTRAS["onnxruntime"],
    "dev": BUILD + CORE + EXTRAS["onnxruntime"] + EXTRAS["dev"],
}


def text(lock):
    return (ROOT / "requirements" / f"{lock}.txt").read_text()


def pins(lock):
    return {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text(lock), re.MULTILINE)
    }


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_every_requirement_is_pinned_within_its_bounds(lock):
    pinned = pins(lock)
    wrong = [
        str(requirement)
        for requirement in WANTED[lock]
        if (found := pinned.get(canonicalize_name(requirement.name))) is None
        or found not in requirement.specifier
    ]
    assert wrong == [], "out of date; run: make lock"


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_every_pin_has_a_hash_and_nothing_else_is_named(lock):
    lines = text(lock).splitlines()
    for at, line in enumerate(lines):
        assert re.match(r"\s*#|[\w.-]+==\S+.* \\$|    --hash=sha256:[0-9a-f]{64}", line), line
        if "==" in line:
            assert "--hash=sha256:" in lines[at + 1]


def test_users_and_developers_run_the_same_versions():
    assert pins("run").items() <= pins("dev").items()


def test_every_dependency_is_bounded():
    for requirement in [*CORE, *EXTRAS["onnxruntime"], *EXTRAS["dev"]]:
        assert {s.operator for s in requirement.specifier} & {"<", "=="}, requirement


def test_the_locked_build_backend_is_the_one_that_is_asked_for():
    build = (ROOT / "requirements" / "build.in").read_text().partition("#")[0].split()
    assert [Requirement(line) for line in build] == BUILD
