"""Compares a build with what one reference answers to a case."""

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
"""Share that inputs are moved by to see where roundings to bytes fall: far less than a step."""


_HAIR = 2.0**-14
"""Share that inputs are moved by to see which rows are chosen for less: some hundred roundings,
since a model adds up many."""
_HAIRS = 3
"""Times that they are moved."""


@dataclass(frozen=True, slots=True)
class CaseJudge:
    """Compares the build with the reference."""

    model: ContainedBuild
    oracle: Oracle
    options: Verify
    promises: OutputPromises
    typical: Mapping[Hashable, Mapping[str, float]]
    """Each output's magnitude on random inputs, by the sizes: on an edge there may be noise alone.
    """
    steps: bool
    """Whether there are steps inside, at which two right programs may part."""

    def checked(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case that a model is made for, or near it."""
        if case.edge and (theirs.refusal is not None or compute_finite_share(theirs) < 1):
            return _build_checked_case(case, skipped=True)
        try:
            ours = self._run_build(case)
        except BuildCrash as crash:
            return self._build_crashed_case(case, theirs, crash)
        drawn = any(array.size for array in case.arrays.values())  # others change nothing
        outputs = [
            (find_non_finite_failure(name, array, allowed) if drawn else None)
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
        """Compare a case with numbers that most models never see."""
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
        """Return a compared case; of one that passes, a package has to state the right shapes."""
        if not any(output.failure for output in outputs):
            check_shapes(self.model.signature.outputs, case.sizes, ours)
        return _build_checked_case(case, outputs)

    def _build_crashed_case(
        self, case: Case, theirs: ReferenceAnswer, crash: BuildCrash
    ) -> CheckedCase:
        """Return a case that the build did not survive."""
        why = f"the build crashed on it ({crash}), as a package of it would"
        outputs = [
            OutputComparison(
                output=name, tolerance=self._compute_tolerance(case, name, array), failure=why
            )
            for name, array in theirs.items()
        ]
        return _build_checked_case(case, outputs, crashed=True)

    def binds(self, case: Case | CheckedCase, theirs: ReferenceAnswer) -> bool:
        """Tell whether a build has to pass a special case."""
        finite, device = compute_finite_share(theirs) == 1, self.model.signature.device
        return self.promises.binds(case.name, finite=finite, device=device)

    def _run_build(self, case: Case) -> dict[str, np.ndarray]:
        """Run the build. With open sizes, one that refuses a size counts as crashed."""
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
        allowed = compute_tolerance(array.dtype, scale, rtol, atol, edge=case.edge)
        if self.options.atol is not None:
            return allowed
        return coarsen_to_floor(allowed, self.promises.error_floors.get(name, 0.0), scale)

    def _compare_with_nudges(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare once more, where the reference itself wavers by more than is allowed.

        How far a few roundings move one number hangs on luck, so of three moves the farthest tells.
        """
        moves = [_INSIDE if self.steps else 0.0] * 3
        moved = [nudged(case, self.options.seed + i, by) for i, by in enumerate(moves)]
        answers, _ = self.oracle.ask([replace(near, edge=True) for near in moved])
        if self.steps and all(a.dtype.kind != "f" for a in case.arrays.values()):
            seeds = [self.options.seed + i for i in range(len(moves))]
            answers += self.oracle.moved(case, seeds, _INSIDE)
        found = []
        for output in outputs:
            name, allowed = output.output, output.tolerance
            noise: float | None = None
            for answer in answers:
                if name in answer:
                    wider = widen_tolerance(output.tolerance, theirs[name], answer[name])
                    allowed = coarsen_tolerance(allowed, wider.atol)
                    if case.edge and not self.steps:  # with steps, moves are no roundings
                        noise = measure_noise_share(theirs[name], answer[name])
            allowed = compute_noise_tolerance(allowed, theirs[name]) if noise else allowed
            compared = compare_outputs(name, ours[name], theirs[name], allowed)
            found.append(compared.model_copy(update={"undetermined": noise}))
        return found

    def _compare_chosen_rows(
        self,
        case: Case,
        theirs: ReferenceAnswer,
        ours: dict[str, np.ndarray],
        outputs: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """Compare once more the rows that a model chooses, as `rows` says."""
        seeds = [self.options.seed + i for i in range(_HAIRS)]
        near = [replace(nudged(case, seed, _HAIR), edge=True) for seed in seeds]
        moved = [*self.oracle.ask(near)[0], *self.oracle.moved(case, seeds, _HAIR)]
        shapes = {port.name: port.shape for port in self.model.signature.outputs}
        mine, wanted = (
            rows.drop_unit_batch_axes(ours, shapes),
            rows.drop_unit_batch_axes(theirs, shapes),
        )
        hair = [
            rows.drop_unit_batch_axes(answer, shapes) for answer in moved if answer.refusal is None
        ]
        allowed = {output.output: output.tolerance for output in outputs}
        found = {output.output: output for output in outputs}
        for names in rows.group_by_row_count(wanted):
            if not any(found[name].failure for name in names):
                continue
            count = rows.count_unmatched_rows(mine, wanted, names, allowed)
            others = (
                rows.count_unmatched_rows(other, wanted, names, allowed) or 0 for other in hair
            )
            if count is not None and count <= max(others, default=0):
                for name in names:
                    found[name] = OutputComparison(
                        output=name, tolerance=allowed[name], elsewhere=count
                    )
        return list(found.values())


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
    """Return the sizes of a case, by which outputs are of one magnitude."""
    return tuple(case.sizes.values())
