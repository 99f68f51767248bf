"""Values and gradients by random index maps are those of numpy."""

import pytest

from tests.compiler.gradient.index_maps import TOLERANCE, error
from tests.support.seeds import fuzz_seeds, split_seeds

FEW = 12
MANY = fuzz_seeds(FEW, 2000)


def test_some_index_maps_have_the_values_and_gradients_of_numpy():
    assert {seed: off for seed in range(FEW) if (off := error(seed)) > TOLERANCE} == {}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", split_seeds(MANY, 50), ids=str)
def test_many_index_maps_have_the_values_and_gradients_of_numpy(seeds):
    assert {seed: off for seed in seeds if (off := error(seed)) > TOLERANCE} == {}
