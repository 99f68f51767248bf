"""The rule that says whether two outputs are the same numbers.

An element passes if `|ours - reference| <= atol + rtol * |reference|`, computed in float64: the
rule of numpy's `allclose`. Unlike there, nothing broadcasts and dtypes must agree. What is not a
number must be none in both, and an infinity the same one. Integers and bools must be equal.

`rtol` is relative to the element. It can not cover elements near zero, where rounding errors of
the terms that cancelled are left over; `atol` covers them, and is thus meant relative to the
magnitude of the whole output: the defaults are multiplied by its root mean square, or a softmax
over a thousand classes would pass with any values. An `atol` that the user gives is literal.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autopipe.artifacts.signature import Port
from autopipe.artifacts.verification import OutputComparison, Tolerance
from autopipe.config.dimension import Sizes
from autopipe.errors import GateError

_LARGEST = 1.0
_ROUNDING = 1 + 1e-12


EXACT = Tolerance(rtol=0.0, atol=0.0)

_DEFAULTS = {
    "float64": Tolerance(rtol=1e-6, atol=1e-7),
    "float32": Tolerance(rtol=1e-3, atol=1e-4),
    "float16": Tolerance(rtol=1e-2, atol=1e-2),
}

_LARGEST_FLOOR = 1 / 2
"""Part of the magnitude of an output that its error floor may be: a quantized output of few steps
moves by two of them."""

_SATURATION = 2.0**-7
"""What it may be of any output: twice what float16 loses where a sigmoid saturates."""

_EDGE_SLACK = 10.0
"""On constant inputs a normalization divides rounding errors by a variance of nothing else; two
right programs differ then by more than on data. A wrong one differs by more still."""


_WAVERING = 4.0
"""Roundings inside a model, against those of its inputs that the reference was tried with."""

_UNDETERMINED = 1 / 8
"""Part of an output by which inputs a rounding away move it, from which on it is noise: a rounding
is 1e-7, and a long sum inside of a model is off by hundreds of them."""


def compute_tolerance(
    dtype: np.dtype,
    magnitude: float,
    rtol: float | None,
    atol: float | None,
    *,
    edge: bool = False,
) -> Tolerance:
    """Return the tolerance of an output; `rtol` and `atol` replace the defaults of its dtype."""
    if dtype.kind != "f":
        return EXACT
    default, slack = _DEFAULTS[dtype.name], _EDGE_SLACK if edge else 1.0
    return Tolerance(
        rtol=default.rtol * slack if rtol is None else rtol,
        atol=default.atol * slack * (magnitude or 1.0) if atol is None else atol,
    )


def widen_tolerance(allowed: Tolerance, reference: np.ndarray, nudged: np.ndarray) -> Tolerance:
    """Return the tolerance, wider where the reference itself wavers on inputs a rounding away.

    Far outside what a model is made for, a softmax may have to tell numbers apart that differ by
    less than their rounding; two right programs then need not agree.
    """
    if reference.dtype.kind != "f" or reference.shape != nudged.shape:
        return allowed
    with np.errstate(all="ignore"):
        wavers = np.abs(reference.astype(np.float64) - nudged.astype(np.float64)).max(initial=0.0)
    if not np.isfinite(wavers):
        return allowed
    return Tolerance(rtol=allowed.rtol, atol=allowed.atol + _WAVERING * float(wavers))


def measure_noise_share(reference: np.ndarray, nudged: np.ndarray) -> float | None:
    """Return by which part of itself a rounding of the inputs moves an output that is noise.

    A HuBERT without biases normalizes what a constant leaves, which is rounding errors, four times
    over: its exact answer is 2e-6 there, that of any program in float32 is between -4 and 4.
    """
    if reference.dtype.kind != "f" or reference.shape != nudged.shape:
        return None
    size = compute_rms(reference)
    with np.errstate(all="ignore"):
        share = compute_rms(reference - nudged) / size if size else 0.0
    return share if share > _UNDETERMINED else None


def compute_noise_tolerance(allowed: Tolerance, reference: np.ndarray) -> Tolerance:
    """Return the tolerance of an output that is noise: that it is as large as the reference's."""
    peak = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    return Tolerance(rtol=allowed.rtol, atol=allowed.atol + _WAVERING * peak)


