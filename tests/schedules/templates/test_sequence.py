import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, topi

from autopipe.measure.build import without_weights
from autopipe.measure.check import PlainLoops, checked
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates import sequence
from autopipe.schedules.templates.sequence import SEQUENCE
from tests.schedules.computed import assert_same
from tests.schedules.engines.test_static import PLAIN, conv, planned
from tests.schedules.tasks import CONDITIONS, TARGET
from tests.schedules.tensors import module_of, tensor


def convolutions():
    x, v, w = tensor(1, 3, 10, 12), tensor(8, 3, 3, 3), tensor(8, 8, 3, 3)
    y = topi.nn.relu(topi.nn.conv2d_nchw(x, v, 1, 1, 1))
    return [x, v, w, topi.nn.relu(topi.nn.conv2d_nchw(y, w, 1, 1, 1))], [1, 2]


def attention():
    q, k, v = tensor(2, 16, 8), tensor(2, 16, 8), tensor(2, 16, 8)
    shares = topi.nn.softmax(topi.nn.batch_matmul(q, k))
    return [q, k, v, topi.nn.batch_matmul(shares, v, transpose_b=False)], []


def attention_with_bias():
    """The bias has one axis more, so that the scores are reshaped twice before their softmax."""
    q, k, bias = tensor(2, 16, 8), tensor(2, 16, 8), tensor(1, 2, 16, 16)
    scores = topi.divide(topi.nn.batch_matmul(q, k), 3.0)
    biased = topi.reshape(topi.add(topi.reshape(scores, (1, 2, 16, 16)), bias), (2, 16, 16))
    return [q, k, bias, topi.nn.softmax(biased)], []


def normalized():
    x, scale, w = tensor(6, 32), tensor(32), tensor(32, 24)
    return [x, scale, w, topi.matmul(topi.nn.rms_norm(x, scale, [1]), w)], [1, 2]


def two_results():
    x, v, w = tensor(6, 32), tensor(32, 16), tensor(16, 8)
    y = topi.matmul(x, v)
    return [x, v, w, y, topi.matmul(topi.tanh(y), w)], [1, 2]


def sliced():
    x, w = tensor(6, 32), tensor(32, 12)
    return [x, w, topi.strided_slice(topi.matmul(x, w), [1], [5], [1], [0])], [1]


def centred():
    """What the mean is taken from is read twice: computed anew, it needs no memory."""
    x = tensor(4, 6, 48)
    centre = topi.subtract(x, topi.divide(topi.sum(x, [0, 2], keepdims=True), 192.0))
    spread = topi.sum(topi.multiply(centre, centre), [0, 2], keepdims=True)
    return [x, topi.multiply(centre, spread)], []


def shares_of_channels():
    """The logarithms of the sums are taken once for all channels, as the sums are written."""
    x = tensor(2, 16, 4, 12)
    return [x, topi.nn.log_softmax(x, axis=1)], []


SERVED = {
    "centred": (centred, ["reduction", "reduction", "elementwise"]),
    "convolutions": (convolutions, ["contraction", "contraction"]),
    "attention": (attention, ["contraction", "rows", "contraction"]),
    "attention_with_bias": (attention_with_bias, ["contraction", "rows"]),
    "normalized": (normalized, ["rows", "contraction"]),
    "shares_of_channels": (
        shares_of_channels,
        ["contraction", "contraction", "elementwise"],
    ),
    "sliced": (sliced, ["contraction", "elementwise"]),  # rows by another name
    "two_results": (two_results, ["contraction", "contraction"]),  # the sum ends the first
}


def matched(module):
    found = SEQUENCE.match(make_schedule(module))
    assert found is not None
    return found


def walk(root):
    found: list[tvm.tirx.For] = []
    tvm_ffi.structural_walk(root, (tvm.tirx.For, found.append))
    return found


@pytest.mark.parametrize("case", SERVED)
def test_each_part_is_served_and_the_whole_computes_the_same(case):
    make, names = SERVED[case]
    module = module_of(*make())
    found = matched(module)
    assert [part.template.name for part in found.parts] == names
    made = planned(module)
    assert_same(module, made.module, of_largest=1e-6)
    checked(module, made.module, TARGET)
    again = replay_schedule(module, made.implementation, made.schedule, PLAIN)
    assert tvm_ffi.structural_equal(again, made.module)


@pytest.mark.parametrize("engine", ["static", "default"])
def test_both_convolutions_are_parallel_and_vectorized(engine):
    x, v, w = tensor(1, 8, 56, 56), tensor(16, 8, 3, 3), tensor(16, 16, 3, 3)
    y = topi.nn.relu(topi.nn.conv2d_nchw(x, v, 1, 1, 1))
    module = module_of([x, v, w, topi.nn.relu(topi.nn.conv2d_nchw(y, w, 1, 1, 1))], [1, 2])
    made = choose_fallback([engine], module, PLAIN)
    assert made.engine == engine
    assert made.planned is not None
    spread = [
        loop for loop in walk(made.planned.module["main"].body)
        if loop.kind == tvm.tirx.ForKind.PARALLEL and " * x[" in str(loop)
    ]  # fmt: skip
    assert len(spread) == 2
    for loop in spread:
        assert any(inner.kind == tvm.tirx.ForKind.VECTORIZED for inner in walk(loop.body))


