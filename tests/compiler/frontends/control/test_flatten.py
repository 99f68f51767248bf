"""Control flow that is known becomes plain nodes, which compute the same."""

import importlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test.case import node as node_cases

from autopipe.compiler.frontends.onnx.control import unroll
from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs
from autopipe.compiler.frontends.onnx.rewriting.cleanup import clean_model
from tests.compiler.frontends.control.control_models import (
    branches,
    counted,
    normal,
    parsed,
    watched,
)


def cleaned(model, tmp_path):
    """Return a model after gate and clean-up, its weights in it again."""
    data = model.SerializeToString()
    vetted = gate.vet_model(data, tmp_path / "model.onnx", {})
    given = {name: numpy_helper.to_array(tensor) for name, tensor in vetted.weights.items()}
    slim, weights = clean_model(vetted.model, given)
    whole = onnx.ModelProto()
    whole.CopyFrom(slim)
    kept = [value for value in whole.graph.input if value.name not in weights]
    del whole.graph.input[:]
    whole.graph.input.extend(kept)
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    whole.graph.initializer.extend(tensors)
    return whole, weights


def run(model, inputs):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def left(model):
    return sorted(
        node.op_type
        for graph in list_graphs(model.graph)
        for node in graph.node
        if node.op_type in {"If", "Loop", "Scan"}
    )


