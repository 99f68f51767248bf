"""A second model starts with the layers that it shares with the first one tuned."""

import json
import re
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow
from autopipe.pipeline.events import Event, Progress, StageFinished

PIPELINE = """
version: 1
name: {name}
model: {{path: {name}.onnx}}
tasks: {{heuristics: null, judge: null}}
schedules: {{rules: [{{implementations: [direct]}}]}}
tuning:
  budget: {{trials: {trials}}}
  batch: 4
  measure: {{repeat: 1, min_repeat: 1ms}}
benchmark: null
"""
TRIALS = 6
"""Of the first model."""


def model(path, widths):
    """Write dense layers with ReLU, named after the file, so that two models share no name."""
    nodes, weights, last = [], [], f"{path.stem}_in"
    for at, (rows, columns) in enumerate(pairwise(widths)):
        names = [f"{path.stem}_{at}_{part}" for part in ("weight", "bias", "sum", "out")]
        values = np.random.default_rng(at).standard_normal((rows + 1, columns)).astype("float32")
        weights += [
            numpy_helper.from_array(values[:rows] / rows, names[0]),
            numpy_helper.from_array(values[rows], names[1]),
        ]
        nodes += [
            helper.make_node("Gemm", [last, *names[:2]], [names[2]]),
            helper.make_node("Relu", [names[2]], [names[3]]),
        ]
        last = names[3]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, width])
        for name, width in ((f"{path.stem}_in", widths[0]), (last, widths[-1]))
    ]
    graph = helper.make_graph(nodes, path.stem, ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model(folder / "first.onnx", [128, 256])
    model(folder / "second.onnx", [128, 256, 64])

    def run(name, trials):
        """Run a pipeline; return the tasks as they were tuned and built, and what was told."""
        file, heard = folder / f"{name}.yaml", list[Event]()
        file.write_text(PIPELINE.format(name=name, trials=trials))
        made = flow.run(file, store=folder / "store", until="build", emit=heard.append)
        tuned = json.loads((made["tune"].path / "tuning.json").read_text())["tasks"]
        built = json.loads((made["build"].path / "library.json").read_text())["tasks"]
        said = [event.message for event in heard if isinstance(event, Progress)]
        said += [event.summary for event in heard if isinstance(event, StageFinished)]
        return tuned, {each["workload"]: each for each in built}, said

    return run


@pytest.fixture(scope="module")
def first(run):
    (task,), *_ = run("first", TRIALS)
    assert task["trials"] == TRIALS
    return task


def count_trials(task):
    """Return the measured trials of each contender of a task, those of earlier runs included."""
    return {each["engine"]: each["trials"] for each in task["contenders"]}


def known(said):
    """Return how many records of earlier runs a run has found."""
    found = (
        re.fullmatch(r"known: (\d+) records of earlier runs for \d of 2 tasks", t) for t in said
    )
    return next(int(each[1]) for each in found if each)


def test_a_shared_layer_is_built_as_it_was_tuned_for_another_model(run, first):
    tuned, built, said = run("second", 1)
    shared, other = sorted(tuned, key=lambda task: task["workload"] != first["workload"])
    assert (shared["workload"], shared["trials"], other["trials"]) == (first["workload"], 0, 1)
    assert count_trials(shared) == count_trials(first)
    row = built[shared["workload"]]
    assert row["reason"] == "best record"  # of whom, the run-off says anew
    assert row["seconds"] == shared["seconds"]
    assert known(said) >= TRIALS  # and those of the run-off


def test_with_a_budget_it_starts_from_what_is_known(run, first):
    tuned, _, said = run("second", 5)
    (shared,) = (task for task in tuned if task["workload"] == first["workload"])
    assert all(count_trials(shared)[name] >= n for name, n in count_trials(first).items())
    assert sum(task["trials"] for task in tuned) == 5
    assert known(said) >= TRIALS
