"""Made-up tensors have the values, and lie in memory of the kind, that a package's have."""

import numpy as np

from autopipe.compiler.library.arena import PAGE
from autopipe.measure import tensors
from autopipe.runtime.weights import ALIGNMENT


def test_weights_lie_one_behind_the_other_in_large_pages():
    first, second = tensors.make_weight_tensors([((3, 5), "float32"), ((2, 300, 1000), "float32")])
    assert first.data_ptr() % PAGE == 0
    assert second.data_ptr() == first.data_ptr() + ALIGNMENT
    assert tuple(second.shape) == (2, 300, 1000)


def test_weights_have_the_values_of_other_tensors():
    for dtype in ("float32", "float16", "int8", "int64"):
        (weight,) = tensors.make_weight_tensors([((7, 9), dtype)])
        other = tensors.make_tensor((7, 9), dtype)
        assert str(weight.dtype) == dtype
        assert np.array_equal(weight.numpy(), other.numpy())


def test_weights_may_be_in_bfloat16():
    (weight,) = tensors.make_weight_tensors([((4, 8), "bfloat16")])
    assert (str(weight.dtype), tuple(weight.shape)) == ("bfloat16", (4, 8))


def test_no_weights_are_none():
    assert tensors.make_weight_tensors([]) == []
