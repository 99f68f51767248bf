from pathlib import Path

import pytest

from autopipe.benchmarking import match
from autopipe.benchmarking.gate import Measurement, hold
from autopipe.benchmarking.match import Table, play
from autopipe.config import Benchmark, Gates
from autopipe.errors import GateError, SetupError, StageError

CONTENDERS = {"autopipe": Path("library"), "onnxruntime": Path(__file__)}  # which is not read


class Stopwatch:
    """Times nothing: gives each contender the seconds it is told to."""

    def __init__(self, **seconds):
        self.seconds = seconds
        self.turns = []

    def __call__(self, name, path, inputs, options):
        self.turns.append(name)
        found = self.seconds[name]
        if isinstance(found, Exception):
            raise found
        return [found * (1 + 0.01 * run) for run in range(options.repeat)], "1.0"


@pytest.fixture
def played(monkeypatch):
    def start(stopwatch, **options):
        monkeypatch.setattr(match, "time_contender", stopwatch)
        monkeypatch.setattr(match, "find_spec", lambda name: True)
        table = Table(CONTENDERS, Path("inputs"), Benchmark(**options), lambda message: None)
        return play(table, threads=2)

    return start


def gates(limit):
    return Gates(max_slowdown={"onnxruntime": limit})


def held(found, gates):
    """What is to be warned about."""
    return list(hold(Measurement.of(found, gates, None, {}).gates))


def test_contenders_take_turns_in_alternating_order(played):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=2.0)
    found = played(stopwatch, rounds=3, repeat=5)
    ours, theirs = "autopipe", "onnxruntime"
    assert stopwatch.turns == [ours, theirs, theirs, ours, ours, theirs]
    assert found.comparisons["onnxruntime"].ratio == pytest.approx(0.5)
    assert found.comparisons["onnxruntime"].verdict == "faster"
    assert len(found.ours.latency.rounds) == 3
    assert (found.threads, found.machine.cores > 0, found.machine.cpu != "") == (2, True, True)


def test_a_rival_that_fails_is_skipped_at_once(played):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=StageError("no answer within 300 s"))
    found = played(stopwatch, rounds=3)
    assert stopwatch.turns.count("onnxruntime") == 1
    assert found.skipped == {"onnxruntime": "no answer within 300 s"}
    assert (found.rivals, found.comparisons) == ((), {})


def test_a_build_that_fails_is_an_error(played):
    with pytest.raises(StageError, match="killed by SIGSEGV"):
        played(Stopwatch(autopipe=StageError("killed by SIGSEGV"), onnxruntime=1.0))


def test_the_gpu_is_written_down(monkeypatch):
    monkeypatch.setattr(match, "time_contender", lambda *_: ([0.1], "1"))
    for gpu in ("NVIDIA Fake", None):
        table = Table(CONTENDERS, Path("inputs"), Benchmark(), lambda message: None, gpu)
        assert match.play(table, 1).machine.gpu == gpu


def test_a_rival_that_is_not_installed_is_skipped(monkeypatch):
    monkeypatch.setattr(match, "time_contender", Stopwatch(autopipe=1.0))
    monkeypatch.setattr(match, "find_spec", lambda name: None)
    table = Table(CONTENDERS, Path("inputs"), Benchmark(), lambda message: None)
    found = play(table, threads=1)
    assert found.skipped == {"onnxruntime": "it is not installed"}
    assert held(found, Gates()) == []
    with pytest.raises(SetupError, match=r"gates\.max_slowdown\.onnxruntime can not be checked"):
        held(found, gates(1.0))


def test_the_gate_of_a_rival_that_is_not_listed_can_not_be_checked(played):
    found = played(Stopwatch(autopipe=1.0, onnxruntime=1.0))
    found = found.model_copy(update={"rivals": (), "comparisons": {}})
    with pytest.raises(SetupError, match=r"`benchmark\.against` does not list 'onnxruntime'"):
        held(found, gates(1.0))


def test_a_slowdown_within_the_limit_passes(played):
    assert held(played(Stopwatch(autopipe=1.4, onnxruntime=1.0)), gates(1.5)) == []


def test_a_slowdown_beyond_the_limit_fails(played):
    with pytest.raises(GateError, match=r"takes 2\.00 times as long as onnxruntime, allowed is 1"):
        held(played(Stopwatch(autopipe=2.0, onnxruntime=1.0)), gates(1.5))


@pytest.mark.fault("E9")
def test_a_slowdown_beyond_the_limit_only_by_noise_warns(played):
    found = played(Stopwatch(autopipe=1.51, onnxruntime=1.0), repeat=10)
    [warning] = held(found, gates(1.5))
    assert warning.endswith("allowed is 1.5; the spread of the times is too wide to fail it")


def test_a_rival_is_skipped_where_there_is_no_onnx_model(monkeypatch, tmp_path):
    monkeypatch.setattr(match, "time_contender", Stopwatch(autopipe=1.0))
    contenders = {**CONTENDERS, "onnxruntime": tmp_path / "reference.onnx"}
    table = Table(contenders, Path("inputs"), Benchmark(), lambda message: None)
    assert play(table, 1).skipped == {"onnxruntime": "it runs ONNX models, and this is none"}
