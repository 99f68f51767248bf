"""Which functions a library takes, and that the call computes what the loops did."""

import json
from dataclasses import replace

import pytest
import tvm
import tvm_ffi
from tvm import te

from autopipe import libraries
from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.compiler.library import linking
from autopipe.errors import StageError
from autopipe.libraries.cublas import CUBLAS
from autopipe.libraries.library import Packed, Pattern
from autopipe.libraries.openblas import OPENBLAS
from autopipe.measure.check import checked
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import static
from autopipe.schedules.implementations.dispatch import can_take_op, list_available
from autopipe.schedules.implementations.implementation import (
    DIRECT,
    build_implementations,
    list_allowed_names,
)
from autopipe.schedules.implementations.library import LibraryCall
from autopipe.schedules.replay import replay_schedule
from autopipe.tasks.op_info import Op, OpInfo, Parameter
from autopipe.tasks.tensor import Tensor
from tests.schedules.products import dense, pointwise, product, task_of, transposed
from tests.schedules.tasks import CONDITIONS, TARGET
from tests.support.table import each_row

CALL = LibraryCall(OPENBLAS, 2)
ANY = LibraryCall(OPENBLAS._replace(least=1), 2)

PRODUCTS = {
    "even": (product, (128, 128), (128, 128)),
    "odd": (product, (131, 67), (67, 259)),
    "a row": (product, (1, 1024), (1024, 1100)),
    "a column": (product, (1100, 1024), (1024, 1)),
    "vector": (product, (1024,), (1024, 1100)),
    "one term": (product, (300, 1), (1, 200)),
    "epilogue": (dense, (90, 160), (160, 110), (110,), (90, 110)),
    "of a sequence": (dense, (1, 90, 160), (160, 110), (110,), (1, 90, 110)),
    "batch": (product, (6, 65, 33), (6, 33, 70)),
    "heads": (product, (1, 4, 70, 32), (1, 4, 32, 70)),
    "one weight": (product, (3, 5, 40, 32), (32, 50)),
    "one data": (product, (40, 32), (3, 32, 50)),
    "pixels": (pointwise, (2, 9, 7, 64), (1, 1, 64, 48), (48,)),
}  # fmt: skip


def planned(module, call=ANY):
    made = call.rewrite(module)
    assert made is not None
    plan = static.plan_implementation(call.NAME, made, CONDITIONS)
    assert plan is not None
    return plan


@each_row("case", PRODUCTS)
def test_the_call_computes_what_the_loops_do(case):
    _, module = task_of(*PRODUCTS[case])
    plan = planned(module)
    assert "scipy_cblas_sgemm" in plan.module.script()
    checked(module, plan.module, TARGET)


@pytest.mark.parametrize("cores", [1, 3, 16])
def test_every_part_is_computed_on_any_number_of_threads(cores):
    _, module = task_of(product, (131, 67), (67, 259))
    checked(module, planned(module, replace(ANY, cores=cores)).module, TARGET)


def test_transposed_operands_are_read_in_place():
    left, right = (te.placeholder(shape, name="x") for shape in ((67, 131), (259, 67)))
    function = te.create_prim_func([left, right, transposed(left, right)])
    plain = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    out = Tensor(shape=(131, 259), dtype="float32")
    arguments = (Parameter(parameter=0), Parameter(parameter=1))
    op = Op(name="matmul", arguments=arguments, outputs=(out,))
    plan = planned(module := annotate_workload(plain, OpInfo(kind="opaque", ops=(op,))))
    assert '"scipy_cblas_sgemm", 101, 112, 112' in plan.module.script()
    checked(module, plan.module, TARGET)


@pytest.mark.parametrize("wrong", ["112, 111", "111, 112"])
def test_the_check_would_see_a_wrong_transpose(wrong):
    _, module = task_of(product, (128, 128), (128, 128))
    text = planned(module).module.script().replace("111, 111", wrong)
    with pytest.raises(StageError, match="off by"):
        checked(module, tvm.script.from_source(text), TARGET)


