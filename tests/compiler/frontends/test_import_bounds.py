"""What the import of a small file may take: memory, nodes, copies of weights."""

import itertools
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.compiler.frontends.onnx.rewriting.cleanup import clean_model
from autopipe.errors import ModelError
from tests.compiler.frontends.models import ints, model, node, save, tensor, value
from tests.support.table import each_row


def doubling(state, rounds=28):
    """Return a model whose loop doubles a state so many times, in plain sight."""
    body = helper.make_graph(
        [node("Concat", ["s", "s"], "t", axis=0), node("Identity", ["c"], "d")],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", None)],
        [value("d", [], TensorProto.BOOL), value("t", None)],
    )
    nodes = [
        node("Loop", ["rounds", "", state], "r", body=body),
        node("ReduceSum", ["r"], "sum", keepdims=0), node("Add", ["x", "sum"]),
    ]  # fmt: skip
    stored = [numpy_helper.from_array(np.array(rounds), "rounds"), tensor("w", 4)]
    return model(nodes, [value("x", [4])], [value("y", [4])], stored)


@pytest.mark.fault("B11", "M3")
@each_row("state, said", [
    ("x", "the tensors that are alive with its results take 3072 MiB"),
    ("w", "what is computed of constants alone comes to 2048 MiB"),
])  # fmt: skip
def test_a_state_that_doubles_is_bounded_before_its_data_is_propagated(state, said, tmp_path):
    tracemalloc.start()
    with pytest.raises(ModelError, match=said):
        load_model(save(doubling(state), tmp_path), {}, None, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**28


def looping(rounds, state, *, stacked=False, inner=None):
    """Return a model whose loop runs so often, with a loop of `inner` rounds inside it."""
    steps, count = [node("Add", ["s", "w"], "t")], [ints("rounds", rounds)]
    if inner is not None:
        within = helper.make_graph(
            [node("Add", ["p", "w"], "q"), node("Identity", ["g"], "h")], "within",
            [value("j", [], TensorProto.INT64), value("g", [], TensorProto.BOOL), value("p", [4])],
            [value("h", [], TensorProto.BOOL), value("q", [4])],
        )  # fmt: skip
        steps = [node("Loop", ["inner", "", "s"], "t", body=within)]
        count.append(ints("inner", inner))
    rows = [value("r", [4])] if stacked else []
    body = helper.make_graph(
        [*steps, node("Identity", ["c"], "d"), *([node("Neg", ["t"], "r")] if stacked else [])],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [4])],
        [value("d", [], TensorProto.BOOL), value("t", [4]), *rows],
    )
    made = helper.make_node("Loop", ["rounds", "", state], ["a", "b"][: 1 + stacked], body=body)
    last = [node("ReduceSum", ["b" if stacked else "a"], "sum", keepdims=0)]
    nodes = [made, *last, node("Add", ["x", "sum"])]
    return model(nodes, [value("x", [4])], [value("y", [4])], [*count, tensor("w", 4)])


@pytest.mark.fault("B11", "M3")
@each_row("made, said", [
    (looping(10**9, "w"), "takes 1000000000 rounds over constants, more than 1048576"),
    (looping(2**11, "w", inner=2**11), "takes 4194304 rounds over constants"),
    (looping(10**9, "x", stacked=True), "1000000000 rows of 16 bytes|tensors that are alive with"),
    (looping(10**9, "w", stacked=True), "rounds over constants|constants alone comes to"),
])  # fmt: skip
def test_rounds_of_a_loop_are_bounded(made, said, tmp_path_factory):
    with pytest.raises(ModelError, match=said):
        load_model(save(made, tmp_path_factory.mktemp("loop")), {}, None, None)


@pytest.mark.fault("B11")
def test_a_loop_of_many_rounds_over_an_input_is_a_few_functions(tmp_path):
    imported = load_model(save(looping(10**9, "x"), tmp_path), {}, None, None)
    assert len(imported.module.get_global_vars()) < 32


