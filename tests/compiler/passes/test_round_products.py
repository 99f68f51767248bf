import numpy as np
import pytest
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.passes.round_products import round_products
from tests.compiler import graphs
from tests.compiler.passes.test_round_weights import nearest
from tests.compiler.passes.test_widen_to_float32 import module_of, run
from tests.schedules.tasks import TARGET

X, W = ((2, 6), "float32"), ((6, 4), "float32")
ODD, OTHER = ((2, 5), "float32"), ((5, 4), "float32")
IMAGE, KERNEL = ((1, 4, 5, 5), "float32"), ((8, 4, 3, 3), "float32")


def multiplied(builder, x, w):
    return relax.op.matmul(x, w)


def turned(builder, x, w):
    return relax.op.matmul(x, builder.emit(relax.op.permute_dims(w)))


def scored(builder, x, y, w):
    return relax.op.matmul(builder.emit(relax.op.matmul(x, y)), w)


def convolved(builder, x, w):
    return relax.op.nn.conv2d(x, w, strides=2, padding=1)


def grouped(builder, x, w):
    return relax.op.nn.conv2d(x, w, padding=1, groups=2)


@pytest.mark.parametrize(
    ("build", "kinds", "kept"),
    [
        (multiplied, (X, W), ()),
        (turned, (X, ((4, 6), "float32")), ()),
        (
            multiplied,
            (((2, 5), "float32"), ((5, 4), "float32")),
            ["5 rows of its weight make no pairs"],
        ),
        (multiplied, (X, ((6, 5), "float32")), ["5 columns are no multiple of 4"]),
        (multiplied, (((2, 6), "float16"), ((6, 4), "float16")), ()),
        (convolved, (IMAGE, KERNEL), ()),
        (grouped, (IMAGE, ((8, 2, 3, 3), "float32")), ["it has 2 groups"]),
    ],
)
def test_what_an_instruction_does_not_fit_stays_with_its_reason(build, kinds, kept):
    found = round_products(module_of(build, *kinds), 1, channels_last=True)
    assert [one.reason for one in found.kept] == list(kept)
    assert [one.weight for one in found.kept] == [0] * len(kept)


def test_products_of_two_computed_values_stay():
    module = module_of(scored, X, ((6, 6), "float32"), W)
    found = round_products(module, 2, channels_last=True)
    assert (found.short, [one.reason for one in found.kept]) == (
        1,
        ["its right operand is no weight"],
    )


def test_convolutions_with_channels_first_stay():
    found = round_products(module_of(convolved, IMAGE, KERNEL), 1, channels_last=False)
    assert (found.short, len(found.kept)) == (0, 1)


def uneven(builder, x, w):
    return relax.op.nn.conv2d(x, w, strides=(2, 1), padding=(1, 2, 0, 3))


PHOTO = ((1, 3, 9, 8), "float32"), ((8, 3, 3, 3), "float32")
"""Three channels, which make no pairs."""


def test_channels_without_a_pair_get_zeros_and_the_image_its_border():
    module = round_products(module_of(uneven, *PHOTO), 1, channels_last=True).module
    (call,) = [one.value for one in list_bindings(module["main"]) if "conv2d" in str(one.value.op)]
    assert [list(map(int, arg.ty.shape)) for arg in call.args] == [[1, 4, 10, 13], [8, 4, 3, 3]]
    assert list(call.attrs.padding) == [0] * 4


@pytest.mark.parametrize(
    "kinds", [(multiplied, X, W), (convolved, IMAGE, KERNEL), (uneven, *PHOTO)]
)
def test_both_operands_are_rounded_and_sums_are_not(kinds):
    build, *shapes = kinds
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f") for shape, _ in shapes]
    before = module_of(build, *shapes)
    found = run(round_products(before, 1, channels_last=True).module, *arrays)
    expected = run(before, *map(nearest, arrays))
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert not np.allclose(found, run(before, *arrays), rtol=1e-4)


def test_taps_that_read_padding_are_left_out_of_what_is_rounded():
    """A 3x3 that meets its image with one tap is still a product with a weight."""
    module = module_of(
        lambda _, x, w: relax.op.nn.conv2d(x, w, padding=7, dilation=7), IMAGE, KERNEL
    )
    found = lowering.optimize(module, 1, graphs.NHWC, TARGET, print, round_products=True)
    assert found.products is not None
    assert (found.products.short, found.products.kept) == (1, ())
