"""Places that are computed: inside of a tensor as ONNX says, outside of it cut to it."""

import numpy as np
import pytest

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.errors import ModelError
from tests.compiler.frontends.models import compiled, run, save
from tests.compiler.frontends.test_new_operators import case, check, floats, merged
from tests.support.table import each_row

CUBE = floats(3, 4, 5)
UPDATES = floats(2, 3, 2, seed=1)
FAR = np.array([2**40, -(2**40), 3, -4])
PICTURE = floats(1, 1, 4, 5)
GRID = np.array([1e10, -1e10, 1e30, -np.inf, np.nan, 3e9, 0.3, -0.2], np.float32).reshape(
    1, 2, 2, 2
)
SAMPLED = [
    case("GridSample", {"x": PICTURE, "g": GRID}, mode=mode, padding_mode=kind)
    for mode, kind in (("linear", "zeros"), ("nearest", "reflection"))
]


def fewer(axis, seed=2):
    """Places that do not meet along an axis, negative ones among them, fewer than elements."""
    return np.argsort(np.random.default_rng(seed).random((2, 3, 2)), axis=axis) - 1


def test_fewer_indices_than_elements_on_any_axis(tmp_path):
    cases = [
        *(case("ScatterElements", {"x": CUBE, "i": fewer(axis), "u": UPDATES}, axis=axis)
          for axis in (0, 1, 2, -1)),
        *(case("ScatterElements", {"x": CUBE, "i": fewer(1), "u": UPDATES}, reduction=kind, axis=1)
          for kind in ("add", "mul", "max", "min")),
        case("ScatterElements", {"x": CUBE, "i": fewer(0)[:, :1], "u": UPDATES[:, :1]}),
        case("GatherElements", {"x": CUBE, "i": fewer(1)}, axis=1),
        case("Gather", {"x": CUBE, "i": fewer(0)}, axis=-1),
        case("GatherND", {"x": CUBE, "i": np.array([[[0, -5], [-1, 4]]] * 3)}, batch_dims=1),
        case("ScatterND", {"x": CUBE, "i": np.array([[0, -1], [-3, 1]]), "u": floats(2, 5)}),
        case("ScatterND", {"x": floats(3, 2, 700), "i": np.array([[[2]], [[0]], [[-1]]]),
                           "u": floats(3, 1, 2, 700, seed=1)}),
        case("ScatterND", {"x": CUBE, "i": np.array([[0, -1, 2], [2, 0, 0]]), "u": floats(2)}),
    ]  # fmt: skip
    check(cases, run, tmp_path, opset=20)


