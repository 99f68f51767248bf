"""What is remembered of a pipeline file's runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.pipeline.history import History, list_pipelines_by_key
from autopipe.store.gc import collect_garbage
from autopipe.store.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "dist").mkdir()
    with open_store(tmp_path / "store") as opened:
        yield opened


def history(store: Store, name: str) -> History:
    return History.of(store, store.root.with_name(name), "same")


def test_a_package_belongs_to_the_file_that_made_it_last(store: Store, tmp_path: Path) -> None:
    package = tmp_path / "dist" / "same.tar"
    package.touch()
    first, second = history(store, "a.yaml"), history(store, "b.yaml")
    assert first.owner(package) is None
    first.remember_package(package)
    assert first.owner(package) is None
    assert second.owner(package) == tmp_path / "a.yaml"
    assert second.owner(tmp_path / "elsewhere" / "same.tar") is None
    package.unlink()
    assert second.owner(package) is None
    package.touch()
    (tmp_path / "a.yaml").unlink()
    assert second.owner(package) is None, "it was renamed, or is gone"


def test_what_two_files_use_has_both_names(store: Store) -> None:
    history(store, "a.yaml").remember_action("import", "k")
    History.of(store, store.root.with_name("b.yaml"), "other").remember_action("import", "k")
    assert list_pipelines_by_key(store) == {"k": ["other", "same"]}


def test_a_project_that_is_copied_with_its_store_keeps_it(store: Store, tmp_path: Path) -> None:
    history(store, "a.yaml").remember_action("import", "k")
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    with open_store(copy / "store") as opened:
        assert history(opened, "a.yaml").last_action("import") == {}
        assert history(opened, "b.yaml").last_action("import") is None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"content": {"stages": []}}'])
def test_a_damaged_one_is_forgotten(store: Store, damage: bytes) -> None:
    history(store, "a.yaml").remember_action("import", "k")
    (path,) = (store.root / "runs").iterdir()
    path.write_bytes(damage)
    assert history(store, "a.yaml").last_action("import") is None
    assert list_pipelines_by_key(store) == {}


def test_an_old_one_is_collected(store: Store) -> None:
    history(store, "a.yaml").remember_action("import", "k")
    collect_garbage(store, keep_days=1)
    assert list_pipelines_by_key(store)
    collect_garbage(store, keep_days=0)
    assert not list_pipelines_by_key(store)
