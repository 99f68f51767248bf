"""Values and gradients by random index maps are those of numpy."""

import pytest

from tests.compiler.gradient.index_maps import TOLERANCE, error

FEW = 12
MANY = 2000


def test_some_index_maps_have_the_values_and_gradients_of_numpy():
    assert {seed: off for seed in range(FEW) if (off := error(seed)) > TOLERANCE} == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, MANY, 50))
def test_many_index_maps_have_the_values_and_gradients_of_numpy(first):
    seeds = range(first, first + 50)
    assert {seed: off for seed in seeds if (off := error(seed)) > TOLERANCE} == {}
