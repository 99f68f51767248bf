"""What stages leave is read as its type, refused in a line, and written with the same bytes."""

import json
from pathlib import Path

import pytest

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.artifacts.document import ArtifactDocument
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.tuning import TuningReport, read_records, write_records
from autopipe.artifacts.verification import CaseOutcome, Verification
from autopipe.foreign import MalformedError
from tests.artifacts.examples import checked_case, comparison, tuned_task, tuning_report

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"
DOCUMENTS: list[type[ArtifactDocument]] = [
    ImportedModel,
    TuningReport,
    BuiltLibrary,
    Verification,
    BenchmarkReport,
]


def named(kind):
    return kind.FILE


@pytest.mark.fault("C14")
@pytest.mark.parametrize("kind", DOCUMENTS, ids=named)
def test_a_document_is_written_with_the_bytes_it_was_read_from(tmp_path, kind):
    kind.read(GOLDEN).write(tmp_path)
    assert (tmp_path / kind.FILE).read_bytes() == (GOLDEN / kind.FILE).read_bytes()


@pytest.mark.fault("C14")
def test_records_are_written_with_the_bytes_they_were_read_from(tmp_path):
    records = read_records(GOLDEN)
    write_records(reversed(records.values()), tmp_path)
    assert (tmp_path / "records.jsonl").read_bytes() == (GOLDEN / "records.jsonl").read_bytes()
    assert len(records) == 2


def test_a_quantized_function_has_a_long_name(tmp_path):
    """That of a convolution of ResNet-18 in bytes has hundreds of letters."""
    report = tuning_report(tuned_task(name="_".join(["fused", *["multiply1"] * 100])))
    report.write(tmp_path)
    assert TuningReport.read(tmp_path) == report


@pytest.mark.parametrize("kind", DOCUMENTS[:-1], ids=named)
def test_what_another_release_added_is_passed_over(tmp_path, kind):
    document = json.loads((GOLDEN / kind.FILE).read_text())
    (tmp_path / kind.FILE).write_text(json.dumps({**document, "mood": "good"}))
    assert kind.read(tmp_path).model_fields_set >= document.keys()


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        (ImportedModel, '"params": 2048', '"params": 2048.0', "params: Input should be a valid in"),
        (ImportedModel, '"synthesized": false', '"synthesized": 0', "synthesized: Input should be"),
        (ImportedModel, '"float32"', '"float8"', "inputs.0.dtype: Input should be 'bool', "),
        (ImportedModel, '"opset"', '"name": 1, "opset"', "a key is there twice"),
        (
            TuningReport,
            '"rule": 1',
            '"rule": true',
            "tasks.1.rule: Input should be a valid int",
        ),
        (TuningReport, '"trials": 2', '"trials": -2', "contenders.1.trials: Input should be great"),
        (TuningReport, '"retried": true', '"retried": "yes"', "failures.0.retried: Input should"),
        (BuiltLibrary, '"threads": 1', '"threads": 0', "threads: Input should be greater than 0"),
        (BuiltLibrary, '"calls"', '"called"', "tasks.0.calls: Field required"),
        (
            BuiltLibrary,
            '"seconds": 1.4163695364238409e-05',
            '"seconds": NaN',
            "NaN, which is no number",
        ),
        (Verification, '"skipped": false', '"skipped": null', "cases.0.skipped: Input should be a"),
        (
            BenchmarkReport,
            '"inconclusive"',
            '"unsure"',
            "verdict: Input should be 'faster', 'slower'",
        ),
        (
            BenchmarkReport,
            '"skipped"',
            '"mood": 1, "skipped"',
            "mood: Extra inputs are not permitted",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path, kind, old, new, said):
    text = (GOLDEN / kind.FILE).read_text()
    assert old in text
    (tmp_path / kind.FILE).write_text(text.replace(old, new))
    with pytest.raises(MalformedError) as caught:
        kind.read(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.fault("K3")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": "../x"}, "workload: String should match pattern"),
        ({"seconds": []}, "seconds: Tuple should have at least 1 item"),
        ({"seconds": [0.0]}, "seconds.0: Input should be greater than 0"),
        ({"seconds": [1e9]}, "seconds.0: Input should be less than 10000"),
        ({"seconds": ["1e-6"]}, "seconds.0: Input should be a valid number"),
        ({"seconds": [-1.0]}, "seconds.0: Input should be greater than 0"),
        ({"seconds": [float("nan")]}, "NaN, which is no number"),
        ({"seconds": [10**400]}, "a number of more than 100 digits"),
        ({"seconds": None}, "seconds: Input should be a valid array"),
        ({"seconds": [True]}, "seconds.0: Input should be a valid number"),
        ({"seconds": [1e-6] * 10_001}, "seconds: Tuple should have at most 10000 items"),
        ({"trials": -1}, "trials: Input should be greater than or equal to 0"),
        ({"engine": "x" * 201}, "engine: String should have at most 200 characters"),
        ({"schedule": '"text"'}, "schedule: neither a trace nor a template"),
        ({"schedule": "[1e999]"}, "schedule: a number that is too large"),
        ({"schedule": "[" * 100 + "]" * 100}, "schedule: nested too deeply"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, changes, said):
    line = (GOLDEN / "records.jsonl").read_text().splitlines()[0]
    (tmp_path / "records.jsonl").write_text(json.dumps({**json.loads(line), **changes}))
    with pytest.raises(MalformedError) as caught:
        read_records(tmp_path)
    assert str(caught.value).startswith(said)


def test_a_case_passes_fails_or_tells_nothing():
    wrong = comparison("z", failure="3 of 4 differ")
    assert checked_case("ones", comparison()).outcome is CaseOutcome.PASSED
    assert checked_case("ones", comparison(), wrong).outcome is CaseOutcome.FAILED
    assert checked_case("large").outcome is CaseOutcome.SKIPPED
