"""A lock as text: canonical, readable by any YAML reader, and sealed."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autopipe.errors import LockError
from autopipe.lock.text import parse, write
from tests.lock.examples import LOCK

FILE = Path("demo.lock")
TEXT = write(LOCK)
LINES = TEXT.splitlines()


def refused(text: str) -> str:
    with pytest.raises(LockError) as caught:
        parse(text, FILE)
    return str(caught.value)


def test_a_lock_is_read_as_it_was_written():
    assert parse(TEXT, FILE) == LOCK
    assert write(parse(TEXT, FILE)) == TEXT


def test_the_text_is_yaml_and_says_the_same():
    assert yaml.safe_load(TEXT) == LOCK.model_dump(mode="json")


def test_the_order_in_which_a_lock_was_made_does_not_show():
    turned = LOCK.model_copy(update={"versions": dict(reversed(LOCK.versions.items()))})
    assert write(turned) == TEXT


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_any_configuration_survives(configuration):
    lock = LOCK.model_copy(update={"configuration": configuration})
    text = write(lock)
    assert parse(text, FILE).configuration == configuration
    assert write(parse(text, FILE)) == text


def test_a_changed_knob_is_one_changed_line_and_the_seal():
    tasks = list(LOCK.tasks)
    schedule = {**tasks[0].model_dump()["schedule"], "knobs": {"rows": 4, "outer": "columns"}}
    tasks[0] = tasks[0].model_copy(update={"schedule": schedule})
    other = write(LOCK.model_copy(update={"tasks": tuple(tasks)})).splitlines()
    assert [b for a, b in zip(LINES, other, strict=True) if a != b][:-1] == [
        (
            '    schedule: {"knobs": {"outer": "columns", "rows": 4}, "template": "contraction", '
            '"version": 2}'
        )
    ]


@pytest.mark.fault("C20")
@pytest.mark.parametrize("kept", range(len(LINES)))
def test_a_lock_cut_short_at_any_line_is_refused(kept):
    assert "demo.lock:" in refused("\n".join(LINES[:kept]))


@pytest.mark.fault("C20")
@pytest.mark.parametrize("number", range(2, len(LINES) + 1))
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
    ("old", "new", "said"),
    [
        ("calls: 2", "calls: 3", "edited or merged by hand"),
        ("calls: 2", "calls: two", "two is no value"),
        ("    calls: 2", "  calls: 2", "does not belong here"),
        ("    calls: 2\n", "    calls: 2\n    calls: 2\n", "calls is there twice"),
        ("stages:\n", "stages:\nstage\n", "'stage' is no line of a lock"),
        ("version: 1", "version: 2", "version 2: this autopipe reads version 1"),
    ],
)
def test_an_edit_by_hand_is_refused_with_its_line(old, new, said):
    assert old in TEXT
    assert said in refused(TEXT.replace(old, new, 1))


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
    from hashlib import sha256

    body = TEXT.replace("calls: 2", "calls: 0", 1).rsplit("# sha256", 1)[0]
    line = body.splitlines().index("    calls: 0") + 1
    sealed = f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"
    assert refused(sealed).startswith(f"demo.lock:{line}: tasks.0.calls: ")


@given(st.text(max_size=200))
def test_any_text_is_refused_in_words(text):
    assert refused(text).startswith("demo.lock:")