def test_places_outside_are_cut_to_the_tensor(tmp_path):
    rows, pairs = FAR.reshape(2, 2), FAR.reshape(1, 2, 2).repeat(3, 0)
    cases = [
        case("Gather", {"x": CUBE, "i": rows}, axis=1),
        case("GatherElements", {"x": CUBE, "i": FAR.reshape(1, 1, 4)}, axis=1),
        case("GatherND", {"x": CUBE, "i": pairs}, batch_dims=1),
        case("ScatterND", {"x": CUBE, "i": FAR.reshape(4, 1), "u": floats(4, 4, 5)},
             reduction="add"),
        case("ScatterND", {"x": CUBE, "i": FAR.reshape(4, 1), "u": floats(4, 4, 5)}),
        case("ScatterElements", {"x": CUBE, "i": FAR.reshape(4, 1, 1), "u": floats(4, 1, 1)},
             reduction="add"),
        case("MaxUnpool", {"x": floats(1, 1, 2, 2), "i": FAR.reshape(1, 1, 2, 2)},
             kernel_shape=[2, 2], strides=[2, 2]),
        case("ReverseSequence", {"x": CUBE, "l": FAR}, time_axis=0, batch_axis=1),
        *SAMPLED,
    ]  # fmt: skip
    made, feeds = merged(cases, 20)
    gathered, elements, by_pair, many, put, single, unpooled, turned, *sampled = compiled(
        load_model(save(made, tmp_path), {}, None, None), feeds
    )
    last = np.array([3, 0, 3, 0])  # of four places on an axis
    np.testing.assert_array_equal(gathered, CUBE[:, last.reshape(2, 2)])
    np.testing.assert_array_equal(elements[0, 0], CUBE[0, last, range(4)])
    np.testing.assert_array_equal(by_pair, CUBE[np.arange(3)[:, None], [[3, 3]] * 3, [[0, 1]] * 3])
    added, one_added = CUBE.copy(), CUBE.copy()
    np.add.at(added, [2, 0, 2, 0], floats(4, 4, 5))
    np.add.at(one_added, ([2, 0, 2, 0], 0, 0), floats(4, 1, 1).reshape(-1))
    np.testing.assert_allclose(many, added, rtol=1e-5)
    np.testing.assert_array_equal(put[[2, 0]], floats(4, 4, 5)[2:])
    np.testing.assert_allclose(single, one_added, rtol=1e-5)
    np.testing.assert_array_equal(turned[:, [0, 2]], CUBE[::-1, [0, 2]])
    np.testing.assert_array_equal(turned[:, [1, 3]], CUBE[:, [1, 3]])
    places = {0: floats(1, 1, 2, 2).flat[1], 15: floats(1, 1, 2, 2).flat[0]}
    assert unpooled.flat[0] == places[0]
    assert unpooled.flat[15] == places[15]
    expected = run(*merged(SAMPLED, 20))
    for ours, reference in zip(sampled, expected, strict=True):
        np.testing.assert_allclose(ours[..., 1, 1], reference[..., 1, 1], rtol=1e-5)


def test_a_constant_outside_is_refused_with_its_node(tmp_path):
    made, _ = merged([case("Gather", {"x": CUBE}, {"i": np.array([0, -4])})], 20)
    with pytest.raises(
        ModelError, match=r"second input of 'Gather0_y'.* has places outside of \[3\]"
    ):
        load_model(save(made, tmp_path), {}, None, None)


@each_row("kind, shapes, attributes", [
    ("GatherElements", [(3, 4), (5, 4)], {"axis": 1}),
    ("ScatterElements", [(3, 4), (5, 4), (5, 4)], {"axis": 1}),
    ("ScatterElements", [(3, 4), (3, 4), (2, 4)], {}),
    ("ScatterND", [(3, 4), (5, 1), (2, 4)], {}),
    ("ScatterND", [(3, 4), (5, 1), (5, 2)], {}),
    ("GatherND", [(3, 4), (5, 2, 1)], {"batch_dims": 1}),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(kind, shapes, attributes, tmp_path_factory):
    dtypes = {"x": "f", "i": "q", "u": "f"}
    pairs = zip(dtypes.items(), shapes, strict=False)
    inputs = {name: np.zeros(shape, dtype) for (name, dtype), shape in pairs}
    made, _ = merged([case(kind, inputs, **attributes)], 20)
    with pytest.raises(ModelError, match=kind):
        load_model(save(made, tmp_path_factory.mktemp("sizes")), {}, None, None)


@pytest.mark.parametrize(
    ("places", "axis", "sliced"),
    [
        (np.array(2), 1, True),
        (np.array(-1), -1, True),
        (np.array([1]), 0, True),
        (np.array([0, 2]), 1, True),
        (np.array([-4, 1, 2, -1]), 1, True),
        (np.array([1, 1]), 1, False),
        (np.array([3, 1]), 1, False),
        (np.array([[0], [1]]), 1, False),
    ],
)
def test_even_places_that_are_known_are_a_slice(places, axis, sliced, tmp_path):
    cases = [case("Gather", {"x": CUBE}, {"i": places}, axis=axis)]
    check(cases, run, tmp_path, opset=20)
    made, _ = merged(cases, 20)
    script = load_model(save(made, tmp_path), {}, None, None).module.script()
    assert ("R.take" not in script) is sliced
