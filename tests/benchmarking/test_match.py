import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from autopipe.artifacts.benchmark import (
    BenchmarkMachine,
    BenchmarkResult,
    RoundConditions,
    TimedContender,
)
from autopipe.benchmarking import competitors, match
from autopipe.benchmarking.contender import Timed, find_outputs_path
from autopipe.benchmarking.gate import build_report, require_gates
from autopipe.benchmarking.latency import compare_latencies, summarize_rounds
from autopipe.benchmarking.match import BenchmarkSetup, time_contenders
from autopipe.compiler.step_counter import count_with
from autopipe.config.benchmark import Benchmark
from autopipe.config.gates import Gates
from autopipe.errors import GateError, SetupError, StageError

CONTENDERS = {"autopipe": Path("library"), "onnxruntime": Path(__file__)}  # which is not read


def conditions(others=0.0):
    """Conditions of ten seconds on two processors, of which others take a share."""
    return RoundConditions(
        seconds=10.0, cpu=10.0, others=20.0 * others, stolen=0.0, cores=2, load_before=0.5,
        load_after=2.0,
    )  # fmt: skip


class Stopwatch:
    """Times nothing: gives each contender the seconds it is told to."""

    def __init__(self, *, others=(), **seconds):
        self.seconds = seconds
        self.others = list(others)  # how much of the processor others take, turn by turn
        self.turns: list[str] = []
        self.counts: list[tuple[str, int, int]] = []
        self.outputs: dict[str, list[float]] = {}

    def count(self, message, total, *, is_even):
        return lambda done: self.counts.append((message, done, total))

    def __call__(self, name, path, inputs, options, threads):
        self.turns.append(name)
        made = np.array(self.outputs.get(name, [1.0, 2.0]), np.float32)
        save_file({"0": made}, find_outputs_path(name, inputs))
        found = self.seconds[name]
        if isinstance(found, Exception):
            raise found
        others = self.others.pop(0) if self.others else 0.0
        seconds = [found * (1 + 0.01 * run) for run in range(options.repeat)]
        return Timed(seconds, "1.0", conditions(others))


@pytest.fixture
def played(monkeypatch, tmp_path):
    def start(stopwatch, threads=2, **options):
        monkeypatch.setattr(match, "time_contender", stopwatch)
        monkeypatch.setattr(competitors, "find_spec", lambda name: True)
        names = ["autopipe", *options.get("against", ["onnxruntime"])]
        contenders = {name: CONTENDERS.get(name, Path(__file__)) for name in names}
        inputs = tmp_path / "inputs"
        table = BenchmarkSetup(contenders, inputs, Benchmark(**options))
        with count_with(stopwatch.count):
            return time_contenders(table, threads)

    return start


def gates(limit):
    return Gates(max_slowdown={"onnxruntime": limit})


def held(found, gates):
    """What is to be warned about."""
    return list(require_gates(build_report(found, gates, None, {}).gates))


def test_contenders_take_turns_in_alternating_order(played):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=2.0)
    found = played(stopwatch, rounds=3, repeat=5)
    ours, theirs = "autopipe", "onnxruntime"
    assert stopwatch.turns == [ours, theirs, theirs, ours, ours, theirs]
    assert stopwatch.counts == [("runs timed", done, 6) for done in range(6)]
    assert found.comparisons["onnxruntime"].ratio == pytest.approx(0.5)
    assert found.comparisons["onnxruntime"].verdict == "faster"
    assert len(found.ours.latency.rounds) == 3
    assert (found.threads, found.machine.cores > 0, found.machine.cpu != "") == (2, True, True)


def test_a_competitor_that_fails_is_skipped_at_once(played):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=StageError("no answer within 300 s"))
    found = played(stopwatch, rounds=3)
    assert stopwatch.turns.count("onnxruntime") == 1
    assert found.skipped == {"onnxruntime": "no answer within 300 s"}
    assert (found.competitors, found.comparisons) == ((), {})


def test_a_build_that_fails_is_an_error(played):
    with pytest.raises(StageError, match="killed by SIGSEGV"):
        played(Stopwatch(autopipe=StageError("killed by SIGSEGV"), onnxruntime=1.0))


def test_the_gpu_is_written_down(monkeypatch):
    monkeypatch.setattr(match, "time_contender", lambda *_: Timed([0.1], "1", conditions()))
    for gpu in ("NVIDIA Fake", None):
        table = BenchmarkSetup(CONTENDERS, Path("inputs"), Benchmark(), gpu)
        assert match.time_contenders(table, 1).machine.gpu == gpu


