"""The stage `lower` with rules of fusion, and what the stages after it make of its tasks."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import yaml
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow
from autopipe.artifacts.lowering import SizedModules
from autopipe.compiler import module_io
from autopipe.compiler.dynamic_sizes import fix_sizes
from autopipe.compiler.fusion import scope
from autopipe.compiler.tasks import make_workload
from autopipe.config.load import load
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError
from autopipe.pipeline.events import Event, Warn
from autopipe.pipeline.stage import Context
from autopipe.processes.contained import Failed
from autopipe.schedules.engines import default
from autopipe.stages.lower import LowerStage

ATTENTION = Path(__file__).parents[2] / "pipelines" / "tasks" / "attention-joined.yaml"
RFC = ["nn.conv2d", "nn.relu", "nn.conv2d", "nn.relu"]


def convolutions(path, rows=16):
    """Save conv2d, relu, conv2d, relu, and one more of both with strides."""
    kernels = {"k1": (8, 3, 3, 3), "k2": (8, 8, 3, 3), "k3": (16, 8, 3, 3)}
    nodes, last = [], "x"
    for name in kernels:
        strides = [2, 2] if name == "k3" else [1, 1]
        nodes += [
            helper.make_node("Conv", [last, name], [f"{name}c"], pads=[1] * 4, strides=strides),
            helper.make_node("Relu", [f"{name}c"], [f"{name}r"]),
        ]
        last = f"{name}r"
    values = np.random.default_rng(0)
    weights = {name: values.standard_normal(shape, "f") for name, shape in kernels.items()}
    graph = helper.make_graph(
        nodes,
        "rfc",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, rows, 16))],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the model, and a store with all before the stage `lower`."""
    folder = tmp_path_factory.mktemp("rfc")
    convolutions(folder / "rfc.onnx")
    flow.run(pipeline(folder), store=folder / "store", until="optimize")
    return folder


def pipeline(folder, **sections):
    """Write a pipeline file."""
    document = {
        "version": 1, "name": "rfc", "model": {"path": str(folder / "rfc.onnx")},
        "benchmark": None, "package": None, **sections,
    }  # fmt: skip
    file = folder / "rfc.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


