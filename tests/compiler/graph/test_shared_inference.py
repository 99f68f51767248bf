"""Types of equal calls are inferred once, and are what TVM infers of each of them."""

from collections.abc import Callable
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")
from tvm import relax, tirx  # noqa: E402

from autopipe.compiler.graph.shared_inference import _InferredTypes  # noqa: E402


def tensor(*shape: Any) -> Any:
    return relax.Var("x", relax.TensorType(shape, "float32"))


def resize(size: Any) -> Any:
    return relax.op.image.resize2d(tensor(1, 4, 9, 9), relax.ShapeExpr([size, 27]), layout="NCHW")


CALLS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: relax.op.nn.conv1d(tensor(1, 4, 9), tensor(8, 4, 3), padding=1),
    "conv2d": lambda: relax.op.nn.conv2d(tensor(1, 4, 9, 9), tensor(8, 4, 3, 3), strides=2),
    "float16": lambda: relax.op.nn.conv2d(
        tensor(1, 4, 9, 9), tensor(8, 4, 3, 3), out_dtype="float16"
    ),
    "transposed": lambda: relax.op.nn.conv2d_transpose(tensor(1, 4, 9, 9), tensor(4, 8, 3, 3)),
    "pool": lambda: relax.op.nn.max_pool2d(tensor(1, 4, 9, 9), (2, 2), ceil_mode=True),
    "mean": lambda: relax.op.nn.adaptive_avg_pool2d(tensor(1, 4, 9, 9), (1, 1)),
    "resize": lambda: resize(18),
}


class Counted:
    """What infers the type of an operator, and the calls that it is asked for."""

    def __init__(self, op: Any) -> None:
        self._infer = op.get_attr("FInferType")
        self.calls: list[Any] = []
        self.shared = _InferredTypes(self)

    def __call__(self, call: Any, builder: Any) -> Any:
        self.calls.append(call)
        return self._infer(call, builder)


@pytest.mark.parametrize("make", CALLS.values(), ids=CALLS)
def test_an_equal_call_has_the_type_of_the_first(make: Callable[[], Any]) -> None:
    first, second = make(), make()
    counted, builder = Counted(first.op), relax.BlockBuilder()
    types = [counted.shared.infer_type(call, builder) for call in (first, second)]
    assert len(counted.calls) == 1
    assert types[1].same_as(types[0]), "so that later passes find them equal by address"
    assert types[0].ndim == first.args[0].ty.ndim


def test_calls_that_differ_are_told_apart() -> None:
    counted, builder = Counted(tvm.ir.Op.get("relax.image.resize2d")), relax.BlockBuilder()
    sizes = [int(counted.shared.infer_type(resize(n), builder).shape.values[2]) for n in (18, 20)]
    assert sizes == [18, 20]


def test_dynamic_sizes_are_inferred_each_time() -> None:
    counted, builder = Counted(tvm.ir.Op.get("relax.image.resize2d")), relax.BlockBuilder()
    for _ in range(2):
        size = tirx.Var("n", "int64")
        assert counted.shared.infer_type(resize(size), builder).shape.values[2].same_as(size)
    assert len(counted.calls) == 2


def test_constants_are_not_compared() -> None:
    weight = relax.const([[[1.0]]], "float32")
    counted, builder = Counted(tvm.ir.Op.get("relax.nn.conv1d")), relax.BlockBuilder()
    for _ in range(2):
        counted.shared.infer_type(relax.op.nn.conv1d(tensor(1, 1, 9), weight), builder)
    assert len(counted.calls) == 2
