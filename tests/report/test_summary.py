"""The lines that a run ends with."""

from autopipe.pipeline.events import Measured, RunFinished, StageFinished, Tuned
from autopipe.report.summary import RunSummary

LATENCY = {"median": 0.002, "low": 0.0019, "high": 0.0025, "rounds": [0.002]}
DOCUMENT = {
    "ours": {"name": "autopipe", "version": "0", "latency": LATENCY},
    "competitors": [{"name": "onnxruntime", "version": "1.31.1", "latency": LATENCY}],
    "comparisons": {"onnxruntime": {"ratio": 0.734, "rounds": [], "verdict": "faster"}},
}
VERIFIED = StageFinished(
    stage="verify", digest="0", seconds=1.0,
    summary="equal to onnx 1 on 8 cases, 0.17% of the allowed error used",
)  # fmt: skip
TUNED = Tuned(stage="tune", searched=0.5, measured=1.0, steady=1.0, claimed=0)


def told(*events):
    summary = RunSummary()
    return [line for event in events for line in summary.after(event)]


def test_latency_throughput_and_accuracy_are_told_once_at_the_end():
    end = RunFinished(exit_code=0, seconds=3.0, package="dist/m.tar")
    lines = told(Measured(stage="benchmark", document=DOCUMENT), TUNED, VERIFIED, end)
    assert lines == [
        "latency    2 ms (1.9 ms to 2.5 ms), 0.73 of onnxruntime 1.31.1",
        "throughput 500 calls/s, one after the other",
        "tuned      of the time 50% searched, 100% measured, 100% steady here",
        "accuracy   equal to onnx 1 on 8 cases, 0.17% of the allowed error used",
    ]
    assert told(end, VERIFIED, end, end) == lines[3:]


def test_a_run_that_fails_or_measures_nothing_has_no_summary():
    assert told(VERIFIED, RunFinished(exit_code=3, seconds=1.0)) == []
    assert told(TUNED, RunFinished(exit_code=0, seconds=1.0)) == []


def test_a_ratio_that_decides_nothing_says_so():
    found = {"ratio": 0.73, "verdict": "inconclusive"}
    document = {**DOCUMENT, "comparisons": {"onnxruntime": found}}
    end = RunFinished(exit_code=0, seconds=3.0, package="dist/m.tar")
    first, *_ = told(Measured(stage="benchmark", document=document), VERIFIED, end)
    assert first.endswith("0.73 of onnxruntime 1.31.1, inconclusive")
