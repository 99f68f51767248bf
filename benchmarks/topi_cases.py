"""Computes of `tvm.topi` that no Relax operator is lowered to, or is at other shapes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tvm import te, topi

# ruff: noqa: ANN401  TVM has no types


def _tensor(*shape: int, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name="x")


def _called(call: Callable[..., Any], *operands: tuple[int, ...], **options: Any) -> Any:
    def made() -> list[Any]:
        given = [_tensor(*shape) for shape in operands]
        found = call(*given, **options)
        return [*given, *(found if isinstance(found, list | tuple) else [found])]

    return made


def _of(call: Callable[..., Any], *shapes: Any, **options: Any) -> Mapping[str, Any]:
    """Return a compute at several shapes; a shape is one of a tensor, or one of each operand."""
    cases = {}
    for shape in shapes:
        operands = (shape,) if isinstance(shape[0], int) else shape
        label = " ".join("x".join(map(str, one)) for one in operands)
        cases[label] = _called(call, *operands, **options)
    return cases


def _all(shape: tuple[int, ...]) -> list[Any]:
    given = _tensor(*shape, dtype="bool")
    return [given, topi.all(given, axis=1)]


_IMAGES: Final = ((1, 64, 56, 56), (4, 32, 28, 28), (1, 3, 225, 225))
_ROWS: Final = ((128, 513), (512, 300), (8, 5000))

TOPI: Final[Mapping[str, Mapping[str, Callable[[], list[Any]]]]] = {
    "sum axis 0": _of(topi.sum, *_ROWS, axis=0),
    "sum": _of(topi.sum, *_ROWS),
    "max axis 0": _of(topi.max, *_ROWS, axis=0),
    "min": _of(topi.min, *_ROWS),
    "prod axis 1": _of(topi.prod, *_ROWS, axis=1),
    "argmax": _of(topi.argmax, *_ROWS, axis=1),
    "argmin axis 0": _of(topi.argmin, *_ROWS, axis=0),
    "all": {
        "x".join(map(str, shape)): partial(_all, shape) for shape in _ROWS
    },
    "matmul": _of(
        topi.matmul, ((128, 256), (256, 512)), ((37, 100), (100, 61)), ((1, 512), (512, 512))
    ),
    "nn.dense": _of(
        topi.nn.dense, ((16, 256), (120, 256)), ((1, 1000), (512, 1000)), ((64, 84), (10, 84))
    ),
    "nn.batch_matmul": _of(
        topi.nn.batch_matmul, ((8, 64, 32), (8, 64, 32)), ((2, 100, 37), (2, 19, 37))
    ),
    "nn.conv2d_nchw": _of(
        topi.nn.conv2d_nchw, ((1, 32, 28, 28), (32, 32, 3, 3)), ((4, 3, 32, 32), (8, 3, 5, 5)),
        stride=1, padding=1, dilation=1,
    ),
    "nn.conv2d_nhwc": _of(
        topi.nn.conv2d_nhwc, ((1, 28, 28, 32), (3, 3, 32, 32)), ((4, 32, 32, 3), (5, 5, 3, 8)),
        stride=1, padding=1, dilation=1,
    ),
    "nn.depthwise_conv2d_nchw": _of(
        topi.nn.depthwise_conv2d_nchw, ((1, 32, 56, 56), (32, 1, 3, 3)),
        ((1, 8, 29, 29), (8, 2, 3, 3)), stride=1, padding=1, dilation=1,
    ),
    "nn.conv2d_transpose_nchw": _of(
        topi.nn.conv2d_transpose_nchw, ((1, 16, 14, 14), (16, 32, 4, 4)),
        strides=(2, 2), padding=(1, 1), out_dtype="float32", output_padding=(0, 0),
    ),
    "nn.max_pool2d": _of(
        topi.nn.pool2d, *_IMAGES, kernel=(2, 2), stride=(2, 2), dilation=(1, 1),
        padding=(0, 0, 0, 0), pool_type="max",
    ),
    "nn.avg_pool2d": _of(
        topi.nn.pool2d, *_IMAGES, kernel=(3, 3), stride=(1, 1), dilation=(1, 1),
        padding=(1, 1, 1, 1), pool_type="avg",
    ),
    "nn.global_pool": _of(topi.nn.global_pool, *_IMAGES, pool_type="avg"),
    "nn.softmax": _of(topi.nn.softmax, *_ROWS),
    "nn.lrn": _of(topi.nn.lrn, *_IMAGES, size=5),
    "nn.dilate": _of(topi.nn.dilate, *_IMAGES, strides=(1, 1, 2, 2)),
    "nn.space_to_depth": _of(topi.nn.space_to_depth, (1, 64, 56, 56), block_size=2),
    "nn.depth_to_space": _of(topi.nn.depth_to_space, (1, 64, 28, 28), block_size=2),
    "cumsum": _of(topi.cumsum, *_ROWS, axis=1),
    "transpose": _of(topi.transpose, *_ROWS),
    "flip": _of(topi.flip, *_ROWS, axis=1),
}  # fmt: skip
"""Each by its name, and then by its shapes, as a function that returns TE tensors."""
