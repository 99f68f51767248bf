import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autopipe.artifacts.verification import Tolerance
from autopipe.errors import GateError
from autopipe.verification.compare import (
    EXACT,
    check_names,
    coarsen_to_floor,
    compare_outputs,
    compute_noise_tolerance,
    compute_rms,
    compute_tolerance,
    explain_constant_output,
    find_non_finite_failure,
    measure_noise_share,
    widen_tolerance,
)

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-4)


def failure(ours, reference, allowed=TOLERANCE):
    return compare_outputs("y", np.asarray(ours), np.asarray(reference), allowed).failure


@pytest.mark.fault("E5")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_default_limit_is_where_it_says(dtype):
    allowed = compute_tolerance(np.dtype(dtype), 2.0, None, None)
    reference = np.array([3.0], "float64")
    limit = allowed.atol + allowed.rtol * 3.0
    assert failure(reference + limit * 0.999, reference, allowed) is None
    assert failure(reference + limit * 1.001, reference, allowed)
    assert failure(reference - limit * 1.001, reference, allowed)


@pytest.mark.fault("E5")
def test_float16_is_compared_in_float64():
    reference = np.array([60000, 1000], "float16")
    ours = np.array([-60000, 1000], "float16")  # the difference overflows float16
    result = compare_outputs("y", ours, reference, Tolerance(rtol=1e-2, atol=1e-2))
    assert result.failure
    assert result.max_abs == 120000


@pytest.mark.fault("E5")
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool"])
def test_integers_and_bools_are_exact(dtype):
    allowed = compute_tolerance(np.dtype(dtype), 1.0, 0.5, 0.5)
    assert allowed == EXACT
    reference = np.array([0, 1, 1], dtype)
    assert failure(reference, reference, allowed) is None
    wrong = compare_outputs("y", np.array([0, 1, 0], dtype), reference, allowed)
    assert "1 of 3 values differ" in str(wrong.failure)
    assert (wrong.first_bad, wrong.max_abs) == ((2,), 1.0)
    assert wrong.enough_atol is wrong.enough_rtol is None


@pytest.mark.fault("E5")
def test_large_integers_are_not_rounded():
    assert failure(np.array([2**53 + 1]), np.array([2**53])) is not None


@pytest.mark.fault("E2", "E3", "G14")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_equals_itself_alone(bad):
    strange, plain = np.array([1.0, bad]), np.array([1.0, 1.0])
    ours = f"1 of 2 values of the build are not finite, first {bad} at [1] against 1.0"
    assert failure(strange, plain) == ours
    theirs = f"1 of 2 values of the reference are not finite, first {bad} at [1] against 1.0"
    assert failure(plain, strange) == theirs
    assert failure(strange, strange) is None
    assert (failure(strange * [1, -1], strange) is None) == np.isnan(bad)
    assert failure(strange * [2, 1], strange)


@pytest.mark.fault("E2", "E3")
def test_a_reference_that_is_nowhere_finite_proves_nothing():
    nowhere = np.full((2, 2), np.nan)
    assert find_non_finite_failure("y", np.array([1.0, np.nan]), TOLERANCE) is None
    assert find_non_finite_failure("y", np.zeros(0), TOLERANCE) is None
    found = find_non_finite_failure("y", nowhere, TOLERANCE)
    assert str(found and found.failure).startswith(
        "4 of 4 values of the reference are not finite, first nan"
    )


@pytest.mark.fault("E4")
@pytest.mark.parametrize(
    ("ours", "reference", "message"),
    [
        (np.zeros((4, 4)), np.zeros(()), r"its shape is [4, 4], the reference's is []"),
        (np.zeros((1, 4)), np.zeros(4), "its shape is [1, 4], the reference's is [4]"),
        (np.zeros(0), np.zeros(3), "its shape is [0], the reference's is [3]"),
        (np.zeros(3, "float32"), np.zeros(3), "its dtype is float32, the reference's is float64"),
        (np.zeros(3, "int32"), np.zeros(3, "bool"), "its dtype is int32, the reference's is bool"),
    ],
)
def test_shapes_and_dtypes_must_agree(ours, reference, message):
    assert failure(ours, reference) == message


def test_an_empty_output_passes():
    assert failure(np.zeros((0, 3)), np.zeros((0, 3))) is None


