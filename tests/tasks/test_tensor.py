"""Tensors of tasks that another may have written."""

import pytest
from pydantic import ValidationError

from autopipe.tasks.tensor import Tensor


@pytest.mark.fault("K7")
@pytest.mark.parametrize("shape", [(10**99,), (1,) * 65, (-2,)], ids=["huge", "deep", "negative"])
def test_no_tensor_has_a_shape_whose_bytes_take_minutes_to_count(shape):
    assert Tensor(shape=(-1, 1 << 62), dtype="float32").bytes == 0
    with pytest.raises(ValidationError):
        Tensor(shape=shape, dtype="float32")
