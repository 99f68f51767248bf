"""Equal calls of an op are legalized once, and become what TVM makes of each of them."""

from typing import Any

import pytest

tvm = pytest.importorskip("tvm")
import tvm_ffi  # noqa: E402
from tvm import relax  # noqa: E402

from autopipe.compiler.graph import shared_legalization  # noqa: E402
from autopipe.compiler.graph.contents import CONSTANT, list_contents  # noqa: E402
from autopipe.compiler.passes.fold_constants import fold_constants  # noqa: E402
from autopipe.compiler.passes.legalize import legalize_ops  # noqa: E402

CPU = tvm.target.Target({"kind": "llvm", "num-cores": 1})

REPEATED = """
        a = R.add(x, y)
        b = R.add(y, a)  # the same kernel, of others
        c = R.add(b, b)  # another kernel: of one tensor
        d = R.add(c, z)  # another: of another shape
        e = R.add(z, z)
        f = R.add(e, z)
        g = R.concat((d, a), axis=0)
        h = R.concat((a, d), axis=0)
        i = R.concat((a, a), axis=0)
        j = R.split(g, 2, axis=0)
        k = R.split(h, 2, axis=0)
        return (f, i, j, k)
"""
DYNAMIC = REPEATED.replace("R.split(g, 2, axis=0)", "g").replace("R.split(h, 2, axis=0)", "h")


def parse(shape: str, body: str) -> Any:
    """Return a module of three tensors, two of them of a shape."""
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor({shape}, "float32"), y: R.Tensor({shape}, "float32"),
        z: R.Tensor((4,), "float32"),
    ):{body}
""")


@pytest.mark.parametrize(
    "module", [parse("(2, 4)", REPEATED), parse('("n", 4)', DYNAMIC)], ids=["static", "dynamic"]
)
def test_a_module_is_what_tvm_makes_of_it(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with CPU:
        shared = legalize_ops(module)
        monkeypatch.setattr(shared_legalization._SharedCalls, "add", lambda *_: None)
        usual = legalize_ops(module)
    assert shared.script() == usual.script()
    assert tvm_ffi.structural_equal(shared, usual)


def test_equal_calls_are_legalized_once() -> None:
    builder, made = relax.BlockBuilder(), []

    def count(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        made.append(call)
        return builder.call_te(tvm.topi.add, *call.args)

    once = shared_legalization._share_kernels(count)
    x, y, z = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (2, 4)), ("y", (2, 4)), ("z", (4,)))
    )
    pairs = [(x, y), (y, x), (x, z), (y, z)]
    calls: list[Any] = [builder.normalize(relax.op.add(*pair)) for pair in pairs]
    results: list[Any] = [once(builder, call) for call in calls]
    assert len(made) == 2
    assert [tuple(result.args[1].fields) for result in results] == pairs
    once(relax.BlockBuilder(), calls[0])
    assert len(made) == 3, "a kernel of another module"


def test_calls_of_dynamic_sizes_are_shared_if_they_have_the_same() -> None:
    builder, made = relax.BlockBuilder(), []
    first_size, second_size = (tvm.tirx.Var(name, "int64") for name in "nm")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        made.append(call)
        return builder.call_te(tvm.topi.add, *call.args)

    once = shared_legalization._share_kernels(legalize)
    x, y, z = (
        relax.Var("x", relax.TensorType((size, 4), "float32"))
        for size in (first_size, first_size, second_size)
    )
    calls: list[Any] = [builder.normalize(relax.op.add(each, each)) for each in (x, y, z)]
    results: list[Any] = [once(builder, call) for call in calls]
    assert made == [calls[0], calls[2]], "x and y have the same size, and z has another one"
    assert [list(result.ty_args[0].shape) for result in results] == [
        [first_size, 4], [first_size, 4], [second_size, 4],
    ]  # fmt: skip
    assert tuple(results[1].args[1].fields) == (y, y)


def test_a_size_that_the_legalization_makes_is_not_shared() -> None:
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"),), "float32"))
    builder, made = relax.BlockBuilder(), []

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        made.append(call)
        kernel = builder.call_te(tvm.topi.add, *call.args)
        size = tvm.tirx.Var("found", "int64")
        return relax.call_tir(kernel.args[0], kernel.args[1], relax.TensorType((size,), "float32"))

    once = shared_legalization._share_kernels(legalize)
    call: Any = builder.normalize(relax.op.add(x, x))
    sizes = [once(builder, call).ty_args[0].shape[0] for _ in range(2)]
    assert len(made) == 2
    assert not sizes[0].same_as(sizes[1])


def test_constants_alone_are_legalized_for_folding() -> None:
    builder = relax.BlockBuilder()
    one, x = relax.const([1.0] * 4, "float32"), relax.Var("x", relax.TensorType((4,), "float32"))
    once = shared_legalization._share_kernels(lambda bb, call: bb.call_te(tvm.topi.add, *call.args))
    calls: list[Any] = [builder.normalize(relax.op.add(one, each)) for each in (one, x)]
    of_constants, of_variables = calls
    with shared_legalization.legalize_constants_only():
        assert once(builder, of_variables).same_as(of_variables)
        legalized: Any = once(builder, of_constants)
    assert legalized.op.name == "relax.call_tir"
    assert not once(builder, of_variables).same_as(of_variables)


def test_constants_are_folded_and_the_rest_is_left() -> None:
    one, x = relax.const([1.0] * 4, "float32"), relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            two = builder.emit(relax.op.multiply(one, one))
            total = builder.emit_output(relax.op.add(x, two))
        builder.emit_func_output(total)
    with CPU:
        assert list_contents(fold_constants(builder.get())) == {"relax.add", CONSTANT}
