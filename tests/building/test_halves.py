import numpy as np
import pytest

from autopipe.building.halves import narrow_weights

HALVES = {"model": np.zeros(2, "float16")}
EXACT = np.array([1.5, -0.0, 65504.0, 6e-8, np.inf], "float16").astype("float32")


def test_what_float16_holds_is_kept_in_float16():
    kept = narrow_weights({"w": EXACT}, HALVES)["w"]
    assert kept.dtype == np.float16
    assert kept.astype("float32").tobytes() == EXACT.tobytes()


@pytest.mark.parametrize("number", [1.0001, 65520.0, 1e-9, 3e38])
def test_other_numbers_stay(number):
    array = np.append(EXACT, np.float32(number))
    assert narrow_weights({"w": array}, HALVES)["w"] is array


def test_other_types_stay():
    arrays = {"bytes": np.arange(4, dtype="int8"), "wide": np.ones(3)}
    assert narrow_weights(arrays, HALVES) == arrays


def test_a_model_without_halves_stays():
    assert narrow_weights({"w": EXACT}, {"model": np.zeros(2, "float32")})["w"] is EXACT
