"""References that contradict each other: a build has to agree with one of them."""

import numpy as np
import pytest

from autopipe.artifacts.verification import CheckedCase, OutputComparison, Tolerance, Verification
from autopipe.verification.compare import compare_outputs, fill_undefined_outputs
from autopipe.verification.doubts import describe_worst
from autopipe.verification.inputs import Case
from autopipe.verification.oracle import Oracle, ReferenceAnswer
from autopipe.verification.second_opinion import ComparedCase, resolve_disagreements

ALLOWED = Tolerance(rtol=1e-3, atol=1e-4)
CASE = Case("random-0", edge=False, arrays={"x": np.ones(4, np.float32)})


def answer(engine, value):
    """Return what an engine answers; None where it fails."""
    if value is None:
        return None
    made = ReferenceAnswer({"y": np.full(4, value, np.float32)})
    made.engine = engine
    return made


class References(Oracle):
    """References that answer a number each, in the place of an `Oracle`."""

    def __init__(self, asked=None, **answers):
        self.answers, self.engines = answers, tuple(name for name in answers if name != "plain")
        self.asked = [] if asked is None else asked

    def _of(self, engine):
        made = References(self.asked, **{engine: self.answers.get(engine)})
        made.engines = (engine,)
        return made

    def others(self):
        return [self._of(engine) for engine in self.engines[1:]]

    def plain(self):
        return self._of("plain")

    def opinions(self, cases):
        (engine,) = self.engines
        self.asked.append(engine)
        return [answer(engine, self.answers[engine]) for _ in cases]


def compared(references, build):
    """Return the comparison of a build, which is a number, with the references."""

    def again(_, case, theirs):
        outputs = compare_outputs("y", np.full(4, build, np.float32), theirs["y"], ALLOWED)
        return CheckedCase(name=case.name, skipped=False, outputs=(outputs,))

    first = answer(references.engines[0], references.answers[references.engines[0]])
    one = ComparedCase(CASE, first, again(None, CASE, first))
    resolve_disagreements(references, [one], again)
    return one.checked


def test_no_other_is_asked_where_the_first_one_agrees():
    references = References(ort=1, onnx=2)
    assert compared(references, 1).reference is None
    assert references.asked == []


@pytest.mark.fault("E1")
def test_a_build_that_one_reference_agrees_with_passes_with_its_name():
    references = References(ort=1, unoptimized=1, onnx=2, plain=3)
    checked = compared(references, 2)
    assert (checked.outcome, checked.reference) == ("passed", "onnx")
    assert references.asked == ["unoptimized", "onnx"]


@pytest.mark.fault("E1")
@pytest.mark.parametrize("others", [{"onnx": 1}, {"onnx": 1.00001}, {"onnx": None}, {}])
def test_a_build_that_no_reference_agrees_with_fails(others):
    """Plain loops, which are made of the same operators, are asked where references differ only."""
    references = References(ort=1, **others, plain=2)
    failure = describe_worst([compared(references, 2)])
    assert failure is not None
    assert failure.startswith("output 'y' is wrong on case 'random-0'")
    assert "plain" not in references.asked


@pytest.mark.parametrize(("build", "reference"), [(3, "plain"), (4, None)])
def test_plain_loops_decide_where_references_contradict_each_other(build, reference):
    checked = compared(References(ort=1, onnx=2, plain=3), build)
    assert checked.reference == reference
    assert checked.outcome == ("passed" if reference else "failed")


def test_a_build_that_crashed_is_compared_with_no_other():
    failure = OutputComparison(output="y", tolerance=ALLOWED, failure="it crashed")
    crashed = CheckedCase(name="zeros", skipped=False, crashed=True, outputs=(failure,))
    references = References(ort=1, onnx=2)
    one = ComparedCase(CASE, answer("ort", 1), crashed)
    resolve_disagreements(references, [one], lambda *_: pytest.fail("it is compared"))
    assert one.checked is crashed


def test_the_summary_names_each_reference():
    output = OutputComparison(output="y", tolerance=ALLOWED, used=0.5)
    case = CheckedCase(name="a", skipped=False, outputs=(output,))
    other = case.model_copy(update={"reference": "onnx"})
    made = Verification(
        reference="onnxruntime", reference_version="1.31.1", cases=(case, other, other),
        warnings=(),
    )  # fmt: skip
    assert made.summary().startswith(
        "equal to onnx (on 2) and onnxruntime 1.31.1 (on 1) on 3 cases"
    )
    alone = made.model_copy(update={"cases": (case,)})
    assert alone.summary().startswith("equal to onnxruntime 1.31.1 on 1 cases, 50.00%")


def test_what_onnx_leaves_open_is_not_compared():
    infinite, none = np.array([np.inf, 1], np.float32), np.array([np.nan, 1], np.float32)
    ours, theirs = {"y": np.array([0, 2], np.float32)}, {"y": none}
    (made,) = fill_undefined_outputs([infinite], ours, theirs).values()
    np.testing.assert_array_equal(made, np.array([np.nan, 2], np.float32))
    (made,) = fill_undefined_outputs([none], ours, theirs).values()
    np.testing.assert_array_equal(made, ours["y"])
    other = {"y": np.zeros((2, 1), np.float32)}
    assert fill_undefined_outputs([infinite], other, theirs)["y"].shape == (2, 1)
