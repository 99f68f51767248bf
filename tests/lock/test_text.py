"""A lock as text: canonical, readable by any YAML reader, and sealed."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autopipe.errors import LockError
from autopipe.lock.text import format_lock, parse_lock
from tests.faults.hostile import HIDDEN
from tests.lock.examples import HARDWARE, LOCK, TARGET
from tests.support.table import each_row

FILE = Path("demo.lock")
TEXT = format_lock(LOCK)
LINES = TEXT.splitlines()


SEALED = "not the digest of the text above: it was edited or merged by hand"


def refused(text: str) -> str:
    with pytest.raises(LockError) as caught:
        parse_lock(text, FILE)
    return str(caught.value)


def sealed(text: str) -> str:
    """Give an edited lock the digest that it would have."""
    body = text.rsplit("# sha256", 1)[0]
    return f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"


def test_a_lock_is_read_as_it_was_written():
    assert parse_lock(TEXT, FILE) == LOCK
    assert format_lock(parse_lock(TEXT, FILE)) == TEXT


def test_the_text_is_yaml_and_says_the_same():
    assert yaml.safe_load(TEXT) == LOCK.model_dump(mode="json")


def test_the_order_in_which_a_lock_was_made_does_not_show():
    turned = LOCK.model_copy(update={"versions": dict(reversed(LOCK.versions.items()))})
    assert format_lock(turned) == TEXT


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(names, json_values, max_size=4))
def test_any_configuration_survives(configuration):
    lock = LOCK.model_copy(update={"configuration": configuration})
    text = format_lock(lock)
    assert parse_lock(text, FILE).configuration == configuration
    assert format_lock(parse_lock(text, FILE)) == text


@pytest.mark.parametrize(
    "text", ["🚀", "\\🚀", "\\\\ud83d🚀🚀", "\\ud83d\\ude80", "\ud7ff\ue000\uffff\x7f\x85"]
)
def test_characters_that_json_writes_in_two_halves_survive(text):
    lock = LOCK.model_copy(update={"configuration": {text: [text, {text: text}]}})
    assert parse_lock(format_lock(lock), FILE).configuration == lock.configuration


@pytest.mark.parametrize("text", ["\0", "\ud83d", "\ude80\ud83d"])
def test_a_text_that_no_pipeline_file_holds_is_refused_with_its_line(text):
    lock = LOCK.model_copy(update={"configuration": {"a": {"b": 1}, "b": text}})
    assert refused(format_lock(lock)).startswith("demo.lock:7: ")


def test_a_lock_may_be_longer_than_a_pipeline_file():
    lock = LOCK.model_copy(update={"tasks": LOCK.tasks * 1000})
    assert parse_lock(format_lock(lock), FILE) == lock


def test_a_lock_of_too_many_values_is_refused():
    assert refused("#\n" * 500_000 + TEXT).startswith("demo.lock:1: more than 500000 values")


def test_a_changed_knob_is_one_changed_line_and_the_seal():
    tasks = list(LOCK.tasks)
    schedule = {**tasks[0].model_dump()["schedule"], "knobs": {"rows": 4, "outer": "columns"}}
    tasks[0] = tasks[0].model_copy(update={"schedule": schedule})
    other = format_lock(LOCK.model_copy(update={"tasks": tuple(tasks)})).splitlines()
    assert [b for a, b in zip(LINES, other, strict=True) if a != b][:-1] == [
        (
            '    schedule: {"knobs": {"outer": "columns", "rows": 4}, "template": "contraction", '
            '"version": 2}'
        )
    ]


@pytest.mark.fault("C20")
@each_row("kept", range(len(LINES)))
def test_a_lock_cut_short_at_any_line_is_refused(kept):
    assert "demo.lock:" in refused("\n".join(LINES[:kept]))


@pytest.mark.fault("C20")
@each_row("number", range(2, len(LINES) + 1))
def test_a_lock_with_a_line_taken_out_is_refused(number):
    assert "demo.lock:" in refused("\n".join(LINES[: number - 1] + LINES[number:]) + "\n")


@pytest.mark.fault("C20")
def test_a_merge_conflict_is_named_with_its_line():
    merged = [
        *LINES[:6],
        "<<<<<<< HEAD",
        LINES[6],
        "=======",
        LINES[6],
        ">>>>>>> other",
        *LINES[7:],
    ]
    assert refused("\n".join(merged)).startswith("demo.lock:7: a merge conflict")


@pytest.mark.fault("C20")
@pytest.mark.parametrize(
    "forged", [{"microseconds": (1.0, 1e308, 1e308)}, {"calls": 10**30}, {"trials": -1}]
)
def test_numbers_that_no_task_has_are_refused_under_a_seal_of_their_own(forged):
    tasks = (LOCK.tasks[0].model_copy(update=forged), *LOCK.tasks[1:])
    message = refused(format_lock(LOCK.model_copy(update={"tasks": tasks})))
    assert f"tasks.0.{next(iter(forged))}" in message


@pytest.mark.fault("C20")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("calls: 2", "calls: 3", SEALED),
        ("calls: 2", "calls: two", "two is no value"),
        ("    calls: 2", "  calls: 2", "does not belong here"),
        (
            "    calls: 2\n",
            "    calls: 2\n    calls: 2\n",
            "tasks.0.calls: given twice, first on line",
        ),
        ("    calls: 2", "      calls: 2", "this does not belong here"),
        ("    calls: 2", '    "calls": 2', '"calls" is no key of a lock'),
        ("    calls: 2", "    null: 2", "null is no key of a lock"),
        ("    calls: 2", "    calls:", "calls has no value"),
        ("stages:\n", "stages: 1\n", "this does not belong here"),
        ("    calls: 2\n", "- calls: 2\n", "this does not belong here"),
        ("stages:\n", "stages:\nstage\n", "'stage' is no line of a lock"),
        ("version: 1", "version: 2", "version 2: this autopipe reads version 1"),
    ],
)
def test_an_edit_by_hand_is_refused_with_its_line(old, new, said):
    at = TEXT.index(old)
    message = refused(TEXT.replace(old, new, 1))
    assert said in message
    line = TEXT.count("\n", 0, at) + 1
    assert message.startswith((f"demo.lock:{line}: ", f"demo.lock:{line + 1}: ")) or said in SEALED


@pytest.mark.fault("C20")
def test_line_ends_of_windows_are_called_that():
    assert refused(TEXT.replace("\n", "\r\n")).startswith(
        "demo.lock:1: it ends as lines do on Windows; in .gitattributes, "
    )


@pytest.mark.fault("C20")
def test_what_follows_the_seal_is_refused():
    assert refused(TEXT + "more: 1\n") == (
        f"demo.lock:{len(LINES) + 1}: something follows the digest; take it away"
    )


def test_a_sealed_text_that_is_no_lock_is_refused_with_the_line_of_the_field():
    text = TEXT.replace("calls: 2", "calls: 0", 1)
    line = text.splitlines().index("    calls: 0") + 1
    assert refused(sealed(text)).startswith(f"demo.lock:{line}: tasks.0.calls: ")


@pytest.mark.fault("A18")
@each_row("character", HIDDEN)
def test_what_is_hidden_in_a_comment_is_refused(character):
    head = f"# fine{character}records: null\n"
    number = f"U+{ord(character[0]):04X} is not shown as it is read"
    assert refused(sealed(head + TEXT)).startswith(f"demo.lock:1: {number}")


ODD: list[Any] = [None, "", " ", "native", 1.5, True, {}, -1]
NO_TARGETS: list[dict[str, Any]] = [
    *({name: value} for name in TARGET for value in ODD),
    *({name: None} for name in TARGET),
    {"mattr": "+avx"}, {"mattr": ["avx"]}, {"num_cores": 0}, {"num_cores": 1 << 20},
    {"num_cores": "2"}, {"kind": "cuda"}, {"kind": "riscv"}, {"arch": "sm_90"}, {"more": 1},
    {"kind": "cuda", "arch": "native"}, {"linker": "/bin/sh"}, {"mcpu": ["znver4"]},
    {"hardware": {**HARDWARE, "l1": "large"}}, {"hardware": {"l1": 32768}},
    {"hardware": {**HARDWARE, "registers": 1 << 20}}, {"mcpu": "../znver4"},
]  # fmt: skip


@pytest.mark.fault("C21")
@each_row("changes", [each for each in NO_TARGETS if each != {"mtriple": "native"}])
def test_a_target_that_no_lock_has_is_refused_with_its_line(changes):
    text = format_lock(LOCK.model_copy(update={"target": {**TARGET, **changes}}))
    line = text.splitlines().index("target:") + 1
    message = refused(text)
    assert message.startswith(tuple(f"demo.lock:{line + more}: target" for more in range(10)))


@pytest.mark.fault("C21")
@each_row("name", TARGET)
def test_a_target_that_lacks_something_is_refused(name):
    less = {other: value for other, value in TARGET.items() if other != name}
    assert f"target.{name}: Field required" in refused(
        format_lock(LOCK.model_copy(update={"target": less}))
    )


@given(st.text(max_size=200))
def test_any_text_is_refused_in_words(text):
    assert refused(text).startswith("demo.lock:")
