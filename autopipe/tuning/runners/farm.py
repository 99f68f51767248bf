"""The runner `farm`: candidates are built and timed on the machines of a farm."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import tvm

from autopipe.environment.facet import Facet
from autopipe.errors import SetupError
from autopipe.farm.facts import fingerprint_device, list_versions
from autopipe.farm.farm import Farm, describe_absence, find_common_worker
from autopipe.farm.wire import Do, RemoteCandidate, WorkAnswer, WorkOrder
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import SECONDS
from autopipe.safety.job import Piece
from autopipe.tuning.runners.farm_checker import FarmChecker, check_answer
from autopipe.tuning.runners.runner import Wanted

_CHECK_SECONDS: Final = 2 * SECONDS
"""Seconds in which a check has ended: a schedule is made, and run beside its plain loops."""


class FarmRunner:
    """Hands candidates to the workers of one label."""

    def __init__(self, farm: Farm, request: Wanted) -> None:
        """Initialize from a farm of workers of one kind."""
        self._farm = farm
        self._limits = request.measure
        self.tell: Callable[[int, Measurement], None] | None = None
        self._texts: dict[int, tuple[tvm.IRModule, str]] = {}
        worker = find_common_worker(farm, list_versions(request.facts))
        farm.expect(fingerprint_device(worker.facts))
        self.device: Mapping[str, object] = worker.facts["device"]
        self.checker = FarmChecker(self.check)
        self._blank = WorkOrder(
            "time", request.facts[Facet.TARGET], request.conditions.fast_algorithms,
            request.measure.model_dump(mode="json"), request.touched, (),
        )  # fmt: skip

    @property
    def width(self) -> int:
        """How many candidates the farm holds at a time."""
        return self._farm.width

    @property
    def workers(self) -> int:
        """How many machines measure."""
        return len(self._farm.own)

    def measure(
        self,
        candidates: Sequence[Repeatable],
        best: float = math.inf,
        *,
        same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:
        """Submit all candidates at once, and yield measurements in the order of arrival."""
        # they are timed beside each other, and given up where the time ends
        del same_task, until
        patience = max(self._limits.build_timeout, self._limits.run_timeout)
        places = {}
        for place, candidate in enumerate(candidates):
            order = replace(
                self._blank, candidates=(self._to_remote_candidate(candidate),), best=best
            )
            places[self._farm.submit(order, patience, self._make_callback(place))] = place
        return self._yield_measurements(places)

    def _make_callback(self, place: int) -> Callable[[WorkAnswer | str], None]:
        """Create the callback that forwards an answer on arrival."""
        tell = self.tell

        def forward_answer(answer: WorkAnswer | str) -> None:
            if tell is not None and not (isinstance(answer, WorkAnswer) and answer.refused):
                tell(place, *_read_measurements(answer, 1))

        return forward_answer

    def _yield_measurements(self, places: dict[int, int]) -> Generator[tuple[int, Measurement]]:
        try:
            while places:
                for number, answer in self._farm.answered(places).items():
                    (measurement,) = _read_measurements(answer, 1)
                    yield places.pop(number), measurement
        finally:
            self._farm.cancel(places)

    def rounds(self, candidates: Sequence[Repeatable], count: int) -> list[Measurement]:
        """Time all candidates in turn on one worker, so that all times are of one machine."""
        limits = self._limits
        patience = (limits.build_timeout + limits.run_timeout * count) * len(candidates)
        order = replace(
            self._blank,
            do="rounds",
            candidates=tuple(map(self._to_remote_candidate, candidates)),
            count=count,
        )
        (answer,) = self._wait_for_answers([self._farm.submit(order, patience)])
        return _read_measurements(answer, len(candidates))

    def check(self, pieces: Sequence[Piece], do: Do) -> list[WorkAnswer | str]:
        """Check schedules on workers, one each; a text is the reason that none could."""
        orders = [
            replace(self._blank, do=do, candidates=(self._to_remote_piece(one),)) for one in pieces
        ]
        return self._wait_for_answers(
            [self._farm.submit(order, _CHECK_SECONDS) for order in orders]
        )

    def _wait_for_answers(self, numbers: Sequence[int]) -> list[WorkAnswer | str]:
        """Wait for the answers to orders. Raises TargetError where workers refuse them."""
        answers: dict[int, WorkAnswer | str] = {}
        while missing := [number for number in numbers if number not in answers]:
            answers |= self._farm.answered(missing)
        return [check_answer(answers[number]) for number in numbers]

    def _to_remote_piece(self, piece: Piece) -> RemoteCandidate:
        return RemoteCandidate(
            self._serialize_module(piece.workload), piece.implementation, piece.schedule
        )

    def close(self) -> None:
        """Cancel open orders, and disconnect."""
        self._farm.close()

    def _to_remote_candidate(self, candidate: Repeatable) -> RemoteCandidate:
        assert candidate.workload is not None  # noqa: S101 -- `Trials` sets it
        text = self._serialize_module(candidate.workload)
        return RemoteCandidate(
            text, candidate.implementation, candidate.schedule, candidate.surroundings
        )

    def _serialize_module(self, module: tvm.IRModule) -> str:
        """Return a module as JSON; it is kept, so that no other one gets its id."""
        if id(module) not in self._texts:
            self._texts[id(module)] = module, tvm.ir.save_json(module)
        return self._texts[id(module)][1]


def open_runner(request: Wanted) -> FarmRunner:
    """Open the runner of a farm, once a worker is connected.

    Raises SetupError if there is no scheduler, no worker connects, or the workers do not match.
    """

    def warn(text: str) -> None:
        request.emit(Warn(stage="tune", message=text))

    assert request.measure.label is not None  # noqa: S101 -- the pipeline file sets it
    farm = Farm(request.reach, request.measure.label, warn)
    try:
        _wait_for_workers(farm, request)
        return FarmRunner(farm, request)
    except BaseException:
        farm.close()
        raise


def _wait_for_workers(farm: Farm, request: Wanted) -> None:
    until = time.monotonic() + request.reach.wait_timeout
    is_reported = False
    while not farm.own:
        if time.monotonic() >= until:
            raise SetupError(f"{describe_absence(farm)} within {request.reach.wait_timeout:g} s")
        if not is_reported:
            is_reported = True
            request.emit(
                Progress(stage="tune", message=f"{describe_absence(farm)}: waiting for one")
            )
        farm.pump(1.0)


def _read_measurements(answer: WorkAnswer | str, count: int) -> list[Measurement]:
    """Read the measurements of `count` candidates from an answer. Raises TargetError if refused."""
    answer = check_answer(answer)
    if isinstance(answer, str):
        return [Measurement(error=f"no worker could do it: {answer}")] * count
    return [replace(found, by=answer.by) for found in answer.measurements]
