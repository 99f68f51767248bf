"""Whatever a file holds, it is a pipeline or an error with a place, and soon."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError
from tests.config.conftest import GOOD

SNIPPETS = [
    "\n", " ", "  ", "\t", ":", ": ", "- ", "? ", ",", "[", "]", "{", "}", "&a ", "*a", "!!int ",
    "!", "|\n", ">\n", "'", '"', "#", "%", "@", "`", "---\n", "...\n", "<<: ", "~", "null", "no",
    "010", "1e3", "1e999", ".nan", "-.inf", "2026-11-20", "12:30:00", "\0", "\x1b", "\x85",
    "\u2028", "\ufeff", "ä", "😀", "\\", "\\ud800", "model: ", "version: 1\n", "tuning", "9" * 5000,
    "[" * 60, "{a: " * 60, "- " * 60, "\n  " * 60,
]  # fmt: skip

NAMES = ["model", "inputs", "data", "shape", "0", "tuning", "", "²", "x", "\udcff"]

EDITS = st.lists(
    st.tuples(
        st.integers(0, len(GOOD)),
        st.integers(0, 20),
        st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=5)),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "pipeline.yaml"


def outcome(file, overrides):
    try:
        return load(file, overrides)
    except ConfigError as error:
        return str(error)


def survives(file, data, overrides=()):
    file.write_bytes(data)
    start = time.process_time()
    found = outcome(file, overrides)
    assert time.process_time() - start < 1
    assert isinstance(found, Pipeline) or all(map(str.isprintable, found.split("\n")))


@pytest.mark.fault("A8")
@given(edits=EDITS)
@settings(max_examples=200)
def test_an_edited_file_is_a_pipeline_or_a_clear_error(file, edits):
    text = GOOD
    for at, length, new in edits:
        text = text[:at] + new + text[at + length :]
    survives(file, text.encode("utf-8", "surrogatepass"))


@pytest.mark.fault("A8")
@given(data=st.binary(max_size=200), at=st.integers(0, len(GOOD)))
@settings(max_examples=100)
def test_bytes_from_anywhere_are_a_pipeline_or_a_clear_error(file, data, at):
    good = GOOD.encode()
    survives(file, good[:at] + data + good[at:])


@given(
    path=st.lists(
        st.sampled_from(["model", "inputs", "data", "shape", "0", "tuning", "", "²", "x"])
    ),
    value=st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=8)),
)
@settings(max_examples=200)
def test_any_override_is_a_pipeline_or_a_clear_error(file, path, value):
    survives(file, GOOD.encode(), [f"{'.'.join(path)}={value}", f"name{value}"])