@pytest.fixture
def lower(folder, tmp_path):
    """Run the stage with rules, and sections; return the summary and the warnings."""
    from tests.support import here

    def lower(sections=None, **rules):
        file = pipeline(folder, fusion=rules, **(sections or {}))
        made = flow.run(file, store=folder / "store", until="optimize")
        heard: list[Event] = []
        for name in ("out", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        target = here.facts()
        ctx = Context(
            inputs={"optimize": made["optimize"].path}, facts={Facet.TARGET: target},
            out=tmp_path / "out", work=tmp_path / "work", records=tmp_path / "records",
            emit=heard.append,
        )  # fmt: skip
        summary = LowerStage.of(load(file), folder).run(ctx)
        return summary, [event.message for event in heard if isinstance(event, Warn)]

    return lower


def test_rules_join_functions_and_cut_them(lower):
    assert lower() == ("3 fused functions", [])
    assert lower(join=[RFC]) == ("2 fused functions", [])
    assert lower(apart=[["nn.conv2d", "nn.relu"]]) == ("5 fused functions", [])


def test_without_rules_fusion_costs_nothing_more(lower, monkeypatch):
    def read(*_):
        raise AssertionError("the groups were read")

    monkeypatch.setattr(scope, "describe_steps", read)
    assert lower() == ("3 fused functions", [])
    with pytest.raises(AssertionError, match="were read"):
        lower(join=[RFC])


def test_a_rule_that_matches_nothing_is_a_warning(lower):
    summary, (warning,) = lower(join=[["nn.conv2d", "nn.softmax"]])
    assert summary == "3 fused functions"
    assert warning == (
        "fusion.join.0 [nn.conv2d, nn.softmax]: matches nothing: "
        "the nearest is nn.conv2d, which feeds nn.relu"
    )


def test_an_op_that_there_is_not_is_refused(lower):
    with pytest.raises(ConfigError, match=r"did you mean `nn.softmax`\?"):
        lower(join=[["nn.conv2d", "softmax"]])


def test_what_can_not_be_scheduled_is_split_again(lower, monkeypatch):
    monkeypatch.setattr(default, "plan", lambda *_: None)
    summary, (warning,) = lower(join=[RFC])
    assert summary == "3 fused functions"
    assert warning.endswith("nn.relu is split again: no engine has a schedule for it")


def test_a_crash_of_scheduling_splits_too(lower, monkeypatch):
    monkeypatch.setattr(default, "plan", lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    summary, (warning,) = lower(join=[RFC])
    assert summary == "3 fused functions"
    assert "is split again: scheduling failed twice: killed by SIGSEGV" in warning


@pytest.fixture
def dynamic(folder):
    """The section of a model whose number of rows is dynamic, with two likely ones."""
    convolutions(folder / "dynamic.onnx", rows="rows")
    rows = {"min": 8, "max": 64, "multiple": 8, "likely": [16, 24]}
    inputs = {"x": {"shape": [1, 3, "rows", 16], "dtype": "float32"}}
    path = str(folder / "dynamic.onnx")
    return {"model": {"path": path, "inputs": inputs, "dimensions": {"rows": rows}}}


def test_each_likely_size_is_lowered_as_a_static_build_is(lower, dynamic, folder, tmp_path):
    assert lower(dynamic) == ("3 fused functions, and at 2 likely sizes", [])
    sized_modules = SizedModules.read(tmp_path / "out").modules
    assert [sized_module.sizes for sized_module in sized_modules] == [{"rows": 16}, {"rows": 24}]
    for sized_module in sized_modules:
        at_likely_size = (tmp_path / "out" / sized_module.file).read_text(encoding="utf-8")
        convolutions(folder / "static.onnx", **sized_module.sizes)
        lower({"model": {"path": str(folder / "static.onnx")}})
        static = (tmp_path / "out" / "module.json").read_text(encoding="utf-8")
        assert list_kernels(at_likely_size) == list_kernels(static)


def list_kernels(text):
    """List the identities of the kernels of a saved module, in order."""
    functions = module_io.list_prim_funcs(tvm.ir.load_json(text))
    return [make_workload(function).identity for _, function in functions]


def test_a_warning_for_several_likely_sizes_is_shown_once(lower, dynamic):
    _, (warning,) = lower(dynamic, join=[["nn.conv2d", "nn.softmax"]])
    assert warning.startswith("fusion.join.0 [nn.conv2d, nn.softmax]: matches nothing")


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (ConfigError("model.dimensions: no"), pytest.raises(ConfigError, match="dimensions: no")),
        (MemoryError(), pytest.raises(Failed, match="memory")),
        (None, pytest.raises(Failed, match="killed by SIGKILL")),
    ],
    ids=["refusal", "memory", "crash"],
)
def test_a_fault_at_a_likely_size_is_that_of_the_stage(lower, dynamic, monkeypatch, fault, raised):
    def fail(*_):
        if fault is None:
            os.kill(os.getpid(), signal.SIGKILL)
        raise fault

    monkeypatch.setattr(fix_sizes, "bind_sizes", fail)
    with raised:
        lower(dynamic)


def test_a_tuned_record_of_every_kept_task_is_found_at_build(folder):
    """Tasks are extracted from the module that is built, whatever was joined."""
    file = pipeline(
        folder,
        fusion={"join": [RFC]},
        tuning={"budget": {"trials": 4}, "batch": 2},
        schedules={"rules": [{"engines": ["ansor"]}]},
        verify=None,
    )
    made = flow.run(file, store=folder / "store")
    tasks = json.loads((made["tasks"].path / "tasks.json").read_text(encoding="utf-8"))
    library = json.loads((made["build"].path / "library.json").read_text(encoding="utf-8"))
    assert [(task["reductions"], task["dropped"]) for task in tasks] == [(2, None), (1, None)]
    built = {row["workload"]: row["reason"] for row in library["tasks"]}
    assert built == {task["workload"]: "best record" for task in tasks}
    assert library["claimed"]["measured"] == 1.0


def test_attention_of_a_whole_model_is_one_task_of_two_calls(tmp_path):
    made = flow.run(ATTENTION, store=tmp_path, until="tasks")
    tasks = json.loads((made["tasks"].path / "tasks.json").read_text(encoding="utf-8"))
    (joined,) = [task for task in tasks if task["reductions"] == 4]
    assert [op["name"] for op in joined["info"]["ops"]] == [
        "matmul", "multiply", "nn.softmax", "matmul",
    ]  # fmt: skip
    assert (joined["calls"], joined["dropped"]) == (2, None)
    assert "nn.softmax" not in [op["name"] for t in tasks if t != joined for op in t["info"]["ops"]]
