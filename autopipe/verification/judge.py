"""Compare a build with one reference's outputs for a case."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autopipe.artifacts.promises import COMMON_CASES, OutputPromises
from autopipe.artifacts.verification import CheckedCase, OutputComparison, Tolerance
from autopipe.config.verify import Verify
from autopipe.errors import StageError
from autopipe.verification import rows
from autopipe.verification.compare import (
    check_shapes,
    coarsen_to_floor,
    coarsen_tolerance,
    compare_outputs,
    compute_noise_tolerance,
    compute_rms,
    compute_tolerance,
    fill_undefined_outputs,
    find_non_finite_failure,
    measure_noise_share,
    widen_tolerance,
)
from autopipe.verification.contained_build import BuildCrash, ContainedBuild
from autopipe.verification.inputs import Case, nudged
from autopipe.verification.oracle import Oracle, ReferenceAnswer, compute_finite_share

_INSIDE = 2.0**-12
"""Relative perturbation that shows where roundings to int8 fall: far less than a step."""


_HAIR = 2.0**-14
"""Relative perturbation that shows which rows are chosen by rounding: some hundred units in the
last place, since a model accumulates many."""
_HAIRS = 3
"""Number of such perturbations."""


@dataclass(frozen=True, slots=True)
class CaseJudge:
    """Compares the build with the reference."""

    model: ContainedBuild
    oracle: Oracle
    options: Verify
    promises: OutputPromises
    typical: Mapping[Hashable, Mapping[str, float]]
    """Each output's magnitude on random inputs, by the sizes: an edge case may yield noise."""
    steps: bool
    """Whether the model quantizes inside, so that two correct programs may differ by a step."""

    def checked(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case of typical inputs, or an edge case near them."""
        if case.edge and (theirs.refusal is not None or compute_finite_share(theirs) < 1):
            return _build_checked_case(case, skipped=True)
        try:
            ours = self._run_build(case)
        except BuildCrash as crash:
            return self._build_crashed_case(case, theirs, crash)
        has_elements = any(array.size for array in case.arrays.values())
        outputs = [
            (find_non_finite_failure(name, array, allowed) if has_elements else None)
            or compare_outputs(name, ours[name], array, allowed)
            for name, array in theirs.items()
            for allowed in [self._compute_tolerance(case, name, array)]
        ]
        wavers = case.edge or self.steps
        if wavers and self.options.atol is None and any(output.failure for output in outputs):
            outputs = self._compare_with_nudges(case, theirs, ours, outputs)
        if self.promises.chooses_rows and any(output.failure for output in outputs):
            outputs = self._compare_chosen_rows(case, theirs, ours, outputs)
        return self._check_stated_shapes(case, ours, outputs)

    def special(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case with special values, which most models never receive."""
        if theirs.refusal is not None:
            return _build_checked_case(case, skipped=True)
        try:
            ours = self._run_build(case)
        except BuildCrash as crash:
            return self._build_crashed_case(case, theirs, crash)
        ours = fill_undefined_outputs(case.arrays.values(), ours, theirs)
        outputs = [
            compare_outputs(name, ours[name], array, self._compute_tolerance(case, name, array))
            for name, array in theirs.items()
        ]
        wavers = (
            case.name in COMMON_CASES and self.options.atol is None and self.binds(case, theirs)
        )
        if wavers and any(output.failure for output in outputs):
            outputs = self._compare_with_nudges(case, theirs, ours, outputs)
        if wavers and self.promises.chooses_rows and any(output.failure for output in outputs):
            outputs = self._compare_chosen_rows(case, theirs, ours, outputs)
        return self._check_stated_shapes(case, ours, outputs)

    def _check_stated_shapes(
        self, case: Case, ours: Mapping[str, np.ndarray], outputs: Sequence[OutputComparison]
    ) -> CheckedCase:
        """Build a compared case; if it passes, check the shapes that a package would state."""
        if not any(output.failure for output in outputs):
            check_shapes(self.model.signature.outputs, case.sizes, ours)
        return _build_checked_case(case, outputs)

    def _build_crashed_case(
        self, case: Case, theirs: ReferenceAnswer, crash: BuildCrash
    ) -> CheckedCase:
        """Build the result of a case that crashes the build."""
        why = f"the build crashed on it ({crash}), as a package of it would"
        outputs = [
            OutputComparison(
                output=name, tolerance=self._compute_tolerance(case, name, array), failure=why
            )
            for name, array in theirs.items()
        ]
        return _build_checked_case(case, outputs, crashed=True)

    def binds(self, case: Case | CheckedCase, theirs: ReferenceAnswer) -> bool:
        """Whether a build has to pass a special case."""
        finite, device = compute_finite_share(theirs) == 1, self.model.signature.device
        return self.promises.binds(case.name, finite=finite, device=device)

    def _run_build(self, case: Case) -> dict[str, np.ndarray]:
        """Run the build. With dynamic shapes, a size that it refuses counts as a crash."""
        try:
            if case.generic:
                return self.model(case.arrays, generic=True)
            return self.model(case.arrays)
        except BuildCrash:
            raise
        except StageError as error:
            if not case.sizes:
                raise
            raise BuildCrash(str(error)) from error

    def _compute_tolerance(self, case: Case, name: str, array: np.ndarray) -> Tolerance:
        scale = max(self.typical[to_size_key(case)][name], compute_rms(array))
        rtol, atol = self.options.rtol, self.options.atol
        tolerance = compute_tolerance(array.dtype, scale, rtol, atol, edge=case.edge)
        if self.options.atol is not None:
            return tolerance
        return coarsen_to_floor(tolerance, self.promises.error_floors.get(name, 0.0), scale)

    def _compare_with_nudges(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare again with the tolerance widened by the reference's change on perturbed inputs.

        How far a few roundings change one number is random, so the largest of three changes counts.
        """
        moves = [_INSIDE if self.steps else 0.0] * 3
        nudged_cases = [nudged(case, self.options.seed + i, by) for i, by in enumerate(moves)]
        answers, _ = self.oracle.ask([replace(near, edge=True) for near in nudged_cases])
        if self.steps and all(a.dtype.kind != "f" for a in case.arrays.values()):
            seeds = [self.options.seed + i for i in range(len(moves))]
            answers += self.oracle.moved(case, seeds, _INSIDE)
        comparisons = []
        for output in outputs:
            name, tolerance = output.output, output.tolerance
            noise: float | None = None
            for answer in answers:
                if name in answer:
                    wider = widen_tolerance(output.tolerance, theirs[name], answer[name])
                    tolerance = coarsen_tolerance(tolerance, wider.atol)
                    if case.edge and not self.steps:  # with steps, perturbations are no roundings
                        noise = measure_noise_share(theirs[name], answer[name])
            tolerance = compute_noise_tolerance(tolerance, theirs[name]) if noise else tolerance
            comparison = compare_outputs(name, ours[name], theirs[name], tolerance)
            comparisons.append(comparison.model_copy(update={"undetermined": noise}))
        return comparisons

    def _compare_chosen_rows(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare again the rows that a model selects, as module `rows` describes."""
        seeds = [self.options.seed + i for i in range(_HAIRS)]
        near = [replace(nudged(case, seed, _HAIR), edge=True) for seed in seeds]
        perturbed_answers = [*self.oracle.ask(near)[0], *self.oracle.moved(case, seeds, _HAIR)]
        shapes = {port.name: port.shape for port in self.model.signature.outputs}
        mine, expected_rows = (
            rows.drop_unit_batch_axes(ours, shapes),
            rows.drop_unit_batch_axes(theirs, shapes),
        )
        hair = [
            rows.drop_unit_batch_axes(answer, shapes)
            for answer in perturbed_answers
            if answer.refusal is None
        ]
        tolerances = {output.output: output.tolerance for output in outputs}
        comparisons = {output.output: output for output in outputs}
        for names in rows.group_by_row_count(expected_rows):
            if not any(comparisons[name].failure for name in names):
                continue
            count = rows.count_unmatched_rows(mine, expected_rows, names, tolerances)
            reference_counts = (
                rows.count_unmatched_rows(other, expected_rows, names, tolerances) or 0
                for other in hair
            )
            if count is not None and count <= max(reference_counts, default=0):
                for name in names:
                    comparisons[name] = OutputComparison(
                        output=name, tolerance=tolerances[name], elsewhere=count
                    )
        return list(comparisons.values())


def _build_checked_case(
    case: Case,
    outputs: Sequence[OutputComparison] = (),
    *,
    skipped: bool = False,
    crashed: bool = False,
) -> CheckedCase:
    return CheckedCase(
        name=case.name, sizes=dict(case.sizes), generic=case.generic, skipped=skipped,
        crashed=crashed, outputs=tuple(outputs),
    )  # fmt: skip


def to_size_key(case: Case) -> Hashable:
    """Return the sizes of a case as a key: outputs of equal sizes have one magnitude."""
    return tuple(case.sizes.values())
