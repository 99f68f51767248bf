"""Results of parts never stand where an operand stood that a tile may read once more."""

import numpy as np
from tvm import te, tirx

import autopipe

ROWS, INNER, COLUMNS, LAST = 64, 10, 84, 24
"""84 columns in tiles of 24: the last one overlaps."""


def backward():
    """Return the inputs and outputs of a rectified layer, and the gradient of its weights."""
    zero = tirx.const(0, "float32")
    shapes = (ROWS, INNER), (INNER, COLUMNS), (COLUMNS, LAST), (ROWS, LAST)
    x, w, v, g = (
        te.placeholder(shape, name=name) for shape, name in zip(shapes, "xwvg", strict=True)
    )
    i, j, k, n = (te.reduce_axis((0, size)) for size in (INNER, COLUMNS, LAST, ROWS))
    p = te.compute((ROWS, COLUMNS), lambda a, b: te.sum(x[a, i] * w[i, b], axis=i))
    b = te.compute((ROWS, COLUMNS), lambda a, c: p[a, c] + 0.1)
    h = te.compute((ROWS, COLUMNS), lambda a, c: tirx.Max(b[a, c], zero))
    out = te.compute((ROWS, LAST), lambda a, c: te.sum(h[a, j] * v[j, c], axis=j))
    by_h = te.compute((ROWS, COLUMNS), lambda a, c: te.sum(g[a, k] * v[c, k], axis=k))
    by_p = te.compute((ROWS, COLUMNS), lambda a, c: tirx.Select(b[a, c] > zero, by_h[a, c], zero))
    by_w = te.compute((INNER, COLUMNS), lambda a, c: te.sum(x[n, a] * by_p[n, c], axis=n))
    return [x, w, v, g], [out, by_w]


def test_a_mask_is_not_overwritten_by_what_it_masks():
    inputs, outputs = backward()
    found = autopipe.auto_schedule([*inputs, *outputs])
    assert '"template": "sequence"' in found.schedule
    random = np.random.default_rng(0)
    x, w, v, g = (
        random.uniform(-1, 1, [int(n) for n in one.shape]).astype("float32") for one in inputs
    )
    _, by_w = found(x, w, v, g)
    right = x.T @ ((g @ v.T) * (x @ w + 0.1 > 0))
    np.testing.assert_allclose(by_w, right, atol=1e-3)
