"""Runs a build and its reference on the same inputs and compares every output."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from autopipe.artifacts.verification import CheckedCase, OutputComparison, Verification
from autopipe.compiler.library import samples
from autopipe.compiler.library.runtime import LoadedModel
from autopipe.config import Verify
from autopipe.errors import GateError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.compare import (
    check_names,
    compare,
    constant,
    magnitude,
    tolerance,
    widened,
)
from autopipe.verification.inputs import Case, cases, nudged
from autopipe.verification.limits import index_limits
from autopipe.verification.reference import Expected


def verify(
    model: LoadedModel,
    imported: Path,
    options: Verify,
    work: Path,
    given: Mapping[str, Path] | None = None,
) -> Verification:
    """Compare a build with the artifact of *import* that it was built from, on every case.

    `given` are files of real inputs by the names of their cases. `work` takes inputs and expected
    outputs; the caller empties it. Raises GateError where numbers, shapes, dtypes or names differ,
    SetupError where no reference is installed, ConfigError for real inputs that do not fit.
    """
    engines = reference.choose(options.reference, imported)
    limits = index_limits(imported)
    ports = model.signature.inputs
    drawn = list(cases(ports, limits, count=options.cases, seed=options.seed))
    for name, file in (given or {}).items():
        drawn.append(Case(name, edge=False, arrays=samples.load(file, ports, limits)))
    nudges = {case.name: nudged(case, options.seed) for case in drawn if case.edge}
    every = [*drawn, *nudges.values()]
    paths = [work / f"{index}.safetensors" for index in range(len(every))]
    for case, path in zip(every, paths, strict=True):
        arrays.save(case.arrays, path)
    expected = reference.expect(engines, imported, paths)
    twins = dict(zip(nudges, expected.files[len(drawn) :], strict=True))
    expected = replace(expected, files=expected.files[: len(drawn)])
    check_names([port.name for port in model.signature.outputs], expected.outputs)
    checked = tuple(_compared(model, drawn, expected, twins, options))
    _raise_failure(checked)
    return Verification(
        reference=expected.engine,
        reference_version=expected.version,
        cases=checked,
        warnings=tuple(_warnings(checked, expected)),
    )


def _compared(
    model: LoadedModel,
    drawn: Sequence[Case],
    expected: Expected,
    twins: Mapping[str, Path],
    options: Verify,
) -> Iterator[CheckedCase]:
    typical = _typical(drawn, expected)
    for case, file in zip(drawn, expected.files, strict=True):
        theirs = {name: _read(file, name) for name in expected.outputs}
        if case.edge and not all(np.isfinite(array).all() for array in theirs.values()):
            yield CheckedCase(name=case.name, skipped=True, outputs=())
            continue
        ours = model(case.arrays)
        outputs = []
        for name, array in theirs.items():
            scale = max(typical[name], magnitude(array))
            allowed = tolerance(array.dtype, scale, options.rtol, options.atol, edge=case.edge)
            if case.edge and options.atol is None:
                allowed = widened(allowed, array, _read(twins[case.name], name))
            outputs.append(compare(name, ours[name], array, allowed))
        yield CheckedCase(name=case.name, skipped=False, outputs=tuple(outputs))


def _typical(drawn: Sequence[Case], expected: Expected) -> dict[str, float]:
    """Return each output's magnitude on random inputs: on an edge there may be noise alone."""
    files = [file for case, file in zip(drawn, expected.files, strict=True) if not case.edge]
    return {name: max(magnitude(_read(file, name)) for file in files) for name in expected.outputs}


def _read(file: Path, name: str) -> np.ndarray:
    with safe_open(file, framework="np") as stored:
        array: np.ndarray = stored.get_tensor(name)
    return array


def _warnings(checked: Sequence[CheckedCase], expected: Expected) -> Iterator[str]:
    for refusal in expected.refusals:
        yield f"{refusal}; {expected.engine} took its place"
    for case in checked:
        if case.skipped:
            yield f"case {case.name!r} is skipped: the reference is not finite on it"
    kept = [file for case, file in zip(checked, expected.files, strict=True) if not case.skipped]
    for name in expected.outputs:
        reason = constant(_read(file, name) for file in kept)
        if reason:
            yield f"output {name!r} of the reference {reason}: comparing it proves nothing"


def _raise_failure(checked: Sequence[CheckedCase]) -> None:
    failed = [(case, output) for case in checked for output in case.outputs if output.failure]
    if not failed:
        return
    case, worst = max(failed, key=lambda pair: pair[1].max_abs or np.inf)
    message = f"output {worst.output!r} is wrong on case {case.name!r}: {worst.failure}"
    if worst.max_abs is not None:
        message += f"; largest error {worst.max_abs:.3g}"
        message += f" ({worst.max_rel:.3g} relative)" if worst.max_rel is not None else ""
        message += f", allowed rtol {worst.tolerance.rtol:.3g} and atol {worst.tolerance.atol:.3g}"
    if len(failed) > 1:
        message += f"; {len(failed)} comparisons fail in all"
    raise GateError(f"{message}; {_advice([output for _, output in failed])}")


def _advice(failed: Sequence[OutputComparison]) -> str:
    """Say which one number would let all of them pass."""
    settings = []
    for name, values in (
        ("atol", [output.enough_atol for output in failed]),
        ("rtol", [output.enough_rtol for output in failed]),
    ):
        enough = [value for value in values if value is not None]
        if len(enough) == len(values):
            settings.append(f"verify.{name}: {max(enough):g}")
    return f"{' or '.join(settings)} would pass" if settings else "no tolerance would pass"