def coarsen_tolerance(allowed: Tolerance, floor: float) -> Tolerance:
    """Return the tolerance, no finer than an absolute error."""
    return Tolerance(rtol=allowed.rtol, atol=max(allowed.atol, floor))


def coarsen_to_floor(allowed: Tolerance, floor: float, scale: float) -> Tolerance:
    """Return the tolerance, no finer than what the last operators of the model can tell apart.

    A `floor` comes from a file of *import*, which may be forged: it counts up to a part of `scale`,
    the magnitude of the output.
    """
    return coarsen_tolerance(allowed, min(floor, max(_LARGEST_FLOOR * scale, _SATURATION)))


def compute_rms(array: np.ndarray) -> float:
    """Return the root mean square of the finite elements, 0 if there are none."""
    values = np.abs(array.astype(np.float64).ravel())
    values = values[np.isfinite(values)]
    peak = float(values.max(initial=0.0))
    return peak * float(np.sqrt(np.mean((values / peak) ** 2))) if peak else 0.0


def fill_undefined_outputs(
    given: Iterable[np.ndarray], ours: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return outputs as the reference has them where ONNX does not define them.

    What `inf - inf` and `0 * inf` are, ONNX leaves open: there the reference has what is not a
    number, though none was given.
    """
    if any(array.dtype.kind == "f" and np.isnan(array).any() for array in given):
        return dict(ours)
    return {
        name: np.where(np.isnan(reference[name]), reference[name], array)
        if array.dtype.kind == "f" and _is_comparable(array, reference.get(name))
        else array
        for name, array in ours.items()
    }


def _is_comparable(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and (one.shape, one.dtype) == (other.shape, other.dtype)


def check_names(ours: Sequence[str], reference: Sequence[str]) -> None:
    """Raise a GateError unless both have the same outputs in the same order."""
    if len(ours) != len(reference):
        raise GateError(
            f"the build has {len(ours)} outputs ({', '.join(ours)}), "
            f"the reference has {len(reference)} ({', '.join(reference)})"
        )
    for position, (mine, theirs) in enumerate(zip(ours, reference, strict=True)):
        if mine != theirs:
            raise GateError(
                f"output {position} is {mine!r} in the build, {theirs!r} in the reference"
            )


def check_shapes(ports: Sequence[Port], sizes: Sizes, outputs: Mapping[str, np.ndarray]) -> None:
    """Raise a GateError for an output whose shape is none that its package would state."""
    for port in ports:
        shape, stated = outputs[port.name].shape, port.at(sizes)
        if not stated.takes(shape):
            words = ", ".join(stated.words)
            raise GateError(
                f"output {port.name!r} is {list(shape)}, and a package would state [{words}]"
            )


def compare_outputs(
    output: str, ours: np.ndarray, reference: np.ndarray, allowed: Tolerance
) -> OutputComparison:
    """Compare one output with its reference."""
    for what, mine, theirs in (
        ("shape", list(ours.shape), list(reference.shape)),
        ("dtype", ours.dtype, reference.dtype),
    ):
        if mine != theirs:
            failure = f"its {what} is {mine}, the reference's is {theirs}"
            return OutputComparison(output=output, tolerance=allowed, failure=failure)
    for owner, array, other in (("the build", ours, reference), ("the reference", reference, ours)):
        strange = ~np.isfinite(array) & ~_compare_with_nan(array, other)
        if strange.any():
            failure = (
                f"{_format_bad_count(strange)} of {owner} are not finite, first "
                f"{_format_first_bad(array, strange)}"
            )
            failure += f" against {other[_find_first_index(strange)]}"
            first = _find_first_index(strange)
            return OutputComparison(
                output=output, tolerance=allowed, failure=failure, first_bad=first
            )
    if reference.dtype.kind == "f":
        finite = np.isfinite(reference)  # and ours is finite in the same places
        ours, reference = (np.where(finite, array, 0) for array in (ours, reference))
        return _compare_floats(output, ours, reference, allowed)
    return _compare_exact(output, ours, reference)


def find_non_finite_failure(
    output: str, reference: np.ndarray, allowed: Tolerance
) -> OutputComparison | None:
    """Return the failure of an output whose reference holds nothing to compare, if it does."""
    if not reference.size or np.isfinite(reference).any():
        return None
    strange = np.ones(reference.shape, bool)
    found = (
        f"{_format_bad_count(strange)} of the reference are not finite, first "
        f"{_format_first_bad(reference, strange)}"
    )
    found += ", however inputs are drawn (model.inputs.NAME.value says what one always is)"
    return OutputComparison(output=output, tolerance=allowed, failure=found)


def _compare_with_nan(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    both: np.ndarray = (one == other) | (np.isnan(one) & np.isnan(other))
    return both


def explain_constant_output(outputs: Iterable[np.ndarray]) -> str | None:
    """Return why these results of one output, for different inputs, prove nothing; or None."""
    first: np.ndarray | None = None
    uniform = same = True
    count = 0
    for array in outputs:
        first = array if first is None else first
        count += 1
        uniform = uniform and array.size > 1 and bool(np.all(array == array.flat[0]))
        same = same and np.array_equal(array, first)
    if uniform:
        return "is one value everywhere"
    return "is the same for all inputs" if same and count > 1 else None


def _compare_exact(output: str, ours: np.ndarray, reference: np.ndarray) -> OutputComparison:
    bad = ours != reference
    if not bad.any():
        return OutputComparison(output=output, tolerance=EXACT, max_abs=0.0, max_rel=0.0, used=0.0)
    unequal = f"{_format_bad_count(bad)} differ where {reference.dtype} must be equal"
    largest = max(abs(int(a) - int(b)) for a, b in zip(ours[bad], reference[bad], strict=True))
    return OutputComparison(
        output=output,
        tolerance=EXACT,
        failure=f"{unequal}, {_format_bad_pair(ours, reference, bad)}",
        max_abs=float(largest),
        first_bad=_find_first_index(bad),
    )


def _compare_floats(
    output: str, ours: np.ndarray, reference: np.ndarray, allowed: Tolerance
) -> OutputComparison:
    size = np.abs(reference.astype(np.float64))
    with np.errstate(all="ignore"):
        error = np.abs(ours.astype(np.float64) - reference.astype(np.float64))
        limit = allowed.atol + allowed.rtol * size
        bad = ~(error <= limit)
        relative = (error / size)[size > 0]
        used = (error / limit)[error > 0]
    result = OutputComparison(
        output=output,
        tolerance=allowed,
        max_abs=_to_finite(error.max(initial=0.0)),
        max_rel=_to_finite(relative.max(initial=0.0)),
        used=_to_finite(used.max(initial=0.0)),
    )
    if not bad.any():
        return result
    with np.errstate(all="ignore"):
        enough_atol = (error * _ROUNDING - allowed.rtol * size)[bad].max()
        enough_rtol = ((error * _ROUNDING - allowed.atol) / size)[bad].max()
    update = {
        "failure": f"{_format_bad_count(bad)} differ too much, "
        f"{_format_bad_pair(ours, reference, bad)}",
        "first_bad": _find_first_index(bad),
        "enough_atol": _round_up_to_two_digits(float(enough_atol)),
        "enough_rtol": _round_up_to_two_digits(float(enough_rtol)),
    }
    return result.model_copy(update=update)


def _round_up_to_two_digits(value: float) -> float | None:
    """Return the next number of two digits, or None beyond what a pipeline file may say."""
    if not 0 < value < _LARGEST:
        return None
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(f"{np.ceil(value / step * _ROUNDING) * step:.6g}")


def _to_finite(value: np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None


def _find_first_index(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(int(bad.argmax()), bad.shape))


def _format_bad_count(bad: np.ndarray) -> str:
    return f"{int(bad.sum())} of {bad.size} values"


def _format_first_bad(array: np.ndarray, bad: np.ndarray) -> str:
    index = _find_first_index(bad)
    return f"{array[index]} at {list(index)}"


def _format_bad_pair(ours: np.ndarray, reference: np.ndarray, bad: np.ndarray) -> str:
    return f"first {_format_first_bad(ours, bad)}, expected {reference[_find_first_index(bad)]}"
