import json
import os
from pathlib import Path
from typing import ClassVar

import pytest

from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError
from autopipe.pipeline.keys import build_action
from autopipe.store.canonical import digest_json, seal_document, unseal_document
from autopipe.store.content import TreeDigests, digest_tree
from autopipe.store.files import IrregularError
from tests.pipeline.fakes import FACTS, Act, Read, Tune, Upper

GOLDEN = Path(__file__).parents[1] / "golden" / "keys.json"


@pytest.fixture
def contents(tmp_path: Path) -> TreeDigests:
    for name in ("memory", "tmp"):
        (tmp_path / name).mkdir()
    return TreeDigests(tmp_path / "memory", tmp_path / "tmp")


def test_golden_keys(contents: TreeDigests, tmp_path: Path) -> None:
    """If this fails you changed a key: bump keys.FORMAT, then run with BLESS=1."""
    source = tmp_path / "model"
    source.write_text("abc")
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "b").write_text("1")
    (folder / "a").write_text("2")
    documents = {
        "import": build_action(Read(path=source), {}, FACTS, contents),
        "import a folder": build_action(Read(path=folder), {}, FACTS, contents),
        "lower": build_action(Upper(), {"import": "0" * 64}, FACTS, contents),
        "tune": build_action(Tune(trials=64), {"lower": "1" * 64}, FACTS, contents),
    }
    actual = {name: {"key": digest_json(each), "action": each} for name, each in documents.items()}
    if os.environ.get("BLESS"):
        GOLDEN.write_text(json.dumps(actual, indent=2, sort_keys=True) + "\n")
    assert actual == json.loads(GOLDEN.read_text())


def key(contents: TreeDigests, stage: Tune | None = None, **change: object) -> str:
    arguments = {"inputs": {"lower": "0" * 64}, "facts": FACTS, **change}
    return digest_json(build_action(stage or Tune(), contents=contents, **arguments))  # type: ignore[arg-type]


@pytest.mark.fault("C15", "G6")
def test_everything_declared_is_in_the_key(contents: TreeDigests) -> None:
    class Newer(Tune, frozen=True):
        version: ClassVar[int] = 2

    class Renamed(Tune, frozen=True):
        name: ClassVar[str] = "tuned"

    keys = [
        key(contents),
        key(contents, Newer()),
        key(contents, Renamed()),
        key(contents, Tune(trials=5)),
        key(contents, inputs={"lower": "1" * 64}),
        key(contents, inputs={"other": "0" * 64}),
        key(contents, facts={**FACTS, Facet.DEVICE: {"cpu": "y"}}),
        key(contents, facts={**FACTS, Facet.TARGET: {"kind": "llvm", "num_cores": 3}}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(contents, Tune(workers=7)) == keys[0]


@pytest.mark.fault("C16", "G6")
def test_the_whole_input_digest_counts(contents: TreeDigests) -> None:
    assert key(contents, inputs={"lower": "0" * 63 + "1"}) != key(contents)


def test_a_directory_is_digested_by_names_and_bytes(contents: TreeDigests, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("1")
    (folder / "b").write_text("2")
    before = digest_tree(contents.manifest(folder))
    (folder / "a").rename(folder / "c")
    assert digest_tree(contents.manifest(folder)) != before
    (folder / "c").rename(folder / "a")
    assert digest_tree(contents.manifest(folder)) == before
    (folder / "a").write_text("3")
    assert digest_tree(contents.manifest(folder)) != before


def test_a_file_is_digested_as_sha256sum_does(contents: TreeDigests, tmp_path: Path) -> None:
    file = tmp_path / "abc"
    file.write_text("abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_tree(contents.manifest(file)) == expected


@pytest.mark.fault("C18")
def test_links_are_refused(contents: TreeDigests, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(IrregularError, match="link: neither a regular file nor a directory"):
        contents.manifest(folder)
    with pytest.raises(ConfigError, match="link: neither"):
        build_action(Read(path=folder), {}, FACTS, contents)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: neither"):
        build_action(Read(path=tmp_path / "pipe"), {}, FACTS, contents)


def test_a_source_that_is_not_there_is_named(contents: TreeDigests, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing: No such file"):
        build_action(Read(path=tmp_path / "nothing"), {}, FACTS, contents)


def test_nan_has_no_key(contents: TreeDigests) -> None:
    with pytest.raises(ValueError, match="JSON"):
        key(contents, facts={**FACTS, Facet.DEVICE: {"cpu": float("nan")}})


def test_every_byte_of_a_sealed_document_counts() -> None:
    data = seal_document({"a": [1, {"b": "c"}]})
    assert unseal_document(data) == {"a": [1, {"b": "c"}]}
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        assert unseal_document(bytes(damaged)) is None
    for other in (b"", data[:-1], data + b"\n", b"[]", b"[" * 100_000, b'{"content": 1}'):
        assert unseal_document(other) is None


def test_parameters_are_the_fields_that_are_neither_sources_nor_unkeyed(
    contents: TreeDigests, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("1")
    assert build_action(Read(path=tmp_path / "x"), {}, FACTS, contents)["params"] == {}
    assert build_action(Tune(), {}, FACTS, contents)["params"] == {"trials": 4}
    assert build_action(Act(do="write"), {}, FACTS, contents)["params"] == {
        "do": "write",
        "note": "",
    }
