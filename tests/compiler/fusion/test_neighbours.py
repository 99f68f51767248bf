"""Which neighbouring convolutions become one function."""

import numpy as np
import pytest
from tvm import relax

from autopipe.compiler import lowering, module_io
from autopipe.compiler.fusion.fusion_rules import FusionRules
from autopipe.compiler.fusion.scope import Scope
from tests.compiler import graphs
from tests.compiler.fusion.test_scope import plain


def block(emit, x, wide, deep, narrow):
    """A block of a MobileNet: 1x1, depthwise, 1x1."""
    inner = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, wide))))
    seen = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(inner, deep, padding=1, groups=8))))
    return relax.op.add(emit(relax.op.nn.conv2d(seen, narrow)), x)


def squeezed(emit, x, wide, deep, narrow):
    """The same, with something over the whole image before the last product."""
    inner = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, wide))))
    seen = emit(relax.op.nn.conv2d(inner, deep, padding=1, groups=8))
    mean = emit(relax.op.mean(seen, [2, 3], keepdims=True))
    return relax.op.nn.conv2d(emit(relax.op.multiply(seen, mean)), narrow)


def read_twice(emit, x, wide, deep, narrow):
    """The same, with another reader of the wide image."""
    inner = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, wide))))
    seen = emit(relax.op.nn.conv2d(inner, deep, padding=1, groups=8))
    product = emit(relax.op.nn.conv2d(seen, narrow))
    return relax.op.add(product, emit(relax.op.mean(inner, [2, 3, 1], keepdims=True)))


SHAPES = ((1, 4, 6, 6), (8, 4, 1, 1), (8, 1, 3, 3), (4, 8, 1, 1))


def convolutions(module):
    """How many convolutions each function has that has any."""
    names = [name for name, _ in module_io.list_prim_funcs(module)]
    return sorted(name.count("conv2d") for name in names if "conv2d" in name)


def lowered(make, pays):
    module = lowering.optimize(plain(make, *SHAPES), 1, graphs.NHWC, graphs.TARGET, print).module
    return module, lowering.lower(module, graphs.TARGET, pays=pays)


@pytest.mark.parametrize(
    ("make", "joined"), [(block, [3]), (squeezed, [1, 2]), (read_twice, [1, 1, 1])]
)
def test_what_follows_each_other_is_one_function_if_that_pays(make, joined):
    module, one = lowered(make, lambda _: True)
    several = lowering.lower(module, graphs.TARGET)
    assert convolutions(one) == joined
    assert convolutions(several) == [1, 1, 1]
    arrays = graphs.arguments(module)
    wanted, found = graphs.expected(several, arrays), graphs.run(one, arrays, graphs.PLAIN)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_all_three_are_asked_for_before_two_with_their_weights_free():
    asked = []

    def pays(module):
        function = module["main"]
        free = [int(at) for at in function.attrs["layout_free_buffers"]]
        asked.append((free, len(function.params)))
        return len(asked) > 1

    _, two = lowered(block, pays)
    assert convolutions(two) == [1, 2]
    assert asked == [([1, 2, 3], 5), ([1, 2], 4)]


def test_rules_of_the_user_decide_alone():
    module = lowering.optimize(plain(block, *SHAPES), 1, graphs.NHWC, graphs.TARGET, print).module
    rules = FusionRules(join=[["nn.conv2d", "nn.conv2d"]])
    scope = Scope(rules, lambda _: None, lambda _: None)
    found = lowering.lower(module, graphs.TARGET, scope=scope, pays=lambda _: True)
    assert convolutions(found) == [1, 2]
