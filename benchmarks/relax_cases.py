"""Relax operators with a legalization, three shapes each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

# ruff: noqa: ANN401  TVM has no types

IMAGES: Final = ((1, 64, 56, 56), (4, 32, 28, 28), (1, 3, 224, 224))
ROWS: Final = ((128, 513), (1, 1000), (64, 12, 128))
MATRICES: Final = ((128, 512), (37, 100), (16, 1024))

Operands = Sequence[tuple[tuple[int, ...], str]]
"""The shape and dtype of each operand."""


@dataclass(frozen=True, slots=True)
class RelaxOperator:
    """How an operator is called: one list of operands a shape."""

    name: str
    operands: Sequence[Operands]
    call: Callable[..., Any]


_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf",
    "exp", "floor", "isfinite", "isinf", "isnan", "log", "negative", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "nn.gelu",
    "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.selu", "nn.silu", "nn.softplus",
)  # fmt: skip
_BINARY = (
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mod", "floor_mod",
    "floor_divide", "atan2", "log_add_exp", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal",
)  # fmt: skip
_INTEGER = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_REDUCING = ("sum", "prod", "min", "max", "mean", "std", "variance")


def _f(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "float32"


def _i(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "int32"


def _l(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "int64"


def _b(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "bool"


def _op(name: str) -> Callable[..., Any]:
    from tvm import relax

    found: Any = relax.op
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _each(name: str, *operands: Operands, **options: Any) -> RelaxOperator:
    """Return an operator that takes its operands one by one, then options."""
    return RelaxOperator(name, operands, lambda *given: _op(name)(*given, **options))


def _elementwise() -> Iterator[RelaxOperator]:
    mixed = (_f(128, 513), _f(1, 64, 56, 56), _f(1000))
    for name in _UNARY:
        yield _each(name, *((one,) for one in mixed))
    for name in _BINARY:
        yield _each(
            name,
            (_f(128, 513), _f(128, 513)),
            (_f(1, 64, 56, 56), _f(64, 1, 1)),
            (_f(64, 1000), _f(1000)),
        )
    for name in _INTEGER:
        yield _each(
            name, (_i(128, 513), _i(128, 513)), (_i(64, 56, 56), _i(64, 1, 1)), (_i(1000), _i(1000))
        )
    for name in _LOGICAL:
        yield _each(
            name, (_b(128, 513), _b(128, 513)), (_b(64, 56, 56), _b(64, 1, 1)), (_b(1000), _b(1000))
        )
    yield _each("logical_not", *((_b(*shape),) for shape in MATRICES))
    yield _each("bitwise_not", *((_i(*shape),) for shape in MATRICES))
    yield _each("clip", *((one,) for one in mixed), min=0.0, max=6.0)
    yield _each("astype", *((one,) for one in mixed), dtype="int32")
    yield _each(
        "where", *((_b(*shape), _f(*shape), _f(*shape)) for shape in (*MATRICES[:2], (64, 56, 56)))
    )
    yield _each("nn.prelu", *((_f(*shape), _f(shape[1])) for shape in IMAGES))
    yield _each("quantize", *((_f(*shape), _f(), ((), "int8")) for shape in MATRICES))
    yield _each("dequantize", *(((shape, "int8"), _f(), ((), "int8")) for shape in MATRICES))
    yield _each("outer", (_f(512), _f(512)), (_f(100), _f(37)), (_f(2048), _f(64)))


def _reductions() -> Iterator[RelaxOperator]:
    for name in _REDUCING:
        call = _op(name)
        yield RelaxOperator(name, ((_f(128, 513),),), lambda x, call=call: call(x, axis=-1))
        yield RelaxOperator(name, ((_f(512, 300),),), lambda x, call=call: call(x, axis=0))
        yield RelaxOperator(
            name, ((_f(4, 64, 28, 28),),), lambda x, call=call: call(x, axis=[2, 3])
        )
    for name in ("argmax", "argmin"):
        call = _op(name)
        yield RelaxOperator(
            name, ((_f(128, 513),), (_f(64, 1000),)), lambda x, call=call: call(x, axis=-1)
        )
        yield RelaxOperator(name, ((_f(512, 300),),), lambda x, call=call: call(x, axis=0))
    for name in ("cumsum", "cumprod"):
        call = _op(name)
        yield RelaxOperator(
            name, ((_f(128, 513),), (_f(1, 4096),)), lambda x, call=call: call(x, axis=-1)
        )
        yield RelaxOperator(name, ((_f(512, 300),),), lambda x, call=call: call(x, axis=0))
    for name in ("nn.softmax", "nn.log_softmax"):
        call = _op(name)
        yield RelaxOperator(
            name, ((_f(128, 513),), (_f(8, 12, 128, 128),)), lambda x, call=call: call(x, axis=-1)
        )
        yield RelaxOperator(name, ((_f(4, 64, 28, 28),),), lambda x, call=call: call(x, axis=1))
    yield _each(
        "collapse_sum_like",
        (_f(128, 513), _f(513)),
        (_f(4, 64, 28, 28), _f(64, 1, 1)),
        (_f(64, 100), _f(64, 1)),
    )
    yield RelaxOperator(
        "collapse_sum_to",
        ((_f(128, 513),), (_f(37, 513),), (_f(2, 513),)),
        lambda x: _op("collapse_sum_to")(x, (1, 513)),
    )


def _normalizations() -> Iterator[RelaxOperator]:
    for name in ("nn.layer_norm", "nn.rms_norm"):
        parts = 2 if name == "nn.layer_norm" else 1
        yield _each(
            name,
            *(
                (_f(*shape), *[_f(shape[-1])] * parts)
                for shape in ((128, 768), (16, 1024), (37, 100))
            ),
            axes=[-1],
        )
    images = ((4, 64, 28, 28), (1, 32, 56, 56), (8, 16, 7, 7))
    yield _each("nn.batch_norm", *((_f(*shape), *[_f(shape[1])] * 4) for shape in images), axis=1)
    yield _each(
        "nn.instance_norm",
        *((_f(*shape), *[_f(shape[1])] * 2) for shape in images),
        channel_axis=1,
        axes=[2, 3],
    )
    yield _each(
        "nn.group_norm",
        *((_f(*shape), *[_f(shape[1])] * 2) for shape in images),
        num_groups=8,
        channel_axis=1,
        axes=[2, 3],
    )
    yield _each("nn.cross_entropy_with_logits", *((_f(*shape), _f(*shape)) for shape in MATRICES))
    yield _each("nn.nll_loss", *((_f(*shape), _l(shape[0])) for shape in MATRICES))


def _products() -> Iterator[RelaxOperator]:
    yield _each(
        "matmul",
        (_f(128, 768), _f(768, 768)),
        (_f(12, 128, 64), _f(12, 64, 128)),
        (_f(1, 512), _f(512, 1000)),
    )
    for text, operands in (
        ("ij,jk->ik", (_f(100, 200), _f(200, 300))),
        ("bij,bkj->bik", (_f(8, 64, 64), _f(8, 32, 64))),
        ("ij,ij->i", (_f(128, 513), _f(128, 513))),
    ):
        yield RelaxOperator(
            "einsum", (operands,), lambda *given, text=text: _op("einsum")(given, text)
        )
    yield _each(
        "nn.attention",
        *((_f(*shape),) * 3 for shape in ((1, 128, 8, 64), (2, 64, 4, 32), (1, 37, 2, 16))),
    )
    windows = {
        "nn.conv1d": (
            (_f(1, 64, 128), _f(64, 64, 3)),
            (_f(4, 16, 100), _f(32, 16, 5)),
            (_f(1, 1, 1024), _f(8, 1, 16)),
        ),
        "nn.conv2d": (
            (_f(1, 64, 56, 56), _f(64, 64, 3, 3)),
            (_f(4, 32, 28, 28), _f(64, 32, 1, 1)),
            (_f(1, 3, 64, 64), _f(16, 3, 7, 7)),
        ),
        "nn.conv3d": (
            (_f(1, 16, 8, 28, 28), _f(16, 16, 3, 3, 3)),
            (_f(1, 3, 16, 32, 32), _f(8, 3, 3, 3, 3)),
            (_f(2, 8, 4, 14, 14), _f(16, 8, 1, 1, 1)),
        ),
        "nn.conv1d_transpose": (
            (_f(1, 64, 128), _f(64, 32, 4)),
            (_f(4, 16, 100), _f(16, 16, 3)),
            (_f(1, 8, 512), _f(8, 1, 16)),
        ),
        "nn.conv2d_transpose": (
            (_f(1, 64, 28, 28), _f(64, 32, 2, 2)),
            (_f(1, 16, 32, 32), _f(16, 16, 3, 3)),
            (_f(2, 32, 7, 7), _f(32, 8, 4, 4)),
        ),
        "nn.conv3d_transpose": (
            (_f(1, 8, 4, 14, 14), _f(8, 8, 2, 2, 2)),
            (_f(1, 4, 8, 16, 16), _f(4, 4, 3, 3, 3)),
            (_f(1, 16, 4, 7, 7), _f(16, 8, 2, 2, 2)),
        ),
    }
    for name, shapes in windows.items():
        strides = 2 if "transpose" in name else 1
        yield _each(name, *shapes, strides=strides)
    yield _each("nn.conv2d", (_f(1, 96, 56, 56), _f(96, 1, 3, 3)), groups=96, padding=1)
    volumes = ((1, 16, 8, 28, 28), (2, 8, 4, 14, 14), (1, 3, 16, 32, 32))
    lines = ((1, 64, 512), (4, 16, 100), (1, 1, 4096))
    for kind in ("max", "avg"):
        yield _each(
            f"nn.{kind}_pool1d", *((_f(*shape),) for shape in lines), pool_size=3, strides=2
        )
        yield _each(
            f"nn.{kind}_pool2d",
            *((_f(*shape),) for shape in IMAGES),
            pool_size=(3, 3),
            strides=(2, 2),
        )
        yield _each(
            f"nn.{kind}_pool3d",
            *((_f(*shape),) for shape in volumes),
            pool_size=(2, 2, 2),
            strides=(2, 2, 2),
        )
    yield _each("nn.adaptive_avg_pool1d", *((_f(*shape),) for shape in lines), output_size=(7,))
    yield _each("nn.adaptive_avg_pool2d", *((_f(*shape),) for shape in IMAGES), output_size=(6, 6))
    yield _each(
        "nn.adaptive_avg_pool3d", *((_f(*shape),) for shape in volumes), output_size=(3, 5, 5)
    )


def _moves() -> Iterator[RelaxOperator]:
    yield RelaxOperator(
        "permute_dims",
        ((_f(1, 64, 56, 56),), (_f(8, 12, 128, 64),), (_f(4, 3, 100, 37),)),
        lambda x: _op("permute_dims")(x, [0, 2, 3, 1]),
    )
    yield RelaxOperator(
        "layout_transform",
        ((_f(1, 64, 56, 56),), (_f(2, 32, 28, 28),), (_f(1, 16, 7, 7),)),
        lambda x: _op("layout_transform")(x, lambda n, c, h, w: (n, c // 16, h, w, c % 16)),
    )
    yield RelaxOperator(
        "concat",
        tuple(((_f(*shape), _f(*shape))) for shape in (*ROWS,)),
        lambda *x: _op("concat")(x, axis=-1),
    )
    yield RelaxOperator(
        "stack",
        tuple(((_f(*shape), _f(*shape))) for shape in (*ROWS,)),
        lambda *x: _op("stack")(x, axis=1),
    )
    yield RelaxOperator(
        "meshgrid",
        ((_f(100), _f(200)), (_f(512), _f(512)), (_f(37), _f(5))),
        lambda *x: _op("meshgrid")(x),
    )
    yield RelaxOperator(
        "split",
        tuple((_f(*shape),) for shape in ((128, 512), (64, 12, 128), (2, 100))),
        lambda x: _op("split")(x, 2, axis=-1),
    )
    for name, options in (
        ("repeat", {"repeats": 3, "axis": 1}),
        ("tile", {"repeats": (2, 2)}),
        ("flip", {"axis": 0}),
        ("tril", {}),
        ("triu", {}),
        ("expand_dims", {"axis": 1}),
        ("flatten", {}),
    ):
        yield _each(name, *((_f(*shape),) for shape in MATRICES), **options)
    yield RelaxOperator(
        "squeeze",
        tuple((_f(1, *shape),) for shape in MATRICES),
        lambda x: _op("squeeze")(x, [0]),
    )
    yield RelaxOperator(
        "reshape",
        tuple((_f(*shape),) for shape in MATRICES),
        lambda x: _op("reshape")(x, (-1,)),
    )
    yield RelaxOperator(
        "broadcast_to",
        ((_f(512),), (_f(1, 512),), (_f(64, 1, 512),)),
        lambda x: _op("broadcast_to")(x, (64, 100, 512)),
    )
    yield RelaxOperator(
        "strided_slice",
        tuple((_f(*shape),) for shape in MATRICES),
        lambda x: _op("strided_slice")(x, [0, 1], [2, 5], [30, 90], [1, 2]),
    )
    yield RelaxOperator(
        "nn.pad",
        tuple((_f(*shape),) for shape in MATRICES),
        lambda x: _op("nn.pad")(x, (1, 2, 3, 4)),
    )
    yield RelaxOperator(
        "nn.batch_flatten",
        tuple((_f(*shape),) for shape in IMAGES),
        _op("nn.batch_flatten"),
    )
    yield _each(
        "take", (_f(30000, 128), _l(64)), (_f(100, 37), _l(1000)), (_f(512, 512), _l(8, 16)), axis=0
    )
    yield _each("gather_elements", *((_f(*shape), _l(*shape)) for shape in MATRICES), axis=1)
    yield _each(
        "gather_nd",
        (_f(512, 512), _l(1000, 2)),
        (_f(100, 37, 8), _l(64, 2)),
        (_f(30000, 128), _l(64, 1)),
    )
    yield _each(
        "scatter_elements", *((_f(*shape), _l(*shape), _f(*shape)) for shape in MATRICES), axis=1
    )
    yield _each(
        "scatter_nd",
        (_f(512, 512), _l(1000, 2), _f(1000)),
        (_f(100, 37), _l(64, 1), _f(64, 37)),
        (_f(30000, 128), _l(64, 1), _f(64, 128)),
    )
    yield RelaxOperator(
        "index_put",
        ((_f(512, 512), _l(1000), _l(1000), _f(1000)), (_f(100, 37), _l(64), _l(64), _f(64))),
        lambda x, i, j, v: _op("index_put")(x, (i, j), v),
    )
    yield RelaxOperator(
        "index_tensor",
        ((_f(512, 512), _l(1000), _l(1000)), (_f(100, 37), _l(64), _l(64))),
        lambda x, i, j: _op("index_tensor")(x, [i, j]),
    )
    yield RelaxOperator(
        "slice_scatter",
        ((_f(512, 512), _f(100, 512)), (_f(128, 37), _f(100, 37))),
        lambda x, s: _op("slice_scatter")(x, s, 10, 110, 1, axis=0),
    )
    yield RelaxOperator(
        "one_hot",
        ((_l(64),), (_l(1000),), (_l(8, 16),)),
        lambda x: _op("one_hot")(x, _immediate(1.0), _immediate(0.0), 100),
    )
    yield _each(
        "reverse_sequence",
        (_f(16, 100, 32), _l(16)),
        (_f(4, 512, 64), _l(4)),
        (_f(1, 37, 100), _l(1)),
    )
    yield _each("bucketize", (_f(128, 512), _f(100)), (_f(1000), _f(16)), (_f(37, 100), _f(1000)))
    yield _each("sort", *((_f(*shape),) for shape in MATRICES))
    yield _each("argsort", *((_f(*shape),) for shape in MATRICES))
    yield _each("topk", *((_f(*shape),) for shape in MATRICES), k=8, ret_type="values")
    yield _each("median", *((_f(*shape),) for shape in MATRICES), axis=-1)


def _images() -> Iterator[RelaxOperator]:
    yield RelaxOperator(
        "image.resize2d",
        tuple((_f(*shape),) for shape in IMAGES),
        lambda x: _op("image.resize2d")(x, (100, 112)),
    )
    yield RelaxOperator(
        "image.resize3d",
        ((_f(1, 8, 8, 28, 28),), (_f(1, 3, 4, 16, 16),)),
        lambda x: _op("image.resize3d")(x, (16, 32, 32)),
    )
    yield _each(
        "image.grid_sample",
        (_f(1, 16, 32, 32), _f(1, 2, 40, 40)),
        (_f(2, 3, 100, 100), _f(2, 2, 64, 64)),
    )
    yield RelaxOperator(
        "image.affine_grid",
        ((_f(1, 2, 3),), (_f(4, 2, 3),)),
        lambda x: _op("image.affine_grid")(x, (64, 64)),
    )
    for kind in ("max", "avg"):
        yield _each(
            f"grad.{kind}_pool2d_backward",
            (_f(1, 32, 28, 28), _f(1, 32, 56, 56)),
            (_f(4, 8, 14, 14), _f(4, 8, 28, 28)),
            pool_size=(2, 2),
            strides=(2, 2),
        )
    yield _each(
        "grad.take_backward",
        (_f(64, 128), _f(1000, 128), _l(64)),
        (_f(1000, 37), _f(100, 37), _l(1000)),
        axis=0,
    )
    yield _each("grad.nll_loss_backward", *((_f(), _f(*shape), _l(shape[0])) for shape in MATRICES))


def _made() -> Iterator[RelaxOperator]:
    shapes = ((128, 513), (1, 64, 56, 56), (1000,))
    for name in ("zeros", "ones"):
        for shape in shapes:
            yield RelaxOperator(
                name, ((),), lambda name=name, shape=shape: _op(name)(shape, "float32")
            )
    for name in ("zeros_like", "ones_like"):
        yield _each(name, *((_f(*shape),) for shape in shapes))
    for n in (100, 512, 37):
        yield RelaxOperator("eye", ((),), lambda n=n: _op("eye")(n))
        yield RelaxOperator("arange", ((),), lambda n=n: _op("arange")(0, n * n, 1, "float32"))
        yield RelaxOperator(
            "hamming_window",
            ((),),
            lambda n=n: _op("hamming_window")(n, 1, 0.54, 0.46, "float32"),
        )
        yield RelaxOperator("full", ((),), lambda n=n: _op("full")((n, n), _number(2.0), "float32"))


def _others() -> Iterator[RelaxOperator]:
    shapes = ((128, 513), (64, 12, 128), (1000, 37))
    yield _each("eye_like", *((_f(*shape),) for shape in ((512, 512), (100, 37), (64, 1000))))
    for name, call in (
        ("full_like", lambda x: _op("full_like")(x, _number(2.0))),
        ("nn.dropout", lambda x: _op("nn.dropout")(x, 0.5)),
    ):
        yield RelaxOperator(name, tuple((_f(*shape),) for shape in shapes), call)
    yield _each(
        "nn.attention_bias",
        *(
            (*[_f(b, n, h, d)] * 3, _f(b, h, n, n))
            for b, n, h, d in ((1, 128, 8, 64), (2, 64, 4, 32), (1, 37, 2, 16))
        ),
    )
    for name, made in _detection():
        yield RelaxOperator(name, *made)


def _detection() -> Iterator[tuple[str, Any]]:
    boxes = ((1, 100), (4, 1000), (2, 37))
    yield (
        "vision.get_valid_counts",
        (tuple((_f(n, m, 6),) for n, m in boxes), lambda x: _op("vision.get_valid_counts")(x, 0.5)),
    )
    yield (
        "vision.multibox_transform_loc",
        (
            tuple((_f(n, 3, m), _f(n, 4 * m), _f(1, m, 4)) for n, m in boxes),
            _op("vision.multibox_transform_loc"),
        ),
    )
    yield (
        "vision.non_max_suppression",
        (
            tuple((_f(n, m, 6), _i(n), _i(n, m)) for n, m in boxes),
            _op("vision.non_max_suppression"),
        ),
    )


def _number(value: float) -> Any:
    from tvm import relax

    return relax.const(value, "float32")


def _immediate(value: float) -> Any:
    from tvm import tirx

    return tirx.FloatImm("float32", value)


def list_operators() -> Iterator[RelaxOperator]:
    """Yield all operators with their operands."""
    families = (
        _elementwise, _reductions, _normalizations, _products, _moves, _images, _made, _others,
    )  # fmt: skip
    for family in families:
        yield from family()
