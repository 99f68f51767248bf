"""Loops and branches through optimize, lower and build, against onnxruntime."""

import numpy as np
import onnxruntime
import tvm
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.frontends.onnx.control import loops, unroll
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.fusion.fusion_rules import FusionRules
from autopipe.compiler.fusion.scope import Scope
from autopipe.compiler.library.build import build_library
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.compiler.tasks import extract_tasks
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.recurrence import RECURRENCE
from tests.compiler.frontends.control import control_models
from tests.compiler.frontends.models import save

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


class Made:
    """A model that went through all passes, and can be called."""

    def __init__(self, model, folder, layout=None, scope=None):
        self.model = model
        self.imported = load_model(save(model, folder), {}, None, None)
        count = len(self.imported.inputs)
        optimized = lowering.optimize(self.imported.module, count, layout or {}, TARGET, print)
        self.layout = optimized.layout
        self.lowered = lowering.lower(optimized.module, TARGET, scope=scope)
        self.tasks, self.workloads = extract_tasks(self.lowered)
        built = build_library(self.lowered, {}, TARGET)
        values = list(self.imported.weights.values())
        for work in (optimized.transform, built.packing):
            values = evaluate_weights(work, values, TARGET, lambda module: module)
        self.weights = [tvm.runtime.tensor(value) for value in values]
        self.machine = relax.VirtualMachine(built.executable, tvm.cpu())

    def __call__(self, inputs):
        given = [tvm.runtime.tensor(inputs[value.name]) for value in self.imported.inputs]
        results = self.machine["main"](*given, *self.weights)
        return [result.numpy() for result in results]

    def check(self, inputs):
        session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for given in inputs:
            for ours, theirs in zip(self(given), session.run(None, given), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def calls(self, op):
        return sum(t.calls for t in self.tasks if op in [made_op.name for made_op in t.info.ops])


def test_loops_whose_rounds_are_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "_LEVELS", 5)  # the most rounds here are 600
    model, inputs = control_models.watched()
    made = Made(model, tmp_path)
    made.check(inputs)
    assert made.calls("matmul") == 2  # how often is not known, so each counts once
    fused = [[op.name for op in task.info.ops] for task in made.tasks]
    assert ["matmul", "add", "add", "tanh"] in fused
    assert not any("permute_dims" in ops for ops in fused)  # of the weight: it is done once, before


def test_loops_of_many_rounds_call_the_same_code(tmp_path, monkeypatch):
    monkeypatch.setattr(unroll, "MOST", 0)
    model, inputs = control_models.counted()
    warned: list[str] = []
    rules = FusionRules(join=(), apart=(("matmul", "tanh"),))
    made = Made(model, tmp_path, scope=Scope(rules, lambda _: None, warned.append))
    made.check(inputs)
    assert made.calls("matmul") == 33
    assert ["matmul"] in [[op.name for op in task.info.ops] for task in made.tasks]
    assert not warned


def test_branches_with_weights_and_a_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "_LEVELS", 3)
    model, inputs = control_models.branches()
    made = Made(model, tmp_path, {"conv2d": ("NHWC", "HWIO")})
    made.check(inputs)
    assert made.calls("nn.conv2d") == 4
    turned = [task for task in made.tasks if [op.name for op in task.info.ops] == ["permute_dims"]]
    shapes = {tensor.shape for task in turned for tensor in task.inputs}
    assert not shapes & {(4, 3, 3, 3), (8, 3, 1, 1), (4, 8, 3, 3), (3, 3, 3, 3)}


def test_recurrent_layers_in_bodies_are_those_that_the_template_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(unroll, "MOST", 0)
    monkeypatch.setattr(loops, "_LEVELS", 3)
    model, inputs = control_models.recurrent()
    made = Made(model, tmp_path)
    made.check(inputs)
    served = [RECURRENCE.match(make_schedule(work)) for work in made.workloads.values()]
    layers = [layer for layer in served if layer]
    assert [layer.form.kind for layer in layers].count("LSTM") == 2
    assert [layer.form.kind for layer in layers].count("GRU") == 2
    assert all(layer.free for layer in layers)  # the weights lie apart, and are packed once