@pytest.mark.fault("E1")
def test_the_first_bad_element_is_named():
    reference = np.ones((2, 3))
    ours = reference.copy()
    ours[1, 1:] = [3.0, 2.0]
    result = compare_outputs("y", ours, reference, TOLERANCE)
    assert result.failure == "2 of 6 values differ too much, first 3.0 at [1, 1], expected 1.0"
    assert (result.first_bad, result.max_abs, result.max_rel) == ((1, 1), 2.0, 2.0)


def test_the_tolerance_that_passes_is_named():
    result = compare_outputs("y", np.array([1.25, 0.0]), np.array([1.0, 0.0]), TOLERANCE)
    assert result.enough_atol == pytest.approx(0.25, rel=0.02)
    assert result.enough_rtol == pytest.approx(0.25, rel=0.02)


def test_no_tolerance_that_a_pipeline_can_not_say_is_advised():
    result = compare_outputs("y", np.array([40.0]), np.array([10.0]), TOLERANCE)
    assert result.enough_rtol is result.enough_atol is None


@pytest.mark.parametrize("part", [0.0, 0.25, 0.99, 1.5])
def test_how_much_of_the_allowed_error_is_used(part):
    reference = np.array([0.0, 2.0])
    ours = reference + np.array([0.0, part * (TOLERANCE.atol + TOLERANCE.rtol * 2.0)])
    result = compare_outputs("y", ours, reference, TOLERANCE)
    assert result.used == pytest.approx(part)
    assert (result.failure is None) == (part < 1)


def test_near_zero_no_relative_tolerance_passes():
    result = compare_outputs("y", np.array([0.5]), np.array([0.0]), TOLERANCE)
    assert result.enough_rtol is None
    assert result.enough_atol == pytest.approx(0.5, rel=0.03)


finite = hnp.arrays(
    np.float64,
    hnp.array_shapes(max_dims=3, max_side=4),
    elements=st.floats(-1e6, 1e6, allow_subnormal=False),
)


@given(finite)
def test_an_output_equals_itself(array):
    assert failure(array, array, EXACT) is None


@given(finite, st.data())
def test_one_element_beyond_the_limit_is_found_wherever_it_is(array, data):
    at = tuple(data.draw(st.integers(0, side - 1)) for side in array.shape)
    ours = array.copy()
    ours[at] += (TOLERANCE.atol + TOLERANCE.rtol * abs(array[at])) * data.draw(
        st.sampled_from([-1.01, 1.01, 1e3])
    )
    result = compare_outputs("y", ours, array, TOLERANCE)
    assert result.failure
    assert result.first_bad == at


@given(finite, st.floats(1e-6, 1.0), st.data())
def test_what_a_message_advises_does_pass(reference, scale, data):
    noise = data.draw(hnp.arrays(np.float64, reference.shape, elements=st.floats(-1, 1)))
    ours = reference + noise * scale
    result = compare_outputs("y", ours, reference, TOLERANCE)
    assume(result.failure is not None)
    if result.enough_atol is not None:
        advised = Tolerance(rtol=TOLERANCE.rtol, atol=result.enough_atol)
        assert failure(ours, reference, advised) is None
    if result.enough_rtol is not None:
        advised = Tolerance(rtol=result.enough_rtol, atol=TOLERANCE.atol)
        assert failure(ours, reference, advised) is None


@given(finite)
def test_agrees_with_numpy_on_finite_values(reference):
    ours = reference * 1.0005 + 2e-4
    theirs = np.allclose(ours, reference, rtol=TOLERANCE.rtol, atol=TOLERANCE.atol)
    assert (failure(ours, reference) is None) == theirs


def test_a_default_is_scaled_and_a_given_tolerance_is_literal():
    single = np.dtype("float32")
    assert compute_tolerance(single, 1e-3, None, None).atol == pytest.approx(1e-7)
    assert compute_tolerance(single, 0.0, None, None).atol == pytest.approx(1e-4)
    assert compute_tolerance(single, 1e-3, None, 0.5).atol == 0.5
    assert compute_tolerance(single, 1e-3, 0.0, None).rtol == 0.0


