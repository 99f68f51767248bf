"""Fused functions by rule: what is one task, and that the numbers stay."""

from collections import Counter

import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.fusion import graph_steps, regroup, scope
from autopipe.compiler.fusion.fusion_rules import FusionRules
from autopipe.compiler.fusion.scope import Scope
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.labels import op_info
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.errors import ConfigError
from autopipe.schedules.engines import default
from autopipe.tasks.op_info import Parameter
from tests.compiler import cuda_graphs, graphs

RFC = ["nn.conv2d", "nn.relu"] * 2
ATTENTION = ["matmul", "nn.softmax", "matmul"]


def plain(make, *shapes):
    """What `make` computes of inputs and weights of these shapes."""
    params = [
        relax.Var(f"p{index}", relax.TensorType(shape, "float32"))
        for index, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


def built(make, *shapes, inputs=1):
    """The same, optimized."""
    return lowering.optimize(plain(make, *shapes), inputs, {}, graphs.TARGET, print).module


def rfc(emit, x, k1, k2):
    y = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, k1, padding=1))))
    return relax.op.nn.relu(emit(relax.op.nn.conv2d(y, k2, padding=1)))


def convolutions():
    return built(rfc, (1, 3, 8, 8), (4, 3, 3, 3), (4, 4, 3, 3))


def attend(emit, x, mask, *weights):
    """Two heads, with their scale and mask."""
    products = [emit(relax.op.reshape(emit(relax.op.matmul(x, w)), (6, 2, 4))) for w in weights]
    axes = ((1, 0, 2), (1, 2, 0), (1, 0, 2))
    heads = [emit(relax.op.permute_dims(*each)) for each in zip(products, axes, strict=True)]
    scores = emit(relax.op.multiply(emit(relax.op.matmul(*heads[:2])), relax.const(0.5, "float32")))
    shares = emit(relax.op.nn.softmax(emit(relax.op.add(scores, mask))))
    mixed = emit(relax.op.permute_dims(emit(relax.op.matmul(shares, heads[2])), (1, 0, 2)))
    return relax.op.reshape(mixed, (6, 8))


def attention():
    return built(attend, (6, 8), (6, 6), (8, 8), (8, 8), (8, 8), inputs=2)


def normalized(emit, x, scale, shift, *weights):
    """A normalization that feeds two products and what comes after them."""
    y = emit(relax.op.nn.layer_norm(x, scale, shift, axes=[-1]))
    products = [emit(relax.op.nn.relu(emit(relax.op.matmul(y, w)))) for w in weights]
    return relax.op.add(emit(relax.op.add(*products)), y)


def lowered(module, said=None, refusal=lambda _: None, **rules):
    said = [] if said is None else said
    return lowering.lower(
        module, graphs.TARGET, scope=Scope(FusionRules(**rules), refusal, said.append)
    )


def names(module):
    return [task.info.names for task in tasks.extract_tasks(module)[0]]


def arrays(module, seed=0):
    return [array * 0.3 for array in graphs.arguments(module, seed)]


def same(module, other):
    given = arrays(module)
    expected = graphs.expected(lowering.lower(module, graphs.TARGET), given)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(graphs.run(other, given), expected, rtol=1e-5, atol=1e-6)


def test_the_function_of_the_rfc_is_one_task():
    module = convolutions()
    said: list[str] = []
    joined = lowered(module, said, join=[RFC])
    (task,) = tasks.extract_tasks(joined)[0]
    assert task.info.names == ("nn.conv2d", "nn.relu", "nn.conv2d", "nn.relu")
    assert (task.reductions, task.calls, said) == (2, 1, [])
    assert [t.shape for t in task.inputs] == [(1, 3, 8, 8), (4, 3, 3, 3), (4, 4, 3, 3)]
    assert [t.shape for t in task.outputs] == [(1, 4, 8, 8)]
    same(module, joined)


def test_it_is_the_workload_that_fusion_by_hand_gives():
    """As in the RFC: a Relax function that is marked primitive before `FuseOps` runs."""
    module = convolutions()
    legalized = relax.transform.LegalizeOps()(module)
    whole = legalized["main"]
    inner = relax.Function(whole.params, whole.body, whole.ret_ty).with_attr("Primitive", 1)
    outer = [relax.Var(param.name, param.ty) for param in whole.params]
    builder = relax.BlockBuilder(legalized)
    fused = builder.add_func(inner, "fused")
    with builder.function("other", outer):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(fused, outer))
        builder.emit_func_output(out)
    merged = relax.transform.FuseTIR()(builder.get())
    by_hand = tasks.make_workload(merged["fused"].with_attr("layout_free_buffers", [1, 2]))
    (task,) = tasks.extract_tasks(lowered(module, join=[RFC]))[0]
    assert task.workload == by_hand.identity


def test_weights_of_a_joined_function_are_free_in_layout():
    ((_, function),) = module_io.list_prim_funcs(lowered(convolutions(), join=[RFC]))
    assert [int(i) for i in function.attrs["layout_free_buffers"]] == [1, 2]