def test_what_follows_is_one_loop_in_parallel():
    _, module = task_of(dense, (128, 256), (256, 256), (256,), (128, 256))
    script = planned(module).module.script()
    assert script.count("T.parallel") == 2
    assert script.count("T.vectorized") == 1


@pytest.mark.parametrize(
    ("case", "taken"),
    [
        ((product, (128, 128), (128, 128)), True),
        ((product, (64, 64), (64, 64)), False),
        ((pointwise, (1, 32, 32, 64), (1, 1, 64, 64), (64,)), True),
        ((pointwise, (1, 32, 32, 64), (3, 3, 64, 64), (64,)), False),
    ],
    ids=["product", "small", "pixels", "3x3"],
)
def test_what_is_taken_is_large_and_a_product(case, taken):
    _, module = task_of(*case)
    names = list(build_implementations(module, CONDITIONS))
    assert names == [
        DIRECT, *(["openblas"] if taken else []),
        *(name for name in names if name.startswith("winograd")),
    ]  # fmt: skip


@pytest.mark.parametrize("attributes", [{"strides": 2}, {"padding": 1}, {"dilation": 2}])
def test_attributes_decide(attributes):
    task, _ = task_of(
        lambda emit, *tensors: pointwise(emit, *tensors, **attributes),
        (1, 32, 32, 64), (1, 1, 64, 64), (64,),
    )  # fmt: skip
    assert can_take_op(OPENBLAS, task.info, task.inputs) is (attributes == {"dilation": 2})


def test_the_element_type_decides():
    task, module = task_of(product, (128, 128), (128, 128), dtype="float64")
    assert not can_take_op(OPENBLAS, task.info, task.inputs)
    takes_double = OPENBLAS._replace(takes=(Pattern("matmul", dtypes=("float64",)),))
    assert can_take_op(takes_double, task.info, task.inputs)
    assert CALL.rewrite(module) is None


def test_two_products_in_one_function_are_left_alone():
    task, _ = task_of(product, (128, 128), (128, 128))
    (op,) = task.info.ops
    assert can_take_op(OPENBLAS, task.info, task.inputs)
    assert not can_take_op(OPENBLAS, OpInfo(kind="opaque", ops=(op, op)), task.inputs)
    part = op.model_copy(update={"whole": False})
    assert not can_take_op(OPENBLAS, OpInfo(kind="opaque", ops=(part,)), task.inputs)


def test_a_function_that_says_nothing_of_its_ops_is_left_alone():
    task, module = task_of(product, (128, 128), (128, 128))
    bare = tvm.IRModule({"main": module["main"].without_attr("op_info")})
    assert CALL.rewrite(bare) is None
    assert CALL.rewrite(annotate_workload(bare, task.info)) is not None


def test_without_measuring_generated_code_is_taken():
    _, module = task_of(product, (128, 128), (128, 128))
    assert [plan.implementation for plan in static.list_plans(module, CONDITIONS)] == [
        DIRECT, "openblas"
    ]  # fmt: skip


def test_a_library_is_for_machines_of_its_kind():
    assert "openblas" in list_allowed_names(CONDITIONS)
    arm = {"kind": "llvm", "mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu", "num_cores": 2}
    elsewhere = Conditions.of(arm, fast_algorithms=True)
    assert list(list_available(elsewhere)) == []


def test_a_record_of_another_version_is_a_miss():
    _, module = task_of(product, (128, 128), (128, 128))
    document = json.loads(planned(module).schedule)
    assert document["knobs"]["library"] == f"openblas {OPENBLAS.version()}"
    replay_schedule(module, "openblas", json.dumps(document), CONDITIONS)
    document["knobs"]["library"] = "openblas 0.1"
    with pytest.raises(StageError, match="has no setting"):
        replay_schedule(module, "openblas", json.dumps(document), CONDITIONS)


