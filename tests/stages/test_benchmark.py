import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.benchmarking import conditions, contender, match
from autopipe.benchmarking.baseline import Baseline
from autopipe.config.benchmark import Benchmark
from autopipe.config.gates import Gates, Regression
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError, GateError, SetupError, StageError
from autopipe.pipeline.events import Event, Measured, Progress, Warn
from autopipe.stages.benchmark import BenchmarkStage
from tests.artifacts.examples import imported
from tests.verification.imported_onnx import save_imported


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Whatever else this machine does while it runs tests."""
    monkeypatch.setattr(match, "disturbance", lambda found, wanted: None)


@pytest.fixture(scope="module")
def taken():
    """The rounds of this process that were timed, by contender and model."""
    return defaultdict(deque)


@pytest.fixture
def known_times(monkeypatch, taken):
    """Time two rounds of each contender, and tell the same again: what is made of them matters."""

    def timed(name, path, inputs, options, threads):
        rounds = taken[name, path]
        if len(rounds) < 2:
            rounds.append(contender.time_contender(name, path, inputs, options, threads))
        rounds.rotate()
        return rounds[0]

    monkeypatch.setattr(match, "time_contender", timed)


def stage(gates=None, baseline=None, **options):
    quick = {"rounds": 2, "warmup": 1, "repeat": 3} | options
    return BenchmarkStage(options=Benchmark(**quick), gates=gates or Gates(), baseline=baseline)


def test_both_contenders_are_timed_and_the_rest_recorded(context, no_leaks):
    events: list[Event] = []
    ctx = context(events)
    summary = stage().run(ctx)
    assert "onnxruntime" in summary
    assert "ratio" in summary
    found = json.loads((ctx.out / "benchmark.json").read_text())
    assert found["ours"]["name"] == "autopipe"
    assert [competitor["name"] for competitor in found["competitors"]] == ["onnxruntime"]
    for result in (found["ours"], *found["competitors"]):
        latency = result["latency"]
        assert 0 < latency["low"] <= latency["median"] <= latency["high"] < 1
        assert len(latency["rounds"]) == 2
    assert found["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert found["machine"]["load_before"] >= 0
    assert found["threads"] == 2
    for each in (each for turn in found["rounds"] for each in turn["conditions"].values()):
        assert 0 < each["cpu"] <= 1.1 * each["seconds"] * each["cores"]
        assert each["others"] >= 0
        assert each["stolen"] >= 0
    assert [event.document for event in events if isinstance(event, Measured)] == [found]
    begun, *counted = [event for event in events if isinstance(event, Progress)]
    assert begun.message == "timing autopipe, onnxruntime"
    assert {(event.message, event.total) for event in counted} == {("runs timed", 4)}
    assert psutil.Process().children() == []
    assert list(ctx.work.iterdir()) == []


def test_real_inputs_are_timed(context, tmp_path, monkeypatch):
    """The rest is as before; nobody is timed here."""
    monkeypatch.setattr(match, "time_contender", lambda *_: 1 / 0)
    x = np.full((4, 8), 0.25, np.float32)
    given: dict[str, Any] = {"data/x": x, "ids": np.array([0, 4, 2, 1])}
    np.savez(tmp_path / "real.npz", **given)
    made = stage().model_copy(update={"sample": tmp_path / "real.npz"})
    kept = {}
    monkeypatch.setattr(
        "autopipe.stages.benchmark.arrays.save", lambda arrays, path: kept.update(arrays)
    )
    with pytest.raises(ZeroDivisionError):
        made.run(context())
    np.testing.assert_array_equal(kept["data/x"], x)


@pytest.mark.slow
@pytest.mark.fault("N3")
def test_beside_programs_that_burn_nothing_is_claimed(context, monkeypatch):
    monkeypatch.setattr(match, "disturbance", conditions.disturbance)
    burn = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(burn) for _ in os.sched_getaffinity(0)]
    try:
        events: list[Event] = []
        summary = stage().run(context(events))
    finally:
        for each in burners:
            each.kill()
            each.wait()
    assert re.search(r"inconclusive: other programs took \d+% of the processor in 2 of 2", summary)
    told = [event.message for event in events if isinstance(event, Warn)]
    assert told[0].endswith("rounds; --force benchmark measures again")


@pytest.mark.usefixtures("known_times")
def test_a_gate_beyond_doubt_fails(context):
    events: list[Event] = []
    with pytest.raises(GateError, match="times as long as onnxruntime, allowed is 1e-06"):
        stage(gates=Gates(max_slowdown={"onnxruntime": 1e-6})).run(context(events))
    (told,) = [event.document for event in events if isinstance(event, Measured)]
    measured = BenchmarkReport.model_validate(told)
    assert measured.ours.latency.median > 0, "what was measured is told although it failed"
    (gate,) = measured.gates
    assert (gate.gate, gate.outcome) == ("gates.max_slowdown.onnxruntime", "failed")


def times(ours, device):
    return Baseline(
        pipeline="p", device={"cpu": device}, threads=2, competitors={}, rounds={"autopipe": ours}
    )


@pytest.mark.usefixtures("known_times")
def test_a_build_slower_than_its_baseline_fails(context):
    gates = Gates(regression=Regression(baseline="p.baseline.json"))
    quick = times((1e-9, 1.1e-9, 1e-9), "of the tests")
    with pytest.raises(GateError, match=r"gates\.regression: .* times the baseline's time"):
        stage(gates, quick, rounds=3, against=[]).run(context())


@pytest.mark.usefixtures("known_times")
def test_a_build_faster_than_its_baseline_passes(context):
    events: list[Event] = []
    gates = Gates(regression=Regression(baseline="p.baseline.json"))
    long = times((1e3, 1.1e3, 1e3), "of the tests")
    stage(gates, long, rounds=3, against=[]).run(context(events))
    assert [event for event in events if isinstance(event, Warn)] == []


@pytest.mark.usefixtures("known_times")
def test_times_of_another_machine_without_a_competitor_are_a_warning(context):
    events: list[Event] = []
    gates = Gates(regression=Regression(baseline="p.baseline.json"))
    stage(gates, times((1e-9,) * 3, "another"), rounds=3).run(context(events))
    (warning,) = [event.message for event in events if isinstance(event, Warn)]
    assert "time is not compared: another machine (cpu)" in warning


def test_the_baseline_is_read_before_anything_runs_and_its_content_is_in_the_key(tmp_path):
    gates = {"regression": {"baseline": "p.baseline.json"}}
    document = {"version": 1, "name": "p", "model": {"path": "m.onnx"}, "gates": gates}
    pipeline = Pipeline.model_validate(document)
    with pytest.raises(ConfigError, match=r"p\.baseline\.json: No such file"):
        BenchmarkStage.of(pipeline, tmp_path)
    file = tmp_path / "p.baseline.json"
    file.write_text(times((1.0, 2.0), "x").text())
    made = BenchmarkStage.of(pipeline, tmp_path)
    assert made is not None
    assert made.model_dump(mode="json")["baseline"]["rounds"] == {"autopipe": [1.0, 2.0]}
    file.write_text(file.read_text() + "\n")
    assert BenchmarkStage.of(pipeline, tmp_path) == made, "how it is written is not in the key"
    file.write_text(times((1.0, 3.0), "x").text())
    assert BenchmarkStage.of(pipeline, tmp_path) != made


@pytest.mark.usefixtures("known_times")
def test_a_competitor_that_refuses_the_model_is_a_warning(context, tmp_path, model):
    import onnx

    graph = onnx.load(model / "reference.onnx")
    graph.graph.node[0].op_type = "NoSuchOp"
    save_imported(graph, tmp_path)
    events: list[Event] = []
    stage().run(context(events, **{"import": tmp_path}))
    [warning] = [event.message for event in events if isinstance(event, Warn)]
    assert warning.startswith("onnxruntime is not compared with: contender onnxruntime: ")
    assert "NoSuchOp" in warning


def test_a_build_that_crashes_is_an_error(context, tmp_path, library):
    for name in ("library.json", "weights.safetensors"):
        (tmp_path / name).write_bytes((library / name).read_bytes())
    (tmp_path / "lib.so").write_bytes((library / "lib.so").read_bytes()[:4096])  # SIGBUS
    with pytest.raises(StageError, match="contender autopipe: killed by SIGBUS"):
        stage().run(context(build=tmp_path))


def test_a_contender_that_hangs_is_given_up(tmp_path, library):
    from safetensors.numpy import save_file

    from autopipe.artifacts.library import BuiltLibrary
    from autopipe.verification.inputs import draw_inputs

    inputs = tmp_path / "inputs"
    save_file(draw_inputs(BuiltLibrary.read(library).signature.inputs, {"ids": 5}, (0, 0)), inputs)
    start = time.monotonic()
    options = Benchmark(repeat=10_000, warmup=1000, timeout=0.05)
    with pytest.raises(StageError, match=r"contender autopipe: gave no answer within 0\.05 s"):
        contender.time_contender("autopipe", Path(library), inputs, options)
    assert time.monotonic() - start < 5
    assert psutil.Process().children() == []


@pytest.mark.usefixtures("known_times")
def test_a_competitor_needs_an_onnx_model(context, tmp_path):
    imported(selects={"ids": 5}).write(tmp_path)
    events: list[Event] = []
    stage().run(context(events, **{"import": tmp_path}))
    [warning] = [event.message for event in events if isinstance(event, Warn)]
    assert warning == "onnxruntime is not compared with: it runs ONNX models, and this is none"
    with pytest.raises(SetupError, match="cannot be checked: it runs ONNX models"):
        stage(Gates(max_slowdown={"onnxruntime": 2.0})).run(context(**{"import": tmp_path}))