def test_op_information_tells_how_the_joined_ops_feed_each_other():
    ((_, function),) = module_io.list_prim_funcs(lowered(convolutions(), join=[RFC]))
    info = op_info.read_op_info(function)
    assert [op.arguments[0].model_dump() for op in info.ops] == [
        {"parameter": 0}, {"op": 0, "output": 0}, {"op": 1, "output": 0}, {"op": 2, "output": 0},
    ]  # fmt: skip
    assert [op.arguments[1] for op in info.ops[::2]] == [Parameter(parameter=i) for i in (1, 2)]
    assert info.ops[2].attributes["padding"] == [1, 1, 1, 1]


def test_attention_is_one_task_with_its_scale_and_mask():
    module = attention()
    joined = lowered(module, join=[ATTENTION])
    assert ("matmul", "multiply", "add", "nn.softmax", "matmul") in names(joined)
    (task,) = [t for t in tasks.extract_tasks(joined)[0] if len(t.info.ops) == 5]
    assert task.reductions == 4
    same(module, joined)


def test_a_result_that_others_read_is_one_more_output():
    module = built(normalized, (6, 8), (8,), (8,), (8, 8), (8, 8))
    joined = lowered(module, join=[["nn.layer_norm", "matmul"]])
    (task,) = [t for t in tasks.extract_tasks(joined)[0] if "nn.layer_norm" in t.info.names]
    assert task.info.names == ("nn.layer_norm", "matmul", "nn.relu")
    assert [t.shape for t in task.outputs] == [(6, 8), (6, 8)]
    assert task.reductions == 3
    same(module, joined)


def test_ops_that_tvm_fuses_are_kept_apart():
    module = convolutions()
    assert names(lowered(module)) == [("nn.conv2d", "nn.relu")] * 2
    cut = lowered(module, apart=[["nn.conv2d", "nn.relu"]])
    assert names(cut) == [("nn.conv2d",), ("nn.relu",), ("nn.conv2d",)]  # both relus are equal
    same(module, cut)


def test_a_cut_inside_of_an_epilogue_leaves_both_ends_fused():
    module = attention()
    cut = lowered(module, apart=[["matmul", "add"]])
    assert ("matmul", "multiply") in names(cut)
    assert ("add",) in names(cut)
    same(module, cut)


def test_a_normalization_and_its_product_are_joined_and_kept_apart_by_the_same_pattern():
    module = built(normalized, (6, 8), (8,), (8,), (8, 8), (8, 8))
    pattern = [["nn.layer_norm", "matmul"]]
    assert names(lowered(module, apart=pattern)) == names(lowered(module))
    assert names(lowered(module, join=pattern)) != names(lowered(module))


@pytest.mark.parametrize("make", [convolutions, attention])
def test_rules_that_match_nothing_change_nothing(make):
    module = make()
    said: list[str] = []
    before = lowering.lower(module, graphs.TARGET)
    ruled = lowered(module, said, join=[["nn.max_pool2d", "matmul"]], apart=[["erf", "matmul"]])
    assert len(said) == 2
    tvm.ir.assert_structural_equal(before, ruled)


def test_equal_joined_functions_are_one_task():
    def twice(emit, x, *kernels):
        pooled = emit(relax.op.nn.avg_pool2d(emit(rfc(emit, x, *kernels[:2]))))
        return rfc(emit, pooled, *kernels[2:])

    kernels = [(3, 3, 3, 3)] * 4
    module = built(twice, (1, 3, 8, 8), *kernels)
    joined = lowered(module, join=[RFC])
    assert [(len(t.info.ops), t.calls) for t in tasks.extract_tasks(joined)[0]] == [(4, 2), (1, 1)]
    same(module, joined)


def test_several_results_and_constants_of_a_call_stay_what_they_are():
    def parts(emit, x, w):
        pair = emit(relax.op.split(emit(relax.op.exp(x)), 2, axis=1))
        table = relax.const(np.arange(24, dtype="float32").reshape(6, 4))
        y = emit(relax.op.matmul(emit(relax.op.add(pair[0], table)), w))
        z = emit(relax.op.matmul(emit(relax.op.nn.relu(y)), w))
        return relax.op.multiply(emit(relax.op.nn.relu(z)), pair[1])

    module = built(parts, (6, 8), (4, 4))
    said: list[str] = []
    joined = lowered(module, said, join=[["add", "matmul", "matmul"], ["exp", "split"]])
    assert ("add", "matmul", "nn.relu", "matmul", "nn.relu", "multiply") in names(joined)
    (text,) = said
    assert text.endswith("split has several results")
    same(module, joined)


def test_symbolic_sizes_stay_as_tvm_fuses_them():
    rows = tvm.tirx.Var("n", "int64")
    said: list[str] = []
    make = lambda emit, x, w: relax.op.nn.relu(emit(relax.op.matmul(x, w)))  # noqa: E731
    module = built(make, (rows, 8), (8, 8))
    cut = lowered(module, said, apart=[["matmul", "nn.relu"]])
    assert names(cut) == [("matmul", "nn.relu")]
    assert said[0].endswith("has a symbolic dimension")