def test_weights_beside_another_name_for_a_buffer_are_packed():
    builder = relax.BlockBuilder()
    kernel = builder.add_func(planned(module_of(*sliced())).module["main"], "sliced")
    kinds = [relax.TensorType(shape, "float32") for shape in ((6, 32), (32, 12), (4, 12))]
    x, w = (relax.Var(name, kind) for name, kind in zip("xw", kinds, strict=False))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit_output(relax.call_tir(kernel, (x, w), kinds[-1]))
        builder.emit_func_output(y)
    split = relax.transform.SplitLayoutRewritePreproc()(builder.get())
    assert len(split.functions_items()) > 2


def test_weights_of_every_part_may_be_packed():
    module = module_of(*two_results())
    kernel = without_weights(planned(module).module)
    shapes = [[int(extent) for extent in p.shape] for p in kernel["main"].params]
    assert shapes[0] == [6, 32]
    assert shapes[1] != [32, 16]


def test_one_reduction_is_for_others_and_so_is_what_no_template_serves():
    assert SEQUENCE.match(make_schedule(module_of(*conv()))) is None
    x = tensor(4, 6, 6)
    sorted_twice = topi.sort(topi.sort(x, 1), 1)
    assert SEQUENCE.match(make_schedule(module_of([x, sorted_twice]))) is None


def test_what_says_nothing_of_itself_is_a_part_of_its_own():
    x = tensor(5, 37)
    module = module_of([x, topi.sum(topi.cumsum(topi.exp(x), 1), axis=1)])
    assert [part.template.name for part in matched(module).parts] == [
        "elementwise", "by_hand", "rows"
    ]  # fmt: skip
    PlainLoops(module, TARGET).check(planned(module).module)


def test_a_part_that_names_a_buffer_anew_keeps_its_loops_together():
    x = tensor(3, 5, 7)
    module = module_of([x, topi.nn.softmax(x, axis=1)])
    PlainLoops(module, TARGET).check(planned(module).module)


def test_there_is_one_setting():
    found = matched(module_of(*attention()))
    [only] = SEQUENCE.settings(found, PLAIN.hardware)
    assert only == SEQUENCE.fill(found, PLAIN.hardware)


SCANNED = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((6, 32), "float32"), v: T.Buffer((32, 16), "float32"),
        w: T.Buffer((16, 8), "float32"), out: T.Buffer((6, 8), "float32"),
    ):
        y = T.sblock_alloc_buffer((6, 16))
        z = T.sblock_alloc_buffer((6, 16))
        for i, j, k in T.grid(6, 16, 32):
            with T.sblock("first"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * v[vk, vj]
        for i, j in T.grid(6, 16):
            with T.sblock("running"):
                vi = T.axis.spatial(6, i)
                vj = T.axis.scan(16, j)
                z[vi, vj] = T.max(z[vi, T.max(vj - 1, 0)], y[vi, vj])
        for i, j, k in T.grid(6, 8, 16):
            with T.sblock("second"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    out[vi, vj] = T.float32(0)
                out[vi, vj] = out[vi, vj] + z[vi, vk] * w[vk, vj]
"""
"""A product, its running maximum along rows, and a product of that."""


def test_a_block_that_nothing_serves_leaves_the_templates_of_the_others():
    found = matched(tvm.script.from_source(SCANNED))
    names = [part.template.name if part.template else None for part in found.parts]
    assert names == ["contraction", None, "contraction"]
    assert SEQUENCE.fill(found, CONDITIONS.hardware).parts[1].template == sequence.AS_IT_IS


def test_numbers_take_the_place_of_tensors_that_hold_one_only():
    x, at = tensor(16, 64), te.placeholder((16,), "int64")
    ones = topi.full((64,), "float32", 1.0)
    taken = te.compute((16,), lambda i: x[i, at[i]] * ones[at[i]])
    k, j = te.reduce_axis((0, 16)), te.reduce_axis((0, 16))
    total = te.compute((), lambda: te.sum(taken[k], axis=k))
    weight = te.compute((), lambda: te.sum(ones[at[j]], axis=j))
    module = module_of([x, at, te.compute((), lambda: total[()] / weight[()])])
    assert "T_full" not in planned(module).module.script()
    assert_same(module, planned(module).module, inputs=[_looked_up])


def _looked_up(module):
    random = np.random.default_rng(0)
    values, places = random.random((16, 64), "float32"), random.integers(0, 64, 16)
    return [tvm.runtime.tensor(one) for one in (values, places, np.zeros((), "float32"))]
