"""The reference as verification asks it: cases in, and what it answers to each."""

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
    """The outputs of the reference for one case, or why it refused it."""

    refusal: str | None = None
    engine: str = ""
    """The engine that computed them."""


class Oracle:
    """Asks the reference, case by case in files."""

    def __init__(self, imported: Path, engines: Sequence[str], work: Path) -> None:
        """Take the artifact of *import*, the engines to try, and a folder for inputs."""
        self._imported, self.engines, self._work = imported, engines, work
        self._asked = 0

    def ask(
        self, wanted: Sequence[Case], model: Path | None = None
    ) -> tuple[list[ReferenceAnswer], Expected]:
        """Return what the reference computes for each case; it may refuse an edge.

        `model` is the folder of another reference than that of *import*. Raises ModelError where
        the model itself can not run at the sizes of a case.
        """
        paths = []
        for case in wanted:
            paths.append(self._work / f"{self._asked}.safetensors")
            arrays.save(case.arrays, paths[-1])
            self._asked += 1
        pairs = list(zip(wanted, paths, strict=True))
        optional = [path for case, path in pairs if case.edge]
        sized = [path for case, path in pairs if case.sizes]
        expected = reference.expect(self.engines, model or self._imported, paths, optional, sized)
        self.engines = tuple(one for one in self.engines if one not in expected.failed)
        answers = [_read_answer(file, expected) for file in expected.files]
        for path in (*paths, *expected.files):
            path.unlink(missing_ok=True)
        for case, answer in zip(wanted, answers, strict=True):
            if answer.refusal is not None and not case.edge:
                engine = append_sizes(expected.engine, case.sizes)
                raise ModelError(
                    f"{engine} can not run the model: {answer.refusal}; "
                    "model.dimensions has to leave such sizes out, by min, max or multiple"
                )
        return answers, expected

    def others(self) -> Iterator["Oracle"]:
        """Yield an oracle of each engine behind the first one, which may contradict it."""
        for engine in self.engines[1:]:
            yield Oracle(self._imported, (engine,), self._work)

    def plain(self) -> "Oracle":
        """Return the oracle that runs the plain loops of TVM."""
        return Oracle(self._imported, (reference.PLAIN,), self._work)

    def opinions(self, wanted: Sequence[Case]) -> list[ReferenceAnswer | None]:
        """Return the outputs for each case; None where the reference fails."""
        try:
            answers, _ = self.ask([replace(case, edge=True) for case in wanted])
        except AutopipeError:
            return [None] * len(wanted)
        return [answer if answer.refusal is None else None for answer in answers]

    def better(
        self, drawn: Iterator[Case], answer: ReferenceAnswer
    ) -> tuple[Case, ReferenceAnswer] | None:
        """Return the one of other inputs on which most is finite; None if that is no more."""
        if compute_finite_share(answer) == 1:
            return None
        others = list(drawn)
        found = max(zip(others, self.ask(others)[0], strict=True), key=_measure_usefulness)
        return found if _measure_usefulness(found) > compute_finite_share(answer) else None

    def moved(self, case: Case, seeds: Sequence[int], share: float) -> Iterator[ReferenceAnswer]:
        """Yield what the reference computes for a case with its weights moved, seed by seed."""
        optional = Case(case.name, edge=True, arrays=case.arrays)
        for seed in seeds:
            folder = self._work / f"moved-{seed}"
            if folder.exists() or write_moved_weights(self._imported, folder, seed, share):
                yield from self.ask([optional], folder)[0]


def compute_finite_share(answer: ReferenceAnswer) -> float:
    """Return which part of the outputs is finite, from 0 to 1."""
    shares = [float(np.isfinite(array).mean()) for array in answer.values() if array.size]
    return sum(shares) / len(shares) if shares else 1.0


def _read_answer(file: Path, expected: Expected) -> ReferenceAnswer:
    answer = ReferenceAnswer()
    answer.refusal = expected.refused.get(file)
    answer.engine = expected.engines.get(file, expected.engine)
    if answer.refusal is None:
        with safe_open(file, framework="np") as stored:
            answer.update((name, stored.get_tensor(name)) for name in expected.outputs)
    return answer


def _measure_usefulness(drawn: tuple[Case, ReferenceAnswer]) -> float:
    return compute_finite_share(drawn[1])