def test_a_competitor_that_is_not_installed_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr(match, "time_contender", Stopwatch(autopipe=1.0))
    monkeypatch.setattr(competitors, "find_spec", lambda name: None)
    table = BenchmarkSetup(CONTENDERS, tmp_path / "inputs", Benchmark())
    found = time_contenders(table, threads=1)
    assert found.skipped == {
        "onnxruntime": "it is not installed: pip install 'autopipe[onnxruntime]'"
    }
    assert held(found, Gates()) == []
    with pytest.raises(SetupError, match=r"gates\.max_slowdown\.onnxruntime cannot be checked"):
        held(found, gates(1.0))


def test_the_gate_of_a_competitor_that_is_not_listed_can_not_be_checked(played):
    found = played(Stopwatch(autopipe=1.0, onnxruntime=1.0))
    found = found.model_copy(update={"competitors": (), "comparisons": {}})
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
    assert warning.endswith("allowed is 1.5; the spread of the times is too wide to decide")


BUSY = "other programs took 87% of the processor"


@pytest.mark.fault("N1")
def test_a_quiet_match_is_played_once_and_says_nothing(played):
    found = played(Stopwatch(autopipe=1.0, onnxruntime=2.0), rounds=3)
    assert (len(found.rounds), found.disturbed) == (3, "")
    assert all(not each.disturbed for each in found.rounds)
    assert found.rounds[0].conditions == {name: conditions() for name in CONTENDERS}


@pytest.mark.fault("N2")
def test_a_round_that_others_disturbed_does_not_count_if_most_were_quiet(played):
    stopwatch = Stopwatch(others=[0, 0, 0, 0.87], autopipe=1.0, onnxruntime=2.0)
    found = played(stopwatch, rounds=3)
    ours, theirs = CONTENDERS
    assert stopwatch.turns == [ours, theirs, theirs, ours, ours, theirs]
    assert [each.disturbed for each in found.rounds] == ["", BUSY, ""]
    assert [len(found.ours.latency.rounds), found.disturbed] == [2, ""]
    assert found.comparisons["onnxruntime"].verdict == "faster"


@pytest.mark.fault("N1")
def test_others_may_have_the_processors_that_a_contender_leaves(played):
    """All want one of two, or both."""
    found = played(Stopwatch(others=[0.4] * 99, autopipe=1.0, onnxruntime=2.0), threads=1)
    assert (len(found.rounds), found.disturbed) == (3, "")
    found = played(Stopwatch(others=[0, 0.4], autopipe=1.0, onnxruntime=2.0), threads=2)
    assert [bool(each.disturbed) for each in found.rounds] == [True, False, False]


@pytest.mark.fault("N3")
def test_a_machine_that_is_never_quiet_gives_no_verdict_and_says_why(played):
    found = played(Stopwatch(others=[0, 0.2, *[0.87] * 99], autopipe=1.0, onnxruntime=2.0))
    assert (len(found.rounds), len(found.ours.latency.rounds)) == (3, 3)
    assert found.disturbed == f"{BUSY} in 3 of 3 rounds"
    assert found.comparisons["onnxruntime"].verdict == "inconclusive"
    assert found.summary().endswith(f": ratio 0.50, inconclusive: {found.disturbed}")
    alone = found.model_copy(update={"competitors": ()})
    assert alone.summary().endswith(f"), inconclusive: {found.disturbed}")


@pytest.mark.fault("N3")
def test_a_gate_decides_beside_other_programs_where_the_times_leave_no_doubt(played):
    def disturbed(seconds):
        return played(Stopwatch(others=[0.87] * 99, autopipe=seconds, onnxruntime=1.0))

    assert held(disturbed(0.68), gates(3)) == []
    with pytest.raises(GateError, match=rf"allowed is 1\.5; {BUSY} in 3 of 3 rounds"):
        held(disturbed(9.0), gates(1.5))
    for seconds in (1.49, 1.51):
        [warning] = held(disturbed(seconds), gates(1.5))
        assert warning.endswith(f"too wide to decide; {BUSY} in 3 of 3 rounds")


def test_a_competitor_that_fails_late_is_not_compared_with(played):
    class Late(Stopwatch):
        def __call__(self, name, *arguments):
            if len(self.turns) == 5:
                self.seconds["onnxruntime"] = StageError("killed by SIGSEGV")
            return super().__call__(name, *arguments)

    found = played(Late(autopipe=1.0, onnxruntime=2.0), rounds=3)
    assert (found.competitors, found.skipped) == ((), {"onnxruntime": "killed by SIGSEGV"})
    assert [sorted(each.conditions) for each in found.rounds][-1] == ["autopipe"]


