"""Stores of other releases."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context
from autopipe.store.artifact import Kind
from autopipe.store.canonical import seal_document
from autopipe.store.gc import verify_store
from autopipe.store.store import open_store
from tests.pipeline.fakes import Act, Fake, Read, go

GOLDEN = Path(__file__).parents[1] / "golden" / "store-v1"
"""What this release has written for the stage below."""


class Golden(Fake, frozen=True):
    """Not one of the other fakes, which may change."""

    name: ClassVar[str] = "act"
    produces: ClassVar[Kind] = Kind.REPORT
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM})
    text: str = "golden"

    def run(self, ctx: Context) -> str:
        (ctx.out / "sub").mkdir()
        (ctx.out / "sub" / "text").write_text(self.text)
        (ctx.out / "empty").touch()
        return ""


FACTS = {Facet.TVM: {"tvm": "1"}}


@pytest.mark.fault("C14")
def test_a_store_of_each_release_is_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(GOLDEN, root)
    happened, made = go([Golden()], root, facts=FACTS)
    assert happened == ["cached act"]
    assert (made["act"].path / "sub" / "text").read_text() == "golden"
    with open_store(root) as store:
        assert verify_store(store) == (1, [])


def test_what_is_written_is_what_the_golden_store_has(tmp_path: Path) -> None:
    root = tmp_path / "store"
    go([Golden()], root, facts=FACTS)
    for folder in ("actions", "objects"):
        names = [path.relative_to(root) for path in root.glob(f"{folder}/**/*") if path.is_file()]
        golden = [p.relative_to(GOLDEN) for p in GOLDEN.glob(f"{folder}/**/*") if p.is_file()]
        assert names == golden
        for name in names:
            assert (root / name).read_bytes() == (GOLDEN / name).read_bytes()


def change(root: Path, edit: Callable[[dict[str, Any]], object]) -> tuple[Path, bytes]:
    """Write the one record of a store anew, sealed as it has to be."""
    (path,) = root.glob("actions/*.json")
    content = json.loads(path.read_bytes())["content"]
    edit(content)
    path.write_bytes(seal_document(content))
    return path, path.read_bytes()


@pytest.mark.fault("C14")
@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.update(kind="hologram"),
        lambda content: content.update(files=[{"name": "text"}]),
        lambda content: content.update(files=7),
        lambda content: content.pop("files"),
        lambda content: content.update(action=None),
    ],
)
def test_a_record_that_is_whole_and_says_nothing_is_damaged(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    root = tmp_path / "store"
    go([Act(do="write")], root)
    path, _ = change(root, edit)
    warning = f"warning cache entry {path.stem} failed its checksum; recomputed"
    assert go([Act(do="write")], root)[0] == [warning, "run act"]
    assert go([Act(do="write")], root)[0] == ["cached act"]


@pytest.mark.fault("C14")
def test_an_action_of_another_format_is_another_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, source = tmp_path / "store", tmp_path / "model"
    source.write_text("ABC")
    with monkeypatch.context() as newer:
        newer.setattr("autopipe.pipeline.keys.FORMAT", 2)
        go([Read(path=source)], root)
    before = {path: path.read_bytes() for path in root.glob("actions/*")}
    assert go([Read(path=source)], root)[0] == ["run import"]
    assert {path: path.read_bytes() for path in before} == before
