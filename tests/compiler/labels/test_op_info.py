import json
import sys
import warnings
from collections import Counter

import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.labels.op_info import read_op_info
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.tasks import extract_tasks
from autopipe.errors import ModelError
from autopipe.tasks.op_info import Literal, Parameter
from autopipe.tasks.tensor import Tensor
from tests.compiler import graphs
from tests.compiler.proof import COMPARED, SAME, prove
from tests.compiler.random_graphs import graphs as random_graphs

LAYOUTS: tuple[dict[str, list[str]], ...] = (
    {},
    {"conv1d": ["NWC", "WIO"], "conv2d": ["NHWC", "HWIO"], "conv3d": ["NDHWC", "DHWIO"]},
    {"conv1d": ["NWC", "OWI"], "conv2d": ["NHWC", "OHWI"]},
    {"conv2d": ["HWNC", "HWIO"]},
)


def told(counts):
    """Print what was looked at, for those who ask with `-s`."""
    sys.stdout.write(json.dumps(counts, indent=1, sort_keys=True) + "\n")


def lowered(module, layout, inputs=1):
    optimized = lowering.optimize(module, inputs, layout, graphs.TARGET, lambda _: None)
    return lowering.lower(optimized.module, graphs.TARGET)


def prove_random_graphs(count):
    """Prove what that many graphs are lowered to; return what was looked at."""
    total: Counter[str] = Counter()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(random_graphs(), st.sampled_from(LAYOUTS))
    def proved(module, layout):
        total.update(prove(lowered(module, layout)), graphs=1)

    proved()
    return total


def test_random_graphs_are_described_as_their_loops_are():
    counts = prove_random_graphs(40)
    assert counts[SAME] > 0.9 * counts["tasks"]
    assert counts[SAME] + counts[COMPARED] == counts["tasks"]


@pytest.mark.slow
def test_many_random_graphs_are_described_as_their_loops_are():
    counts = prove_random_graphs(1500)
    told(counts)
    assert counts[SAME] + counts[COMPARED] == counts["tasks"]
    assert len([name for name in counts if name.startswith("op ")]) > 50


BRANCHES = """
@I.ir_module
class Branches:
    @R.function
    def main(
        yes: R.Tensor((), "bool"), x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 4), "float32")
    ) -> R.Tensor((3, 4), "float32"):
        y = R.exp(x)
        if yes:
            a = R.nn.relu(R.matmul(y, w))
            chosen = a
        else:
            b = R.nn.softmax(y, axis=0)
            chosen = b
        z = R.add(chosen, y)
        return z
"""


SYMBOLIC = """
@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.reshape(a, (n * 4,))
            c = R.full((n, 2), R.const(1.0))
            R.output(b, c)
        return b, c
"""


OWN = """
@I.ir_module
class Own:
    @T.prim_func(private=True, s_tir=True)
    def twice(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("twice"):
                j = T.axis.spatial(T.int64(4), i)
                y[j] = x[j] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Own
        with R.dataflow():
            y = R.call_tir(cls.twice, (x,), R.Tensor((4,), "float32"))
            z = R.exp(y)
            R.output(z)
        return z
"""


def test_functions_called_in_branches_are_described():
    counts = prove(lowered(tvm.script.from_source(BRANCHES), {}, 2))
    assert counts[SAME] == counts["tasks"] == 5
    assert counts["op nn.softmax"] == 1


def test_functions_of_symbolic_shapes_are_described():
    module = lowered(tvm.script.from_source(SYMBOLIC), {})
    counts = prove(module)
    assert counts["op matmul"] == counts["op reshape"] == counts["op full"] == 1
    assert counts[SAME] == 0
    shape = Literal(value=["n * T.int64(4)"])
    infos = [read_op_info(function) for _, function in list_prim_funcs(module)]
    (reshape,) = (op for info in infos for op in info.ops if op.name == "reshape")
    assert reshape.arguments == (Parameter(parameter=0), shape)
    assert reshape.outputs == (Tensor(shape=(-1,), dtype="float32"),)


def test_code_of_the_model_itself_is_called_by_its_name():
    module = lowered(tvm.script.from_source(OWN), {})
    counts = prove(module)
    assert counts["op call_tir"] == counts["op exp"] == 1
    (info,) = (read_op_info(function) for _, function in list_prim_funcs(module))
    assert info.ops[0].attributes == {"function": "twice"}


def test_an_op_that_became_several_functions_is_a_part_in_each():
    x = relax.Var("x", relax.TensorType((1, 4, 4), "float32"))
    y = relax.Var("y", relax.TensorType((1, 2, 4), "float32"))
    limits = [relax.const(n, d) for n, d in ((2, "int64"), (0.5, "float32"), (0.1, "float32"))]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            found = builder.emit(relax.op.vision.all_class_non_max_suppression(x, y, *limits))
            out = builder.emit_output(relax.TupleGetItem(found, 0))
        builder.emit_func_output(out)
    module = lowered(builder.get(), {}, 2)
    ops = [op for _, f in list_prim_funcs(module) for op in read_op_info(f).ops]
    parts = [op for op in ops if op.name == "vision.all_class_non_max_suppression"]
    assert len(parts) > 1
    assert not any(op.whole for op in parts)
    assert all(isinstance(argument, Parameter) for op in parts for argument in op.arguments)


def test_attention_is_the_same_workload_however_often_it_is_lowered():
    def attention():
        q = relax.Var("q", relax.TensorType((1, 4, 2, 8), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [q]):
            with builder.dataflow():
                out = builder.emit_output(relax.op.nn.attention(q, q, q))
            builder.emit_func_output(out)
        (task,), _ = extract_tasks(lowered(builder.get(), {}))
        return task.workload

    assert attention() == attention()


def onnx_cases():
    """The models of ONNX's own tests of its operators, by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda case: case.name)


def prove_onnx(cases, folder):
    """Prove what those of the models that can be imported and lowered become."""
    total: Counter[str] = Counter()
    for number, case in enumerate(cases):
        path = folder / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        try:
            imported = load_model(path, {}, None, None)
            module = lowered(imported.module, LAYOUTS[number % 2], len(imported.inputs))
        except ModelError:
            continue  # says what there is no converter or no compute for
        except RuntimeError:
            assert case.name.startswith(TVM_FAILS)
            continue
        total.update(prove(module), models=1)
    return total


TVM_FAILS = ("test_pow_types_int", "test_rms_normalization")
"""What TVM raises for while it legalizes: powers of integers, norms over all axes."""


def agree(counts):
    """Tell whether each task was made again, or is one that can not be."""
    reasons = [name for name in counts if name.startswith("not rebuilt")]
    known = ("TIR that came with the model", "a part of vision.all_class_non_max_suppression only")
    assert all(name.endswith(known) for name in reasons)
    assert counts[SAME] + sum(counts[name] for name in reasons) == counts["tasks"]


@pytest.mark.slow
def test_models_of_single_operators_are_described_as_their_loops_are(tmp_path):
    counts = prove_onnx(onnx_cases(), tmp_path)
    told(counts)
    agree(counts)
    assert counts["models"] > 700
