"""Run the reference for verification: cases in, an answer for each out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from autopipe.config.dimension import append_sizes
from autopipe.errors import AutopipeError, ModelError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.inputs import Case
from autopipe.verification.moved import write_moved_weights
from autopipe.verification.reference import Expected


class ReferenceAnswer(dict[str, np.ndarray]):
    """The outputs of the reference for one case, or the reason of its refusal."""

    refusal: str | None = None
    engine: str = ""
    """The engine that computed them."""


class Oracle:
    """Runs the reference on cases that it passes as files."""

    def __init__(self, import_artifact: Path, engines: Sequence[str], work: Path) -> None:
        """Set the artifact of *import*, the engines to try in order, and a folder for inputs."""
        self._imported, self.engines, self._work = import_artifact, engines, work
        self._asked = 0

    def ask(
        self, cases: Sequence[Case], model: Path | None = None
    ) -> tuple[list[ReferenceAnswer], Expected]:
        """Compute the reference's outputs for each case; it may refuse an edge case.

        `model` is the folder of another reference than that of *import*. Raises ModelError where
        the model itself cannot run at the sizes of a case.
        """
        paths = []
        for case in cases:
            paths.append(self._work / f"{self._asked}.safetensors")
            arrays.save(case.arrays, paths[-1])
            self._asked += 1
        pairs = list(zip(cases, paths, strict=True))
        optional = [path for case, path in pairs if case.edge]
        sized_paths = [path for case, path in pairs if case.sizes]
        expected = reference.expect(
            self.engines, model or self._imported, paths, optional, sized_paths
        )
        self.engines = tuple(one for one in self.engines if one not in expected.failed)
        answers = [_read_answer(file, expected) for file in expected.files]
        for path in (*paths, *expected.files):
            path.unlink(missing_ok=True)
        for case, answer in zip(cases, answers, strict=True):
            if answer.refusal is not None and not case.edge:
                engine = append_sizes(expected.engine, case.sizes)
                raise ModelError(
                    f"{engine} cannot run the model: {answer.refusal}; "
                    "model.dimensions has to leave such sizes out, by min, max or multiple"
                )
        return answers, expected

    def others(self) -> Iterator["Oracle"]:
        """Yield an oracle for each engine after the first one."""
        for engine in self.engines[1:]:
            yield Oracle(self._imported, (engine,), self._work)

    def plain(self) -> "Oracle":
        """Return the oracle that runs TVM's unscheduled loops."""
        return Oracle(self._imported, (reference.PLAIN,), self._work)

    def opinions(self, cases: Sequence[Case]) -> list[ReferenceAnswer | None]:
        """Return the outputs for each case; None where the reference fails."""
        try:
            answers, _ = self.ask([replace(case, edge=True) for case in cases])
        except AutopipeError:
            return [None] * len(cases)
        return [answer if answer.refusal is None else None for answer in answers]

    def better(
        self, drawn_cases: Iterator[Case], answer: ReferenceAnswer
    ) -> tuple[Case, ReferenceAnswer] | None:
        """Select the inputs with the most finite outputs; None if they are no improvement."""
        if compute_finite_share(answer) == 1:
            return None
        candidates = list(drawn_cases)
        candidate = max(
            zip(candidates, self.ask(candidates)[0], strict=True), key=_measure_usefulness
        )
        return candidate if _measure_usefulness(candidate) > compute_finite_share(answer) else None

    def moved(self, case: Case, seeds: Sequence[int], share: float) -> Iterator[ReferenceAnswer]:
        """Yield the reference's outputs for a case with perturbed weights, for each seed."""
        optional = Case(case.name, edge=True, arrays=case.arrays)
        for seed in seeds:
            folder = self._work / f"moved-{seed}"
            if folder.exists() or write_moved_weights(self._imported, folder, seed, share):
                yield from self.ask([optional], folder)[0]


def compute_finite_share(answer: ReferenceAnswer) -> float:
    """Return the finite share of the outputs, from 0 to 1."""
    shares = [float(np.isfinite(array).mean()) for array in answer.values() if array.size]
    return sum(shares) / len(shares) if shares else 1.0


def _read_answer(file: Path, expected: Expected) -> ReferenceAnswer:
    answer = ReferenceAnswer()
    answer.refusal = expected.refused.get(file)
    answer.engine = expected.engines.get(file, expected.engine)
    if answer.refusal is None:
        with safe_open(file, framework="np") as tensor_file:
            answer.update((name, tensor_file.get_tensor(name)) for name in expected.outputs)
    return answer


def _measure_usefulness(case_answer: tuple[Case, ReferenceAnswer]) -> float:
    return compute_finite_share(case_answer[1])
