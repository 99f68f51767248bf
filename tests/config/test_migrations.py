"""Steps that bring a pipeline file up to date, from grammars that never were."""

from pathlib import Path
from typing import get_args

import pytest

from autopipe.config.migrations import STEPS, VERSION
from autopipe.config.migrations.chain import upgrade
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError
from tests.support.table import each_row

FILE = Path("demo.yaml")
OLD = """\
# why this model
version: 1  # the first
name: demo

budget: 64   # trials
"""
STEPS_OF_OLD = {
    1: lambda text: text.replace("budget:", "trials:"),
    2: lambda text: text.replace("# trials", "# measured schedules"),
}


def test_every_version_that_was_has_a_step_to_the_next():
    assert STEPS.keys() == set(range(1, VERSION))
    assert get_args(Pipeline.model_fields["version"].annotation) == (VERSION,)


def test_steps_are_taken_in_order_and_comments_stay():
    assert upgrade(OLD, FILE, STEPS_OF_OLD, 3) == (1, (
        "# why this model\nversion: 3  # the first\nname: demo\n\n"
        "trials: 64   # measured schedules\n"
    ))  # fmt: skip


def test_only_the_steps_that_are_needed_are_taken():
    second = OLD.replace("version: 1", "version: 2")
    assert "budget" in upgrade(second, FILE, STEPS_OF_OLD, 3)[1]


@pytest.mark.parametrize("text", [OLD, "version: 1\n", "{version: 1, name: x}", "\ufeffversion: 1"])
def test_a_current_file_is_left_alone(text):
    assert upgrade(text.removeprefix("\ufeff"), FILE) == (1, text.removeprefix("\ufeff"))


@pytest.mark.parametrize(
    "text",
    ["{name: x, version: 1, a: b}", 'a: "version: 1"\r\nversion: 1\r\n', "# ünï\n---\nversion: 1",
     "a: |\n  version: 1\nversion: 1", "a: 'x\u00a0y'\nversion:   1   # 1\n"],
)  # fmt: skip
def test_the_number_is_raised_wherever_it_is(text):
    at = text.index("1", text.rindex("version"))
    assert upgrade(text, FILE, {1: str}, 2) == (1, f"{text[:at]}2{text[at + 1 :]}")


@each_row(
    "text, reason",
    [
        ("name: x\nversion: 2\n", "2:10: version: 2 is newer than 1, which this autopipe reads"),
        ("version: 0\n", "1:10: version: 0 is no version that ever was; now it is 1"),
        ("version: -1\n", "-1 is no version"),
        ("version: 1.0\n", "1.0 is no version"),
        ("version: true\n", "True is no version"),
        ("version: one\n", "one is no version"),
        ("version: [1]\n", "is no version"),
        ("name: x\n", "1:1: version: is missing"),
        ("- version\n", "is missing"),
        ("version: 1\nversion: 1\n", "2:1: version: given twice"),
        ("version: 1\n<<<<<<< HEAD\n", "demo.yaml:"),
        ("", "nothing in it"),
    ],
)
def test_what_can_not_be_migrated_is_told_with_its_line(text, reason):
    with pytest.raises(ConfigError) as caught:
        upgrade(text, FILE)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("demo.yaml:")


def test_a_gap_in_the_steps_is_no_way():
    with pytest.raises(ConfigError, match="1 is no version that ever was; now it is 3"):
        upgrade(OLD, FILE, {2: str}, 3)


@pytest.mark.parametrize("step", [lambda _: "name: x\n", lambda text: text + "version: 1\n"])
def test_a_step_that_loses_the_version_is_refused(step):
    with pytest.raises(ConfigError, match="can not be raised to 2 here"):
        upgrade("version: 1\n", FILE, {1: step}, 2)