def test_code_for_another_version_is_not_run():
    _, module = task_of(product, (128, 128), (128, 128))
    function = planned(module).module["main"].with_attr(linking.ATTRIBUTE, "openblas 0.1")
    with pytest.raises(StageError, match=r"scheduled for openblas 0.1, installed is openblas"):
        linking.load_libraries(tvm.IRModule({"main": function}))


def test_the_wheel_of_tvm_has_no_cublas():
    assert isinstance(CUBLAS.interface, Packed)
    assert tvm.get_global_func(CUBLAS.interface.function, allow_missing=True) is None
    assert CUBLAS.device == "cuda"


def test_a_library_that_the_runtime_wraps_is_called_with_tensors(monkeypatch):
    """The protocol of cuBLAS, with a function of the same signature in its place."""
    heard = []

    def matmul(left, right, out, first, second):
        a, b = left.numpy(), right.numpy()
        total = (a.T if first else a) @ (b.T if second else b)
        heard.append((a.shape, b.shape, bool(first), bool(second)))
        out.copyfrom(total)

    tvm_ffi.register_global_func("tests.matmul", matmul, override=True)
    library = CUBLAS._replace(interface=Packed("tests.matmul"), least=1)
    monkeypatch.setattr(libraries, "LIBRARIES", (library,))
    _, module = task_of(dense, (1, 90, 160), (160, 110), (110,), (1, 90, 110))
    made = LibraryCall(library, 2).rewrite(module)
    assert made is not None
    script = made.script()
    assert '"tests.matmul"' in script
    plan = static.plan_implementation("cublas", made, CONDITIONS)
    assert plan is not None
    checked(module, plan.module, TARGET)
    assert linking.list_linker_options(linking.find_libraries(plan.module)) == []
    assert set(heard) == {((90, 160), (160, 110), False, False)}
    _, batch = task_of(*PRODUCTS["batch"])
    assert LibraryCall(library, 2).rewrite(batch) is None


def contraction(left, right, index):
    """Return the function that sums products over two axes, called a product of matrices."""
    a, b = (te.placeholder(shape, name="x") for shape in (left, right))
    i, j = (te.reduce_axis((0, extent), name="k") for extent in left[1:])
    out = te.compute(
        (left[0], right[-1]), lambda m, n: te.sum(a[m, i, j] * index(b, i, j, n), [i, j])
    )
    function = te.create_prim_func([a, b, out]).with_attr("global_symbol", "main")
    tensor = Tensor(shape=(left[0], right[-1]), dtype="float32")
    arguments = (Parameter(parameter=0), Parameter(parameter=1))
    op = Op(name="matmul", arguments=arguments, outputs=(tensor,))
    return annotate_workload(tvm.IRModule({"main": function}), OpInfo(kind="opaque", ops=(op,)))


def test_sums_over_two_axes_are_one_where_both_operands_have_them_in_a_row():
    module = contraction((40, 8, 16), (8, 16, 50), lambda b, i, j, n: b[i, j, n])
    checked(module, planned(module).module, TARGET)
    crossed = contraction((40, 8, 16), (16, 8, 50), lambda b, i, j, n: b[j, i, n])
    assert ANY.rewrite(crossed) is None


def test_operands_of_different_types_are_left_alone():
    task, _ = task_of(product, (128, 128), (128, 128))
    (op,) = task.info.ops
    either = OPENBLAS._replace(takes=(Pattern("matmul", dtypes=("float32", "float16")),))
    half = Tensor(shape=(128, 128), dtype="float16")
    mixed = op.model_copy(update={"outputs": (half,)})
    assert can_take_op(either, OpInfo(kind="opaque", ops=(op,)), task.inputs)
    assert not can_take_op(either, OpInfo(kind="opaque", ops=(mixed,)), task.inputs)