def test_what_no_engine_can_schedule_is_split_again():
    module = convolutions()
    said: list[str] = []
    found = []

    def refusal(workload):
        found.append(workload)
        return "no engine has a schedule for it"

    split = lowered(module, said, refusal, join=[RFC])
    assert len(found) == 1
    assert names(split) == names(lowered(module))
    (text,) = said
    assert text == (
        "fusion.join.0 [nn.conv2d, nn.relu, nn.conv2d, nn.relu]: one function of nn.conv2d, "
        "nn.relu, nn.conv2d, nn.relu is split again: no engine has a schedule for it"
    )
    same(module, split)


def test_pieces_are_tried_too():
    module = convolutions()
    said: list[str] = []
    bare = Scope(FusionRules(join=[RFC]), lambda _: "it has loops", said.append, try_all=True)
    split = lowering.lower(module, graphs.TARGET, scope=bare)
    assert names(split) == [("nn.conv2d",), ("nn.relu",), ("nn.conv2d",)]
    assert len(said) == 2


def test_a_function_of_several_results_is_taken_apart_again():
    """`FuseOps` may return a tuple, as what rules join does here."""
    module = plain(normalized, (6, 8), (8,), (8,), (8, 8), (8, 8))
    with graphs.TARGET:
        named, ops, _ = op_info.name_ops(module)
        legalized = relax.transform.AnnotateTIROpPattern()(legalize_ops(named))
    known = op_info.collect_call_infos(legalized, ops)
    scope_ = Scope(FusionRules(join=[["nn.layer_norm", "matmul"]]), lambda _: None, print)
    joined = scope.fuse_calls(legalized, ops, known, scope_)
    before = graph_steps.describe_steps(legalized, ops, known)
    made = regroup.read_groups(joined, before)
    assert ("op0", "op4") in made.values.values()
    single = regroup.replace_groups(joined, before, made, [(step.name,) for step in before.steps])
    calls = [find_callee(binding.value) for binding in list_bindings(single["main"])]
    assert Counter(filter(None, calls)) == Counter(map(find_callee, before.calls.values()))
    given = arrays(module)
    np.testing.assert_array_equal(graphs.run(single, given), graphs.run(legalized, given))


def test_what_tvm_can_not_merge_is_split_again(monkeypatch):
    def merge():
        raise tvm.error.InternalError("a trace\n  of it\nnot possible")

    module = convolutions()
    said: list[str] = []
    monkeypatch.setattr(scope, "FuseTIR", merge)
    split = lowered(module, said, join=[RFC])
    assert names(split) == [("nn.conv2d", "nn.relu")] * 2
    assert said[0].endswith("is split again: TVM cannot merge them: not possible")


def test_where_all_have_to_be_scheduled_what_tvm_fused_is_split_too():
    module = convolutions()
    said: list[str] = []
    bare = Scope(FusionRules(), lambda _: "it has loops", said.append, try_all=True)
    split = lowering.lower(module, graphs.TARGET, scope=bare)
    assert names(split) == [("nn.conv2d",), ("nn.relu",), ("nn.conv2d",)]
    assert said == ["one function of nn.conv2d, nn.relu is split again: it has loops (2 times)"]
    same(module, split)


def test_what_is_computed_twice_is_left_alone():
    def repeated(emit, x, w):
        first, second = (emit(relax.op.matmul(x, w)) for _ in range(2))
        y = emit(relax.op.nn.relu(emit(relax.op.matmul(emit(relax.op.nn.relu(first)), w))))
        return relax.op.add(emit(relax.op.nn.softmax(y)), emit(relax.op.exp(second)))

    module = plain(repeated, (8, 8), (8, 8))
    said: list[str] = []
    joined = lowered(module, said, join=[["matmul", "matmul"]], apart=[["matmul", "exp"]])
    assert [text.rpartition(": ")[2] for text in said] == ["matmul is computed twice"] * 2
    same(module, joined)


def test_on_a_gpu_what_can_be_scheduled_stays_as_it_is():
    module = convolutions()
    said: list[str] = []

    def refusal(workload):
        return None if default.plan(workload, cuda_graphs.CONDITIONS) else "no"

    tried = Scope(FusionRules(), refusal, said.append, try_all=True)
    before, after = (lowering.lower(module, cuda_graphs.TARGET, scope=s) for s in (None, tried))
    tvm.ir.assert_structural_equal(before, after)
    assert said == []


@pytest.mark.parametrize(
    ("op", "meant"),
    [
        ("softmax", "; did you mean `nn.softmax`?"),
        ("nn.layernorm", "; did you mean `nn.layer_norm`?"),
        ("conv2d*", "; did you mean `nn.conv2d`?"),
        ("qqqqq", ", such as nn.conv2d or matmul"),
    ],
)
def test_an_op_that_relax_does_not_have_is_refused(op, meant):
    with pytest.raises(ConfigError) as caught:
        scope.check_rules(FusionRules(apart=[["matmul", "nn.*"], ["matmul", op]]))
    assert str(caught.value) == f"fusion.apart.1: {op!r} fits no op of Relax{meant}"
