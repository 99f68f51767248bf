from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.remote import bundle
from autopipe.remote.courier import DamagedError
from autopipe.store.content import Manifest, TreeFile
from autopipe.store.files import sha256, walk


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "a").write_text("one")
    (tmp_path / "tree" / "empty").touch()
    (tmp_path / "tree" / "sub" / "b").write_bytes(bytes(3_000_000))
    return tmp_path / "tree"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def manifest(tree: Path) -> Manifest:
    return tuple(TreeFile(name, found.st_size, sha256(tree / name)) for name, found in walk(tree))


def packed(tree: Path) -> Path:
    bundle.pack_files(tree, manifest(tree), tree.with_name("bundle"))
    return tree.with_name("bundle")


def test_what_was_packed_is_unpacked(tree: Path, out: Path) -> None:
    bundle.unpack_files(packed(tree), manifest(tree), out)
    assert manifest(out) == manifest(tree)


def test_the_same_files_are_the_same_bytes(tree: Path) -> None:
    first = packed(tree)
    before = first.read_bytes()
    first.unlink()
    (tree / "a").rename(tree / "c")
    (tree / "c").rename(tree / "a")
    (tree / "a").chmod(0o400)
    assert packed(tree).read_bytes() == before


@pytest.mark.parametrize("change", ["flip", "cut", "append", "empty", "folder", "link"])
@pytest.mark.fault("C3", "G3")
def test_a_changed_bundle_is_refused(tree: Path, out: Path, change: str) -> None:
    file = packed(tree)
    data = file.read_bytes()
    file.unlink()
    match change:
        case "flip":
            file.write_bytes(data[:-1] + b"\1")
        case "cut":
            file.write_bytes(data[:-1])
        case "append":
            file.write_bytes(data + b"\0")
        case "empty":
            file.touch()
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(tree / "a")
    with pytest.raises(DamagedError):
        bundle.unpack_files(file, manifest(tree), out)


def test_what_is_there_already_is_not_written_over(tree: Path, out: Path) -> None:
    (out / "a").symlink_to(tree / "precious")
    with pytest.raises(StoreError):
        bundle.unpack_files(packed(tree), manifest(tree), out)
    assert not (tree / "precious").exists()


def test_a_file_that_changed_is_not_packed(tree: Path) -> None:
    before = manifest(tree)
    (tree / "a").write_text("two")
    with pytest.raises(DamagedError, match="'a'"):
        bundle.pack_files(tree, before, tree.with_name("bundle"))
