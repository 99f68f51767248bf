"""The rule that decides whether two outputs are equal within tolerance.

An element passes if `|ours - reference| <= atol + rtol * |reference|`, computed in float64: the
rule of numpy's `allclose`. Unlike there, nothing broadcasts and dtypes must agree. NaN must be
NaN in both, and an infinity must have the same sign. Integers and bools must be equal.

`rtol` is relative to the element. It cannot cover elements near zero, where rounding errors of
cancelled terms remain; `atol` covers them, and is thus relative to the magnitude of the whole
output: the defaults are multiplied by its root mean square, or a softmax over a thousand classes
would pass with any values. An `atol` in the pipeline file is absolute.
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
"""Upper bound of the floor of any output: twice the error of float16 where a sigmoid saturates."""

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


def widen_tolerance(
    tolerance: Tolerance, reference: np.ndarray, nudged_reference: np.ndarray
) -> Tolerance:
    """Widen a tolerance by the reference's own change on inputs that differ by one rounding.

    Far outside its typical inputs, a softmax may have to distinguish numbers that differ by less
    than their rounding; two correct programs then need not agree.
    """
    if reference.dtype.kind != "f" or reference.shape != nudged_reference.shape:
        return tolerance
    with np.errstate(all="ignore"):
        wavers = np.abs(reference.astype(np.float64) - nudged_reference.astype(np.float64)).max(
            initial=0.0
        )
    if not np.isfinite(wavers):
        return tolerance
    return Tolerance(rtol=tolerance.rtol, atol=tolerance.atol + _WAVERING * float(wavers))


def measure_noise_share(reference: np.ndarray, nudged_reference: np.ndarray) -> float | None:
    """Return the relative change of an output on inputs a rounding away; None unless it is noise.

    A HuBERT without biases normalizes what a constant leaves, which is rounding errors, four times
    over: its exact answer is 2e-6 there, that of any program in float32 is between -4 and 4.
    """
    if reference.dtype.kind != "f" or reference.shape != nudged_reference.shape:
        return None
    size = compute_rms(reference)
    with np.errstate(all="ignore"):
        share = compute_rms(reference - nudged_reference) / size if size else 0.0
    return share if share > _UNDETERMINED else None


def compute_noise_tolerance(tolerance: Tolerance, reference: np.ndarray) -> Tolerance:
    """Return the tolerance of an output that is noise: only its magnitude is compared."""
    peak = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    return Tolerance(rtol=tolerance.rtol, atol=tolerance.atol + _WAVERING * peak)


def coarsen_tolerance(tolerance: Tolerance, floor: float) -> Tolerance:
    """Raise the absolute tolerance to at least a floor."""
    return Tolerance(rtol=tolerance.rtol, atol=max(tolerance.atol, floor))


def coarsen_to_floor(tolerance: Tolerance, floor: float, scale: float) -> Tolerance:
    """Raise the absolute tolerance to the resolution of the model's last operators.

    A `floor` comes from a file of *import*, which may be forged: it counts up to a part of `scale`,
    the magnitude of the output.
    """
    return coarsen_tolerance(tolerance, min(floor, max(_LARGEST_FLOOR * scale, _SATURATION)))


def compute_rms(array: np.ndarray) -> float:
    """Return the root mean square of the finite elements, 0 if there are none."""
    values = np.abs(array.astype(np.float64).ravel())
    values = values[np.isfinite(values)]
    peak = float(values.max(initial=0.0))
    return peak * float(np.sqrt(np.mean((values / peak) ** 2))) if peak else 0.0


def fill_undefined_outputs(
    inputs: Iterable[np.ndarray],
    ours: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Replace elements that ONNX leaves undefined by those of the reference.

    ONNX does not define `inf - inf` and `0 * inf`: there the reference has NaN although no input
    has.
    """
    if any(array.dtype.kind == "f" and np.isnan(array).any() for array in inputs):
        return dict(ours)
    return {
        name: np.where(np.isnan(reference[name]), reference[name], array)
        if array.dtype.kind == "f" and _is_comparable(array, reference.get(name))
        else array
        for name, array in ours.items()
    }


def _is_comparable(ours: np.ndarray, reference: np.ndarray | None) -> bool:
    return reference is not None and (ours.shape, ours.dtype) == (reference.shape, reference.dtype)


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
    """Raise a GateError for an output with another shape than its package would state."""
    for port in ports:
        shape, stated_shape = outputs[port.name].shape, port.at(sizes)
        if not stated_shape.takes(shape):
            words = ", ".join(stated_shape.words)
            raise GateError(
                f"output {port.name!r} is {list(shape)}, and a package would state [{words}]"
            )