def same(model, inputs, tmp_path):
    """Return what control flow is left in a model that still computes the same, and its weights."""
    made, weights = cleaned(model, tmp_path)
    for given in inputs:
        for one, two in zip(run(made, given), run(model, given), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    return left(made), weights


def test_a_loop_and_a_scan_of_few_rounds_become_plain(tmp_path):
    model, inputs = counted()
    assert same(model, inputs, tmp_path)[0] == []


def test_what_takes_too_many_nodes_stays_a_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(unroll, "MOST", 0)
    model, inputs = counted()
    assert same(model, inputs, tmp_path)[0] == ["Loop", "Loop"]


def test_weights_lie_apart_wherever_they_are_read(tmp_path):
    for make, names in (
        (watched, {"w", "bias"}),
        (branches, {"k1", "b1", "k2", "k3", "k4", "two"}),
    ):
        model, inputs = make()
        kinds, weights = same(model, inputs, tmp_path)
        assert kinds
        assert set(weights) == names


def test_weights_in_bodies_lie_apart_and_equal_ones_once(tmp_path):
    branch = "{name} () => (float[1,4] r) {{ k = Constant<value = float[4] {values}>() {rest} }}"
    then = branch.format(name="a", values="{1, 2, 3, 4}", rest="r = Mul(x, k)")
    other = branch.format(name="b", values="{5, 6, 7, 8}", rest="l = Add(x, k) r = Mul(l, k)")
    model = parsed(
        f"g (float[1,4] x, bool c) => (float[1,4] y) "
        f"{{ y = If(c) <then_branch = {then}, else_branch = {other}> }}"
    )
    inputs = [{"x": normal(1, 4), "c": np.array(c)} for c in (True, False)]
    kinds, weights = same(model, inputs, tmp_path)
    assert kinds == ["If"]
    assert sorted(tuple(values) for values in weights.values()) == [(1, 2, 3, 4), (5, 6, 7, 8)]


def test_an_inner_loop_may_depend_on_the_round_of_the_outer_one(tmp_path):
    model = parsed("""
    g (float[1,4] x) => (float[1,4] y, float[3,1,4] rows)
    {
      three = Constant<value = int64 {3}>()
      y, rows = Loop(three, "", x) <
        body = outer (int64 i, bool c, float[1,4] h) => (bool c2, float[1,4] h2, float[1,4] r) {
          c2 = Identity(c)
          h2 = Loop(i, "", h) <
            body = inner (int64 j, bool d, float[1,4] g) => (bool d2, float[1,4] g2) {
              d2 = Identity(d)
              g1 = Add(g, x)
              g2 = Tanh(g1)
            }>
          r = Add(h, x)
        }>
    }""")
    assert same(model, [{"x": normal(1, 4)}], tmp_path)[0] == []


def test_states_may_grow_where_the_rounds_are_known(tmp_path):
    model = parsed("""
    g (float[1,4] x) => (float[8,4] y)
    {
      three = Constant<value = int64 {3}>()
      y = Loop(three, "", x) <
        body = outer (int64 i, bool c, float[n,4] h) => (bool c2, float[m,4] h2) {
          c2 = Identity(c)
          h2 = Concat<axis = 0>(h, h)
        }>
    }""")
    assert same(model, [{"x": normal(1, 4)}], tmp_path)[0] == []


@pytest.mark.parametrize("known", [True, False])
def test_a_known_condition_leaves_one_branch(known, tmp_path):
    model = parsed(f"""
    g (float[1,4] x) => (float[1,4] y)
    {{
      c = Constant<value = bool {{{int(known)}}}>()
      y = If(c) <then_branch = a () => (float[1,4] r) {{ r = Tanh(x) }},
                 else_branch = b () => (float[1,4] r) {{ r = Relu(x) }}>
    }}""")
    assert same(model, [{"x": normal(1, 4)}], tmp_path)[0] == []


def test_the_node_tests_of_onnx_are_computed(tmp_path):
    """All of If, Loop and Scan but sequences and optionals, and Scan of opset 8."""
    names = {"test_if", "test_loop11", "test_scan9_sum", "test_scan9_multi_state",
             "test_scan9_scalar"}  # fmt: skip
    done = set()
    for kind in ("if_", "loop", "scan"):  # all others would be made as well, and take seconds
        importlib.import_module(f"{node_cases.__name__}.{kind}")
    for case in node_cases._NodeTestCases:
        if case.name not in names:
            continue
        model = case.model
        inputs, outputs = case.data_sets[0]
        names_of_inputs = [value.name for value in model.graph.input]
        given = dict(zip(names_of_inputs, map(np.asarray, inputs), strict=True))
        fixed = {"trip_count", "cond"} & given.keys() if case.name == "test_loop11" else set()
        for name in fixed:
            model.graph.initializer.append(
                numpy_helper.from_array(np.asarray(given.pop(name)), name)
            )
        kept = [value for value in model.graph.input if value.name in given]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        made, _ = cleaned(model, tmp_path)
        for one, two in zip(run(made, given), outputs, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)
        assert left(made) == (["If"] if case.name == "test_if" else [])
        done.add(case.name)
    assert done == names


def test_a_loop_that_counts_itself_has_as_many_rounds_as_that_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(unroll, "MOST", 0)
    model = parsed("""
    g (float[5,1,4] x) => (float[p,1,4] y, float[q,1,4] z)
    {
      h0 = Constant<value = float[1,4] {1, 2, 3, 4}>()
      zero = Constant<value = int32 {0}>()
      s = Shape(x)
      start = Constant<value = int64[1] {0}>()
      end = Constant<value = int64[1] {1}>()
      first = Slice(s, start, end)
      one = Squeeze(first, start)
      length = Cast<to = 6>(one)
      go = Less(zero, length)
      k, h, l, y = Loop("", go, zero, h0, length) <
        body = cell (int64 i, bool c, int32 k, float[u,4] h, int32 l)
          => (bool c2, int32 k2, float[v,4] h2, int32 l, float[w,4] row) {
            step = Constant<value = int32 {1}>()
            k2 = Add(k, step)
            now = Gather(x, k)
            sum = Add(now, h)
            h2 = Tanh(sum)
            row = Identity(h2)
            fk = Cast<to = 1>(k2)
            fl = Cast<to = 1>(l)
            c2 = Less(fk, fl)
        }>
      ones = Shape(y)
      like = ConstantOfShape(ones)
      z = Add(y, like)
    }""")
    assert same(model, [{"x": normal(5, 1, 4)}], tmp_path)[0] == ["Loop"]


def test_what_a_branch_computes_of_constants_and_shapes_is_known(tmp_path):
    model = parsed("""
    g (float[2,3] x, bool c) => (float[a,b] y)
    {
      y = If(c) <
        then_branch = one () => (float[d,e] r) {
          s = Shape(x)
          n = Size(s)
          two = Constant<value = int64 {2}>()
          flat = Equal(n, two)
          r = If(flat) <
            then_branch = a () => (float[d,e] q) {
              none = Constant<value = int64[1] {0}>()
              p = Constant<value = int64[1] {1}>()
              pads = Concat<axis = 0>(none, p, none, p)
              q = Pad(x, pads) },
            else_branch = b () => (float[d,e] q) { q = Tanh(x) }> },
        else_branch = other () => (float[2,5] r) {
          never = Constant<value = int64[1] {0}>()
          one1 = Constant<value = int64[1] {1}>()
          edges = Concat<axis = 0>(never, one1, never, one1)
          t = Tanh(x)
          r = Pad(t, edges) }>
    }""")
    inputs = [{"x": normal(2, 3), "c": np.array(c)} for c in (True, False)]
    assert same(model, inputs, tmp_path)[0] == ["If"]
