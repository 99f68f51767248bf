import json

import pytest

from autopipe.benchmarking.baseline import Baseline, read_baseline
from autopipe.errors import ConfigError

BASELINE = Baseline(
    pipeline="demo", device={"cpu": "x", "cores": 2}, threads=2, competitors={"onnxruntime": "1.0"},
    rounds={"autopipe": (1.23456789e-5, 2e-5), "onnxruntime": (3e-3, 4.0)},
)  # fmt: skip
TEXT = """{
  "competitors": {
    "onnxruntime": "1.0"
  },
  "device": {
    "cores": 2,
    "cpu": "x"
  },
  "pipeline": "demo",
  "rounds": {
    "autopipe": [
      1.235e-05,
      2e-05
    ],
    "onnxruntime": [
      0.003,
      4.0
    ]
  },
  "threads": 2,
  "version": 1
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "demo.baseline.json"
    path.write_text(TEXT)
    return path


def test_it_is_canonical_and_knows_no_date(file):
    assert BASELINE.text() == TEXT
    assert read_baseline(file, "demo").text() == TEXT


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"threads": 2,', '"threads": 2,\n  "threads": 3,', 21, "given twice, first on line 20"),
        ('"threads": 2,', '<<<<<<< HEAD\n  "threads": 2,', 20, ""),
        ("      2e-05\n    ],", "", 12, ""),
        ("2e-05", "-2e-05", 13, "rounds.autopipe.1: Input should be greater than or equal to"),
        ("2e-05", "fast", 13, "rounds.autopipe.1: Input should be a valid number"),
        ("2e-05", ".inf", 13, "is not a finite number"),
        ("1.235e-05,\n", "", 10, "rounds: one is shorter than another"),
        (
            '"onnxruntime": [',
            '"competitor": [',
            10,
            "rounds: one series of autopipe and one per",
        ),
        ('"version": 1', '"version": 2', 21, "version: Input should be 1"),
        ('"version": 1', '"version": 1, "date": 7', 21, "date: Extra inputs are not permitted"),
        ('  "pipeline": "demo",\n', "", 1, "pipeline: Field required"),
    ],
)
@pytest.mark.fault("A2", "A6")
def test_damage_has_a_line(file, old, new, line, said):
    assert TEXT.count(old) == 1
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_baseline(file, "demo")
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{file}:{line}:") or (not said and f"{file}:" in first), first
    assert said in str(caught.value)
    assert "`autopipe baseline write` makes another" in first


@pytest.mark.parametrize("cut", [0, 1, 30, 200, len(TEXT) - 3])
def test_what_is_cut_short_is_refused(file, cut):
    file.write_text(TEXT[:cut])
    with pytest.raises(ConfigError, match=r"demo\.baseline\.json:\d+:\d+: "):
        read_baseline(file, "demo")


def test_what_is_no_text_is_refused(file):
    file.write_bytes(b"{\n\xff")
    with pytest.raises(ConfigError, match=r"demo\.baseline\.json:2: not UTF-8"):
        read_baseline(file, "demo")


def test_a_missing_one_says_how_it_is_made(file):
    with pytest.raises(ConfigError, match="`autopipe baseline write` makes it from the report"):
        read_baseline(file.with_name("other.json"), "demo")


def test_the_times_of_another_pipeline_are_refused(file):
    with pytest.raises(ConfigError, match="times of pipeline 'demo', not of 'other'"):
        read_baseline(file, "other")


def test_json_of_any_kind_is_refused_or_read(file):
    values: list[object] = [[], 7, "x", None, {"rounds": {"autopipe": {}}}, {"rounds": [1]}]
    for value in values:
        file.write_text(json.dumps(value))
        with pytest.raises(ConfigError):
            read_baseline(file, "demo")
