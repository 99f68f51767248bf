"""Short bodies are put where they are called; longer ones, and those that choose, are not."""

import numpy as np
import tvm
from tvm import relax
from tvm.script import from_source, ir, tirx
from tvm.script import relax as script

from autopipe.compiler.graph.calls import graph_functions, list_callees, list_function_calls
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.passes.inline_bodies import MOST, inline_bodies
from tests.compiler import graphs

SIZE = (4,)


def added(builder, name, steps, *, chosen=False):
    """A function of one tensor that does each step, or the first one or, if any, the second."""
    h = relax.Var("h", relax.TensorType(SIZE, "float32"))
    with builder.function(name, [h], private=name != "main"):
        if chosen:
            go = relax.const(value=False, dtype="bool")
            values = [*(relax.Call(step, [h]) for step in steps), h]
            one, two, *_ = (relax.SeqExpr([], value) for value in values)
            result = builder.emit(relax.If(go, one, two))
        else:
            with builder.dataflow():
                value = h
                for step in steps:
                    value = builder.emit(step(value))
                result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get().get_global_var(name)


def call(function):
    return lambda value: relax.Call(function, [value])


def legalized(module):
    return relax.transform.LegalizeOps()(module)


def kernels(module):
    return {
        str(variable.name_hint): (len(list_callees(function)), len(list_function_calls(function)))
        for variable, function in graph_functions(module)
    }


def test_a_chain_of_functions_is_as_deep_as_it_has_to_be():
    builder = relax.BlockBuilder()
    body = added(builder, "body", [relax.op.tanh, relax.op.negative])
    rounds = added(builder, "rounds", [call(body)] * 8)
    more = added(builder, "more", [call(rounds)] * 8)
    added(builder, "main", [call(more)] * 2 + [call(body)])
    module = legalized(builder.get())
    changed = inline_bodies(module)
    assert MOST == 2 * 64
    assert kernels(changed) == {"main": (2, 2), "more": (128, 0)}
    assert int(changed["more"].attrs[COUNT]) == 0
    x = tvm.runtime.tensor(np.linspace(-2, 2, 4, dtype="float32"))
    machines = (
        relax.VirtualMachine(tvm.compile(m, graphs.PLAIN), tvm.cpu()) for m in (module, changed)
    )
    before, after = (machine["main"](x).numpy() for machine in machines)
    np.testing.assert_array_equal(before, after)


def test_what_is_done_under_a_condition_is_put_there():
    builder = relax.BlockBuilder()
    one = added(builder, "one", [relax.op.tanh])
    maybe = added(builder, "maybe", [one], chosen=True)
    added(builder, "main", [call(maybe)])
    assert kernels(inline_bodies(legalized(builder.get()))) == {"main": (0, 1), "maybe": (1, 0)}


def test_a_function_with_two_branches_stays_as_it_is():
    builder = relax.BlockBuilder()
    one = added(builder, "one", [relax.op.tanh])
    two = added(builder, "two", [relax.op.negative])
    either = added(builder, "either", [one, two], chosen=True)
    added(builder, "main", [call(either), call(one)])
    changed = inline_bodies(legalized(builder.get()))
    found = {"main": (1, 1), "either": (0, 2), "one": (1, 0), "two": (1, 0)}
    assert kernels(changed) == found


def test_a_model_without_bodies_is_not_touched():
    builder = relax.BlockBuilder()
    added(builder, "main", [relax.op.tanh])
    module = legalized(builder.get())
    assert inline_bodies(module) is module


SCRIPT = {"I": ir, "R": script, "T": tirx}
ROWS = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def more(rows: T.int64, given: T.Buffer((), "int64"), made: T.Buffer((), "int64")):
        with T.sblock("more"):
            one = T.axis.spatial(T.int64(1), T.int64(0))
            made[()] = given[()] + rows

    @R.function(private=True)
    def body(
        n: R.Tensor((), "int64"), x: R.Tensor(("rows", 16), "float32")
    ) -> R.Tensor((), "int64"):
        rows = T.int64()
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.more, (rows, n), out_ty=R.Tensor((), "int64"))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(("rows", 16), "float32")) -> R.Tensor((), "int64"):
        R.func_attr({"num_input": 1})
        cls = Module
        return cls.body(R.const(1, "int64"), x)
"""
"""A body that is given how many rows a tensor has, which it reads from the tensor's type."""


def test_dynamic_sizes_of_a_body_are_those_of_its_caller():
    changed = inline_bodies(from_source(ROWS, extra_vars=SCRIPT))
    assert len(graph_functions(changed)) == 1
    main = relax.VirtualMachine(tvm.compile(changed, "llvm"), tvm.cpu())["main"]
    assert main(tvm.runtime.tensor(np.zeros((5, 16), "float32"))).numpy() == 6