@pytest.mark.parametrize(
    ("array", "expected"),
    [([3.0, -3.0], 3.0), ([0.0], 0.0), ([], 0.0), ([1e200, 1e200], 1e200), ([np.inf, 2.0], 2.0)],
)
def test_magnitude_is_the_root_mean_square(array, expected):
    assert compute_rms(np.array(array)) == pytest.approx(expected)


@pytest.mark.fault("E4")
def test_names_must_be_the_same_in_the_same_order():
    check_names(["a", "b"], ["a", "b"])
    with pytest.raises(GateError, match=r"has 1 outputs \(a\), the reference has 2 \(a, b\)"):
        check_names(["a"], ["a", "b"])
    with pytest.raises(GateError, match="output 0 is 'b' in the build, 'a' in the reference"):
        check_names(["b", "a"], ["a", "b"])


@pytest.mark.fault("E6")
def test_constant_outputs_prove_nothing():
    varied, other = np.array([1.0, 2.0]), np.array([3.0, 2.0])
    assert explain_constant_output([varied, other]) is None
    assert explain_constant_output([varied, varied]) == "is the same for all inputs"
    assert (
        explain_constant_output([np.full(3, 0.001), np.full(3, 0.002)]) == "is one value everywhere"
    )
    assert (
        explain_constant_output([np.array(1.0), np.array(2.0)]) is None
    )  # a scalar may be one value


def test_edges_have_slack_and_what_the_user_says_has_none():
    on_data = compute_tolerance(np.dtype("float32"), 2.0, None, None)
    on_edge = compute_tolerance(np.dtype("float32"), 2.0, None, None, edge=True)
    assert (on_edge.rtol, on_edge.atol) == (on_data.rtol * 10, on_data.atol * 10)
    literal = compute_tolerance(np.dtype("float32"), 2.0, 1e-5, 1e-6, edge=True)
    assert (literal.rtol, literal.atol) == (1e-5, 1e-6)
    assert compute_tolerance(np.dtype("int32"), 2.0, None, None, edge=True) == EXACT


def test_an_output_that_wavers_by_itself_may_differ_by_more():
    narrow = Tolerance(rtol=0.0, atol=1e-3)
    steady, jumpy = np.array([1.0, 2.0], "f"), np.array([1.0, 2.5], "f")
    assert widen_tolerance(narrow, steady, steady) == narrow
    assert widen_tolerance(narrow, steady, jumpy).atol == pytest.approx(1e-3 + 4 * 0.5)
    assert widen_tolerance(narrow, steady, np.array([1.0, np.nan], "f")) == narrow
    assert widen_tolerance(narrow, np.array([1, 2]), np.array([1, 3])) == narrow


def test_an_output_that_a_rounding_of_the_inputs_moves_by_much_of_itself_has_only_to_be_as_large():
    noise, moved = np.array([2.0, -1.0, 1.5, 0.5], "f"), np.array([1.0, 1.0, -1.5, 0.0], "f")
    assert measure_noise_share(noise, moved) == pytest.approx(1.4, abs=0.1)
    assert measure_noise_share(noise, noise * np.float32(1.01)) is None
    assert measure_noise_share(noise * 0, moved * 0) is None
    assert measure_noise_share(np.array([1, 2]), np.array([3, 4])) is None
    allowed = compute_noise_tolerance(Tolerance(rtol=0.0, atol=1e-3), noise)
    assert compare_outputs("y", -noise, noise, allowed).failure is None
    assert compare_outputs("y", 10 * noise, noise, allowed).failure is not None


def test_an_error_floor_of_a_forged_file_hides_no_wrong_output():
    expected = np.linspace(1, 100, 64, dtype=np.float32)
    own = compute_tolerance(expected.dtype, compute_rms(expected), None, None)
    forged = coarsen_to_floor(own, 1e9, compute_rms(expected))
    assert forged.atol == compute_rms(expected) / 2
    wrong = np.zeros_like(expected)
    assert (np.abs(wrong - expected) > forged.atol + forged.rtol * np.abs(expected)).any()


def test_an_error_floor_counts_where_an_output_is_as_small_as_it():
    own = compute_tolerance(np.dtype("float32"), 1e-9, None, None)
    assert coarsen_to_floor(own, 2.0**-21, 1e-9).atol == 2.0**-21
