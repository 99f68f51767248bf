"""Computes that no operator of TVM has and no template knows by name, as TE tensors."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import te, tirx, topi

# ruff: noqa: ANN401  TVM has no types

_LEAST: Final = -1e30


def _tensor(*shape: int, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name="x")


def shortest_paths(n: int, m: int, k: int) -> list[Any]:
    """A min-plus matrix product: the shortest paths over one more stop."""
    left, right, stop = _tensor(n, k), _tensor(k, m), te.reduce_axis((0, k))
    return [left, right, te.compute(
        (n, m), lambda i, j: te.min(left[i, stop] + right[stop, j], axis=stop), name="paths"
    )]  # fmt: skip


def distances(n: int, m: int, d: int) -> list[Any]:
    """Squared distances of all pairs of points."""
    left, right, axis = _tensor(n, d), _tensor(m, d), te.reduce_axis((0, d))

    def squared(i: Any, j: Any) -> Any:
        difference = left[i, axis] - right[j, axis]
        return te.sum(difference * difference, axis=axis)

    return [left, right, te.compute((n, m), squared, name="distances")]


def histogram(n: int, bins: int) -> list[Any]:
    """Weights added up by the bin that a value is in."""
    at, weight, k = _tensor(n, dtype="int32"), _tensor(n), te.reduce_axis((0, n))

    def total(i: Any) -> Any:
        return te.sum(tirx.if_then_else(at[k] == i, weight[k], 0.0), axis=k)

    return [at, weight, te.compute((bins,), total, name="histogram")]


def dilation(h: int, w: int, step: int) -> list[Any]:
    """A morphological dilation: the most of 5 x 5 pixels that lie `step` apart."""
    image = _tensor(h, w)
    around = topi.nn.pad(image, [2 * step] * 2, [2 * step] * 2, pad_value=_LEAST)
    r, s = te.reduce_axis((0, 5)), te.reduce_axis((0, 5))
    return [image, te.compute(
        (h, w), lambda i, j: te.max(around[i + step * r, j + step * s], axis=[r, s]), name="dilated"
    )]  # fmt: skip


def prefix_maximum(n: int, m: int) -> list[Any]:
    """The most of each row up to a column."""
    rows, k = _tensor(n, m), te.reduce_axis((0, m))

    def most(i: Any, j: Any) -> Any:
        return te.max(tirx.if_then_else(k <= j, rows[i, k], _LEAST), axis=k)

    return [rows, te.compute((n, m), most, name="prefix_maximum")]


def column_integral(n: int, m: int) -> list[Any]:
    """An integral image by rows: the sum of each column down to a row."""
    rows, k = _tensor(n, m), te.reduce_axis((0, n))

    def total(i: Any, j: Any) -> Any:
        return te.sum(tirx.if_then_else(k <= i, rows[k, j], 0.0), axis=k)

    return [rows, te.compute((n, m), total, name="integral")]


def bilinear(channels: int, size: int, points: int) -> list[Any]:
    """An image at points between its pixels."""
    image, at = _tensor(channels, size, size), _tensor(points, 2)

    def inside(index: Any) -> Any:
        return tirx.max(tirx.min(index, size - 1), 0)

    def value(channel: Any, point: Any) -> Any:
        y, x = at[point, 0], at[point, 1]
        above, left = te.floor(y), te.floor(x)
        row, column = above.astype("int32"), left.astype("int32")
        corners = [
            image[channel, inside(row + i), inside(column + j)]
            * (y - above if i else 1.0 - (y - above))
            * (x - left if j else 1.0 - (x - left))
            for i in (0, 1)
            for j in (0, 1)
        ]
        return corners[0] + corners[1] + corners[2] + corners[3]

    return [image, at, te.compute((channels, points), value, name="bilinear")]


def jacobi(n: int) -> list[Any]:
    """One step of Jacobi's method on a square."""
    x = _tensor(n + 2, n + 2)

    def mean(i: Any, j: Any) -> Any:
        return 0.25 * (x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2])

    return [x, te.compute((n, n), mean, name="jacobi")]


def response_norm(channels: int, size: int) -> list[Any]:
    """Local response normalization over five channels."""
    x = _tensor(1, channels, size, size)
    return [x, topi.nn.lrn(x, 5, 1, 1e-4, 0.75, 2.0)]


def attention_with_bias(heads: int, n: int, depth: int) -> list[Any]:
    """Attention whose scores sink with the distance, as ALiBi has it."""
    query, key, value = (_tensor(heads, n, depth) for _ in range(3))
    d, k = te.reduce_axis((0, depth)), te.reduce_axis((0, n))
    scores = te.compute(
        (heads, n, n), lambda b, i, j: te.sum(query[b, i, d] * key[b, j, d], axis=d), name="scores"
    )
    biased = te.compute(
        (heads, n, n),
        lambda b, i, j: scores[b, i, j] * 0.125 - te.abs((i - j).astype("float32")) * 0.5,
        name="biased",
    )
    shares = topi.nn.softmax(biased, axis=-1)
    return [query, key, value, te.compute(
        (heads, n, depth), lambda b, i, j: te.sum(shares[b, i, k] * value[b, k, j], axis=k),
        name="attended",
    )]  # fmt: skip


OWN: Final[Mapping[str, tuple[Callable[..., list[Any]], tuple[int, ...], tuple[int, ...]]]] = {
    "shortest paths": (shortest_paths, (256, 250, 200), (17, 37, 23)),
    "distances": (distances, (200, 300, 64), (13, 21, 19)),
    "histogram": (histogram, (4096, 100), (61, 19)),
    "dilation": (dilation, (112, 120, 2), (11, 21, 2)),
    "prefix maximum": (prefix_maximum, (128, 200), (5, 37)),
    "column integral": (column_integral, (128, 256), (9, 37)),
    "bilinear": (bilinear, (16, 64, 1000), (3, 9, 37)),
    "jacobi": (jacobi, (256,), (19,)),
    "response norm": (response_norm, (32, 28), (6, 7)),
    "attention with bias": (attention_with_bias, (8, 100, 64), (2, 19, 8)),
}
"""Each with its sizes in the benchmark, and small ones for tests."""
