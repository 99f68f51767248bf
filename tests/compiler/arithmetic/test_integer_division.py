"""Integer division by every number: no operand may end a process."""

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler.arithmetic import integer_division  # noqa: F401 - what is tested
from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.models import compiled, save
from tests.compiler.frontends.test_new_operators import case, merged

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
KINDS = [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})]


def operands(dtype):
    """Return every pair of numbers at which a processor may trap, and some at which it does not."""
    info = np.iinfo(dtype)
    numbers = [info.min, info.min + 1, 0, 1, 3, 7, info.max, np.array(-1).astype(dtype).item()]
    pairs = np.array([(x, w) for x in numbers for w in numbers], dtype)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def expected(kind, x, w, attributes):
    """Return what `docs/concepts/verification.md` promises: 0 by 0, and else what ONNX defines."""
    with np.errstate(all="ignore"):
        if kind == "Mod":
            return np.fmod(x, w) if attributes else np.mod(x, w)
        exact = [quotient(*pair) for pair in zip(x, w, strict=True)]
        return np.array(exact, np.uint64).astype(x.dtype)


def quotient(x, w):
    """Return a quotient rounded towards 0, within 64 bits."""
    exact = abs(int(x)) // abs(int(w)) if w else 0
    exact = -exact if (x < 0) != (w < 0) else exact
    return exact % 2**64


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_division_by_any_number_has_a_value(dtype, tmp_path):
    x, w = operands(dtype)
    made, wanted = [], []
    for kind, attributes in KINDS:
        made += [
            case(kind, {"x": x, "w": w}, **attributes),
            case(kind, {"x": x}, {"w": w}, **attributes),
            case(kind, {"w": w}, {"x": x}, order=["x", "w"], **attributes),
        ]
        wanted += [expected(kind, x, w, attributes)] * 3
        for one in np.unique(w):
            made.append(case(kind, {"x": x}, {"w": np.array(one)}, **attributes))
            wanted.append(expected(kind, x, np.full_like(x, one), attributes))
    whole, feeds = merged(made, 20)
    results = compiled(load_model(save(whole, tmp_path), {}, None, None), feeds)
    for output, ours, right in zip(whole.graph.output, results, wanted, strict=True):
        np.testing.assert_array_equal(ours, right, err_msg=output.name)


def test_constants_are_folded_by_the_same_rule(tmp_path):
    x, w = operands("int32")
    cases = [
        case(kind, {"y": x}, {"x": x, "w": w}, order=["x", "w"], **each) for kind, each in KINDS
    ]
    for graph, _, _ in cases:  # what is divided is added to an input, so that this is one
        graph.node[0].output[0] = "quotient"
        graph.node.add(op_type="Add", input=["y", "quotient"], output=["z"])
        graph.output[0].name = "z"
    made, feeds = merged(cases, 20)
    results = compiled(load_model(save(made, tmp_path), {}, None, None), feeds)
    for (kind, attributes), ours in zip(KINDS, results, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ours, x + expected(kind, x, w, attributes), kind)


def divided(divisor):
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType([4, 16], "int32")) for name in "xw")
    with builder.function("main", [x, w]):
        builder.emit_func_output(
            builder.emit(relax.op.divide(x, w if divisor is None else divisor))
        )
    return relax.transform.LegalizeOps()(builder.get())


def test_a_division_by_a_number_of_the_code_has_no_guard():
    assert "Select" not in divided(relax.const(7, "int32")).script()
    assert "Select" in divided(None).script()


def test_a_division_is_one_block_that_vectors_take():
    module = divided(None)
    schedule = tvm.s_tir.Schedule(module["divide"].with_attr("global_symbol", "main"))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.vectorize(schedule.get_loops(block)[-1])
    built = tvm.compile(schedule.mod, tvm.target.Target({"kind": "llvm"}))
    x, w = (np.resize(one, (4, 16)) for one in operands("int32"))
    out = tvm.runtime.tensor(np.zeros_like(x))
    built["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    right = expected("Div", x.ravel(), w.ravel(), {}).reshape(x.shape)
    np.testing.assert_array_equal(out.numpy(), right)


def test_a_dividend_that_overflowed_does_not_trap(tmp_path):
    """LLVM takes `-x` for no overflow, so that no guard may ask for the smallest integer."""
    least = np.array([np.iinfo(np.int32).min], np.int32)
    graph, feeds, _ = case("Div", {"x": least, "w": np.array([-1], np.int32)})
    graph.node[0].input[0] = "negative"
    negation = graph.node.add(op_type="Neg", input=["x"], output=["negative"])
    graph.node.sort(key=lambda one: one is not negation and one.op_type == "Div")
    made, feeds = merged([(graph, feeds, "")], 20)
    assert compiled(load_model(save(made, tmp_path), {}, None, None), feeds)[0].shape == (1,)
