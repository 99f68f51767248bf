import numpy as np
import pytest
from tvm import relax

from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.passes.pad_in_place import pad_in_place
from tests.compiler.passes.test_widen_to_float32 import module_of, run

IMAGE = ((1, 3, 4, 5), "float32")
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def turned_and_back(back, mode="constant"):
    def build(builder, x):
        turned = builder.emit(relax.op.permute_dims(x, TO_FIRST))
        padded = builder.emit(relax.op.nn.pad(turned, [0, 0, 0, 1, 2, 1, 1, 2], mode, 7.0))
        return relax.op.permute_dims(padded, back)

    return module_of(build, IMAGE)


def ops(module):
    calls = [
        one.value for one in list_bindings(module["main"]) if isinstance(one.value, relax.Call)
    ]
    return [call.op.name for call in calls]


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_what_is_turned_padded_and_turned_back_is_padded_as_it_lies(mode):
    before = turned_and_back(TO_LAST, mode)
    after = relax.transform.DeadCodeElimination()(pad_in_place(before))
    assert ops(after) == ["relax.nn.pad"]
    image = np.arange(60, dtype="f").reshape(1, 3, 4, 5)
    found = run(after, image)
    assert found.shape == (1, 6, 7, 6)
    assert np.array_equal(found, run(before, image))


def test_what_is_turned_otherwise_stays():
    before = turned_and_back([0, 3, 2, 1])
    assert ops(pad_in_place(before)) == ops(before)


def test_an_image_that_is_turned_once_stays():
    def build(builder, x):
        padded = builder.emit(relax.op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0]))
        return relax.op.permute_dims(padded, TO_FIRST)

    before = module_of(build, IMAGE)
    assert ops(pad_in_place(before)) == ops(before)
