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
    coarse,
    coarsen_to_floor,
    compare,
    lifeless,
    magnitude,
    noisy,
    tolerance,
    undetermined,
    where_defined,
    widened,
)
from autopipe.verification.contained_build import BuildCrash, ContainedBuild
from autopipe.verification.inputs import Case, nudged
from autopipe.verification.oracle import Oracle, ReferenceAnswer, finite_share

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
        if case.edge and (theirs.refusal is not None or finite_share(theirs) < 1):
            return _told(case, skipped=True)
        try:
            ours = self._ours(case)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        drawn = any(array.size for array in case.arrays.values())  # others change nothing
        outputs = [
            (lifeless(name, array, allowed) if drawn else None)
            or compare(name, ours[name], array, allowed)
            for name, array in theirs.items()
            for allowed in [self._allowed(case, name, array)]
        ]
        wavers = case.edge or self.steps
        if wavers and self.options.atol is None and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        if self.promises.chooses_rows and any(output.failure for output in outputs):
            outputs = self._matched(case, theirs, ours, outputs)
        return self._stated(case, ours, outputs)

    def special(self, case: Case, theirs: ReferenceAnswer) -> CheckedCase:
        """Compare a case with numbers that most models never see."""
        if theirs.refusal is not None:
            return _told(case, skipped=True)
        try:
            ours = self._ours(case)
        except BuildCrash as crash:
            return self._crashed(case, theirs, crash)
        ours = where_defined(case.arrays.values(), ours, theirs)
        outputs = [
            compare(name, ours[name], array, self._allowed(case, name, array))
            for name, array in theirs.items()
        ]
        wavers = (
            case.name in COMMON_CASES and self.options.atol is None and self.binds(case, theirs)
        )
        if wavers and any(output.failure for output in outputs):
            outputs = self._widened(case, theirs, ours, outputs)
        if wavers and self.promises.chooses_rows and any(output.failure for output in outputs):
            outputs = self._matched(case, theirs, ours, outputs)
        return self._stated(case, ours, outputs)

    def _stated(
        self, case: Case, ours: Mapping[str, np.ndarray], outputs: Sequence[OutputComparison]
    ) -> CheckedCase:
        """Return a compared case; of one that passes, a package has to state the right shapes."""
        if not any(output.failure for output in outputs):
            check_shapes(self.model.signature.outputs, case.sizes, ours)
        return _told(case, outputs)

    def _crashed(self, case: Case, theirs: ReferenceAnswer, crash: BuildCrash) -> CheckedCase:
        """Return a case that the build did not survive."""
        why = f"the build crashed on it ({crash}), as a package of it would"
        outputs = [
            OutputComparison(output=name, tolerance=self._allowed(case, name, array), failure=why)
            for name, array in theirs.items()
        ]
        return _told(case, outputs, crashed=True)

    def binds(self, case: Case | CheckedCase, theirs: ReferenceAnswer) -> bool:
        """Tell whether a build has to pass a special case."""
        finite, device = finite_share(theirs) == 1, self.model.signature.device
        return self.promises.binds(case.name, finite=finite, device=device)

    def _ours(self, case: Case) -> dict[str, np.ndarray]:
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

    def _allowed(self, case: Case, name: str, array: np.ndarray) -> Tolerance:
        scale = max(self.typical[key_of(case)][name], magnitude(array))
        rtol, atol = self.options.rtol, self.options.atol
        allowed = tolerance(array.dtype, scale, rtol, atol, edge=case.edge)
        if self.options.atol is not None:
            return allowed
        return coarsen_to_floor(allowed, self.promises.error_floors.get(name, 0.0), scale)

    def _widened(
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
                    wider = widened(output.tolerance, theirs[name], answer[name])
                    allowed = coarse(allowed, wider.atol)
                    if case.edge and not self.steps:  # with steps, moves are no roundings
                        noise = undetermined(theirs[name], answer[name])
            allowed = noisy(allowed, theirs[name]) if noise else allowed
            compared = compare(name, ours[name], theirs[name], allowed)
            found.append(compared.model_copy(update={"undetermined": noise}))
        return found

    def _matched(
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
        mine, wanted = rows.of(ours, shapes), rows.of(theirs, shapes)
        hair = [rows.of(answer, shapes) for answer in moved if answer.refusal is None]
        allowed = {output.output: output.tolerance for output in outputs}
        found = {output.output: output for output in outputs}
        for names in rows.of_same_length(wanted):
            if not any(found[name].failure for name in names):
                continue
            count = rows.elsewhere(mine, wanted, names, allowed)
            others = (rows.elsewhere(other, wanted, names, allowed) or 0 for other in hair)
            if count is not None and count <= max(others, default=0):
                for name in names:
                    found[name] = OutputComparison(
                        output=name, tolerance=allowed[name], elsewhere=count
                    )
        return list(found.values())


def _told(
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


def key_of(case: Case) -> Hashable:
    """Return the sizes of a case, by which outputs are of one magnitude."""
    return tuple(case.sizes.values())