def compare_outputs(
    output: str, ours: np.ndarray, reference: np.ndarray, tolerance: Tolerance
) -> OutputComparison:
    """Compare one output with its reference."""
    for property_name, mine, theirs in (
        ("shape", list(ours.shape), list(reference.shape)),
        ("dtype", ours.dtype, reference.dtype),
    ):
        if mine != theirs:
            failure = f"its {property_name} is {mine}, the reference's is {theirs}"
            return OutputComparison(output=output, tolerance=tolerance, failure=failure)
    for owner, array, counterpart in (
        ("the build", ours, reference),
        ("the reference", reference, ours),
    ):
        strange = ~np.isfinite(array) & ~_compare_with_nan(array, counterpart)
        if strange.any():
            failure = (
                f"{_format_bad_count(strange)} of {owner} are not finite, first "
                f"{_format_first_bad(array, strange)}"
            )
            failure += f" against {counterpart[_find_first_index(strange)]}"
            first = _find_first_index(strange)
            return OutputComparison(
                output=output, tolerance=tolerance, failure=failure, first_bad=first
            )
    if reference.dtype.kind == "f":
        finite = np.isfinite(reference)  # and ours is finite in the same places
        ours, reference = (np.where(finite, array, 0) for array in (ours, reference))
        return _compare_floats(output, ours, reference, tolerance)
    return _compare_exact(output, ours, reference)


def find_non_finite_failure(
    output: str, reference: np.ndarray, tolerance: Tolerance
) -> OutputComparison | None:
    """Return the failure of an output without a finite element in the reference, or None."""
    if not reference.size or np.isfinite(reference).any():
        return None
    strange = np.ones(reference.shape, bool)
    failure = (
        f"{_format_bad_count(strange)} of the reference are not finite, first "
        f"{_format_first_bad(reference, strange)}"
    )
    failure += ", however inputs are drawn (model.inputs.NAME.value says what one always is)"
    return OutputComparison(output=output, tolerance=tolerance, failure=failure)


def _compare_with_nan(ours: np.ndarray, reference: np.ndarray) -> np.ndarray:
    equal: np.ndarray = (ours == reference) | (np.isnan(ours) & np.isnan(reference))
    return equal


def explain_constant_output(outputs: Iterable[np.ndarray]) -> str | None:
    """Explain why the values of one output, for different inputs, prove nothing, or return None."""
    first: np.ndarray | None = None
    uniform = constant = True
    count = 0
    for array in outputs:
        first = array if first is None else first
        count += 1
        uniform = uniform and array.size > 1 and bool(np.all(array == array.flat[0]))
        constant = constant and np.array_equal(array, first)
    if uniform:
        return "is one value everywhere"
    return "is the same for all inputs" if constant and count > 1 else None


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
    output: str, ours: np.ndarray, reference: np.ndarray, tolerance: Tolerance
) -> OutputComparison:
    size = np.abs(reference.astype(np.float64))
    with np.errstate(all="ignore"):
        error = np.abs(ours.astype(np.float64) - reference.astype(np.float64))
        limit = tolerance.atol + tolerance.rtol * size
        bad = ~(error <= limit)
        relative = (error / size)[size > 0]
        error_ratio = (error / limit)[error > 0]
    result = OutputComparison(
        output=output,
        tolerance=tolerance,
        max_abs=_to_finite(error.max(initial=0.0)),
        max_rel=_to_finite(relative.max(initial=0.0)),
        used=_to_finite(error_ratio.max(initial=0.0)),
    )
    if not bad.any():
        return result
    with np.errstate(all="ignore"):
        enough_atol = (error * _ROUNDING - tolerance.rtol * size)[bad].max()
        enough_rtol = ((error * _ROUNDING - tolerance.atol) / size)[bad].max()
    update = {
        "failure": f"{_format_bad_count(bad)} differ too much, "
        f"{_format_bad_pair(ours, reference, bad)}",
        "first_bad": _find_first_index(bad),
        "enough_atol": _round_up_to_two_digits(float(enough_atol)),
        "enough_rtol": _round_up_to_two_digits(float(enough_rtol)),
    }
    return result.model_copy(update=update)


def _round_up_to_two_digits(value: float) -> float | None:
    """Round up to two significant digits; None beyond the range of the pipeline file's field."""
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