@pytest.mark.fault("N4")
@pytest.mark.parametrize("times", [(36.2e-3, 40.7e-3), (3.88e-3, 4.32e-3), (0.5, 1.3e-6)])
def test_the_ratio_that_is_printed_follows_from_the_times_that_are_printed(times):
    """Also where rounds say otherwise: a median of ratios is not a ratio of medians."""
    rounds = ((1, 1, 4), (4, 0.8, 1))
    ours, theirs = (
        summarize_rounds([[each * factor] for factor in factors])
        for each, factors in zip(times, rounds, strict=True)
    )
    found = played_with(ours, theirs)
    assert found.comparisons["onnxruntime"].rounds == pytest.approx(
        [times[0] / times[1] * ratio for ratio in (0.25, 1.25, 4)]
    )
    numbers = [float(text.split(" ms")[0].split()[-1]) for text in found.summary().split(";")]
    printed = float(found.summary().split("ratio ")[1].split(",")[0])
    assert printed == pytest.approx(numbers[0] / numbers[1], rel=0.01, abs=0.005)


def played_with(ours, theirs):
    return BenchmarkResult(
        machine=BenchmarkMachine(cpu="x", cores=2, load_before=0.0, load_after=0.0),
        threads=2, warmup=1, repeat=2,
        ours=TimedContender(name="autopipe", version="1", latency=ours),
        competitors=(TimedContender(name="onnxruntime", version="1", latency=theirs),),
        comparisons={"onnxruntime": compare_latencies(ours, theirs)}, skipped={},
    )  # fmt: skip


def test_a_competitor_is_skipped_where_there_is_no_onnx_model(monkeypatch, tmp_path):
    monkeypatch.setattr(match, "time_contender", Stopwatch(autopipe=1.0))
    contenders = {**CONTENDERS, "onnxruntime": tmp_path / "reference.onnx"}
    table = BenchmarkSetup(contenders, tmp_path / "inputs", Benchmark())
    assert time_contenders(table, 1).skipped == {
        "onnxruntime": "it runs ONNX models, and this is none"
    }


ALL = ("onnxruntime", "openvino", "mnn")


def test_the_ratio_that_counts_is_the_one_to_the_fastest_competitor(played):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=2.0, openvino=0.8, mnn=3.0)
    found = played(stopwatch, against=ALL)
    assert stopwatch.turns[:8] == ["autopipe", *ALL, *ALL[::-1], "autopipe"]
    assert found.best == "openvino"
    assert found.summary().endswith("; best competitor openvino: ratio 1.25, slower")
    assert found.model_dump()["best"] == "openvino"
    alone = played(Stopwatch(autopipe=1.0, onnxruntime=2.0))
    assert (alone.best, "best" in alone.summary()) == ("", False)


def test_a_gate_on_the_best_competitor_names_it(played):
    found = played(
        Stopwatch(autopipe=1.0, onnxruntime=2.0, mnn=0.5), against=["onnxruntime", "mnn"]
    )
    assert held(found, Gates(max_slowdown={"best": 2.1, "onnxruntime": 0.9})) == []
    with pytest.raises(GateError, match=r"slowdown\.best: .* 2\.00 times as long as mnn, allowed"):
        held(found, Gates(max_slowdown={"best": 1.1}))
    alone = played(Stopwatch(autopipe=2.0, onnxruntime=1.0))
    with pytest.raises(
        GateError, match=r"slowdown\.best: .* as long as onnxruntime, allowed is 1\.1"
    ):
        held(alone, Gates(max_slowdown={"best": 1.1}))


def test_a_gate_on_the_best_of_none_can_not_be_checked(played):
    found = played(Stopwatch(autopipe=1.0, mnn=StageError("refused")), against=["mnn"])
    with pytest.raises(SetupError, match=r"slowdown\.best cannot be checked: mnn: refused"):
        held(found, Gates(max_slowdown={"best": 1.1}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([1.0, 2.2], r"its output 0 is wrong: off by 0\.2, the largest is 2"),
        ([1.0, float("nan")], "its output 0 is wrong: off by nan, the largest is 2"),
        ([1.0], r"its output 0 is of shape \(1,\), not \(2,\)"),
    ],
)
def test_a_competitor_that_computes_something_else_is_none(played, wrong, said):
    stopwatch = Stopwatch(autopipe=1.0, onnxruntime=2.0, mnn=0.1)
    stopwatch.outputs["mnn"] = wrong
    found = played(stopwatch, against=["onnxruntime", "mnn"])
    assert re.fullmatch(said, found.skipped["mnn"])
    assert (found.best, list(found.comparisons)) == ("", ["onnxruntime"])


def test_competitors_may_round_as_they_like(played):
    stopwatch = Stopwatch(autopipe=1.0, mnn=2.0)
    stopwatch.outputs["mnn"] = [1.04, 1.96]
    assert played(stopwatch, against=["mnn"]).skipped == {}
