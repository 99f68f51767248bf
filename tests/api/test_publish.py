"""The package that is put where the user wants it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.api.publish import publish_package


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "demo.tar").write_text("new")
    (folder / "demo.tar").chmod(0o400)
    return folder


@pytest.mark.fault("C18")
@pytest.mark.parametrize("name", ["demo.tar", ".demo.tar.part"])
def test_what_a_link_leads_to_stays_as_it_is(tmp_path: Path, artifact: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("gold")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / name).symlink_to(precious)
    target = publish_package(artifact, tmp_path / "dist")
    assert (target.read_text(), target.is_symlink()) == ("new", False)
    assert precious.read_text() == "gold"
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["demo.tar"]


def test_what_a_killed_run_left_is_no_hindrance(tmp_path: Path, artifact: Path) -> None:
    """It copies the mode of the store's file, which nobody may write to, before its own."""
    left = tmp_path / "dist" / ".demo.tar.part"
    left.mkdir(parents=True)
    (left / "not even a file").touch()
    assert publish_package(artifact, tmp_path / "dist").read_text() == "new"
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["demo.tar"]


def test_the_bytes_that_are_copied_are_counted(tmp_path: Path, artifact: Path) -> None:
    counts: list[list[int]] = []

    def count(total: int) -> Callable[[int], None]:
        counts.append([total])
        return counts[-1].append

    for _ in range(2):  # the second time, it is there
        publish_package(artifact, tmp_path / "dist", count)
    assert counts == [[3, 3]]