def branching(depth):
    """Return a model whose branches have branches: 2^depth leaves."""
    names = itertools.count()

    def graph(left):
        name = f"y{next(names)}"
        if left:
            made = node("If", ["c"], name, then_branch=graph(left - 1), else_branch=graph(left - 1))
        else:
            made = node("Add", ["x", "x"], name)
        return helper.make_graph([made], name, [], [value(name, [4])])

    top = graph(depth)
    top.input.extend([value("x", [4]), value("c", [], TensorProto.BOOL)])
    return helper.make_model(top, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.fault("B11")
def test_branches_of_branches_are_bounded(monkeypatch):
    asked: list[int] = []

    def available():
        asked.append(1)
        return 2**40

    monkeypatch.setattr(bounds, "available", available)
    gate.vet_model(branching(8).SerializeToString(), Path("m.onnx"), {})
    assert len(asked) < 4  # to ask reads files
    with pytest.raises(ModelError, match=r"the model has 8190 branches and bodies, more than 1024"):
        gate.parse_model(branching(12).SerializeToString())


def chained(depth, calls):
    """Return a model of functions that each call the one before so many times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
    functions = []
    for number in range(depth):
        names = ["a", *(f"m{at}" for at in range(calls - 1)), "b"]
        kind, domain = (f"f{number - 1}", "ours") if number else ("Neg", "")
        nodes = [
            helper.make_node(kind, [one], [other], domain=domain)
            for one, other in itertools.pairwise(names)
        ]
        functions.append(helper.make_function("ours", f"f{number}", ["a"], ["b"], nodes, opsets))
    nodes = [helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="ours")]
    ends = [value("x", [4])], [value("y", [4])]
    return model(nodes, *ends, functions=functions, opsets=opsets)


@pytest.mark.fault("B11")
def test_the_nodes_of_inlined_functions_are_bounded():
    with pytest.raises(ModelError, match=r"the model has 16777216 nodes, more than 131072"):
        gate.parse_model(chained(24, 2).SerializeToString())
    assert len(gate.parse_model(chained(8, 2).SerializeToString()).graph.node) == 2**8
    assert len(gate.parse_model(chained(90, 1).SerializeToString()).graph.node) == 1


@pytest.mark.fault("B11", "M3")
def test_import_has_a_bound_of_its_own(tmp_path):
    """In a process of its own: memory that other tests leave and an import frees would be room."""
    nodes = [node("ReduceSum", ["c", "axes"], "sum", keepdims=0), node("Add", ["x", "sum"])]
    nodes = [node("Expand", ["one", "shape"], "c"), *nodes]
    stored = [ints("shape", 4096, 4096), ints("axes", 0, 1), tensor("one", 1, 1)]
    path = save(model(nodes, [value("x", [4])], [value("y", [4])], stored), tmp_path)
    load_model(path, {}, None, None)
    program = f"""
import dataclasses
from pathlib import Path
from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.onnx.load import load_model
small = dataclasses.replace(bounds.BOUNDS, imported=2**24, imported_share=0)
bounds.compute_import_limit.__defaults__ = (small,)
load_model(Path({str(path)!r}), {{}}, None, None)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "the model needs more than 16 MiB to be imported" in done.stderr.splitlines()[-1]


@each_row("kind, attributes, weights", [
    ("Identity", {}, 2), ("Cast", {"to": TensorProto.FLOAT}, 2),
    ("Transpose", {"perm": [1, 0]}, 2), ("Neg", {}, 2),
])  # fmt: skip
def test_what_is_made_of_a_shared_weight_is_stored_once(kind, attributes, weights):
    nodes, last = [], "x"
    for number in range(40):
        nodes.append(node(kind, [f"w{number % 2}"], f"v{number}", **attributes))
        nodes.append(node("MatMul", [last, f"v{number}"], f"y{number}"))
        last = f"y{number}"
    stored = [tensor("w0", 64, 64), tensor("w1", 64, 64, fill=2)]
    made = model(nodes, [value("x", [1, 64])], [value(last, [1, 64])], stored)
    vetted = gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
    given = {name: numpy_helper.to_array(each) for name, each in vetted.weights.items()}
    assert len(clean_model(vetted.model, given)[1]) == weights


def test_other_names_of_a_weight_take_no_memory():
    """Of 40 MB, 60 times: more than constants may come to, if each were another tensor."""
    nodes = [node("Identity", ["w" if at == 0 else f"v{at - 1}"], f"v{at}") for at in range(60)]
    nodes += [node("MatMul", ["x", "v59"])]
    shape = [3200, 3200]
    weight = numpy_helper.from_array(np.zeros(shape, "f"), "w")
    made = model(nodes, [value("x", [1, 3200])], [value("y", [1, 3200])], [weight])
    gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
