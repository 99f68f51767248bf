"""Nothing that lies in a remote is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autopipe.remote import entry
from autopipe.remote.courier import DamagedError
from autopipe.store.artifact import Kind
from autopipe.store.canonical import digest_json, seal_document
from autopipe.store.content import TreeFile, digest_tree
from autopipe.store.entry import Entry, encode_entry
from tests.support.table import each_row

ACTION = {"stage": "tune", "version": 1, "inputs": {}}
KEY = digest_json(ACTION)
FILE = TreeFile("sub/text", 3, "a" * 64)


def made(*manifest: TreeFile) -> Entry:
    return Entry(ACTION, Kind.RECORDS, digest_tree(manifest), manifest, 0)


def text(found: Entry) -> bytes:
    return encode_entry(found.action, found.kind, found.digest, found.manifest)


def test_what_a_store_writes_is_read() -> None:
    found = made(TreeFile("a", 0, "b" * 64), FILE)
    assert entry.parse_entry(KEY, text(found)) == found


@each_row(
    "name",
    ["", ".", "..", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", "a/./b", "a\0b",
     "\udc00", "x" * 256],
)  # fmt: skip
@pytest.mark.fault("C18")
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(DamagedError):
        entry.parse_entry(KEY, text(made(FILE._replace(name=name))))


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        [FILE._replace(size=0)],
        [FILE, FILE],
        [FILE, TreeFile("a", 1, "b" * 64)],
        [FILE._replace(size=-1)],
        [FILE._replace(name="sub"), FILE],
    ],
)
def test_a_list_of_files_that_no_stage_leaves_is_refused(manifest: list[TreeFile]) -> None:
    with pytest.raises(DamagedError):
        entry.parse_entry(KEY, text(made(*manifest)))


@each_row(
    "change",
    [
        {"kind": "weapon"},
        {"kind": []},
        {"digest": "../x"},
        {"digest": "0" * 64},
        {"action": {"stage": "tune"}},
        {"action": []},
        {"files": {}},
        {"files": [["sub/text", 3, "a" * 64]]},
        {"files": [{"name": "sub/text", "size": "3", "sha256": "a" * 64}]},
        {"files": [{"name": "sub/text", "size": True, "sha256": "a" * 64}]},
        {"format": 2},
    ],
)
@pytest.mark.fault("C14")
def test_a_sealed_document_of_another_shape_is_refused(change: dict[str, object]) -> None:
    content = {
        "action": ACTION,
        "kind": "records",
        "digest": made(FILE).digest,
        "files": [{"name": "sub/text", "size": 3, "sha256": "a" * 64}],
    }
    assert entry.parse_entry(KEY, seal_document(content)) == made(FILE)
    with pytest.raises(DamagedError):
        entry.parse_entry(KEY, seal_document(content | change))


def test_the_action_of_another_key_is_refused() -> None:
    with pytest.raises(DamagedError, match="another's"):
        entry.parse_entry("0" * 64, text(made(FILE)))


def test_an_action_without_a_stage_is_refused() -> None:
    nameless = made(FILE)._replace(action={"version": 1})
    with pytest.raises(DamagedError, match="another's"):
        entry.parse_entry(digest_json({"version": 1}), text(nameless))


@pytest.mark.fault("G16")
@given(data=st.data())
def test_a_changed_byte_is_seen(data: st.DataObject) -> None:
    whole = bytearray(text(made(FILE)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        entry.parse_entry(KEY, bytes(whole))
