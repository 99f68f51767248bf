"""The runner `dask`: candidates are built and timed on the machines of a farm."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import Final

import tvm

from autopipe.compiler.tvm_probe import examine
from autopipe.config.problem import shown
from autopipe.environment.facet import Facet
from autopipe.errors import SetupError
from autopipe.farm.bench import here
from autopipe.farm.facts import fingerprint, versions
from autopipe.farm.farm import Farm, absent, kind_of
from autopipe.farm.wire import RemoteCandidate, WorkAnswer, WorkOrder
from autopipe.measure.local import Local
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import SECONDS
from autopipe.safety.job import Piece
from autopipe.tuning.runners.farm_checker import FarmChecker, accepted, same
from autopipe.tuning.runners.opinions import Doubts, Opinion, Witnesses, agree, believed
from autopipe.tuning.runners.runner import Wanted

_CHECK: Final = 2 * SECONDS
"""Seconds in which a check has ended: a schedule is made, and run beside its plain loops."""


class DaskRunner:
    """Hands candidates to the workers of one label."""

    def __init__(self, farm: Farm, wanted: Wanted) -> None:
        """Take a farm whose workers are all of one kind."""
        self._farm = farm
        self._limits = wanted.measure
        self.tell: Callable[[int, Measurement], None] | None = None
        self._texts: dict[int, tuple[tvm.IRModule, str]] = {}
        self._wanted = wanted
        self.doubts = Doubts(farm.shun)
        self._own: Local | None = None
        self._alike: bool | None = None
        self._told: set[tuple[str, ...]] = set()
        worker = kind_of(farm, versions(wanted.facts))
        self._device = fingerprint(worker.facts)
        farm.expect(self._device)
        self.device: Mapping[str, object] = worker.facts["device"]
        self.checker = FarmChecker(self)
        self._blank = WorkOrder(
            "time", wanted.facts[Facet.TARGET], wanted.conditions.fast_algorithms,
            wanted.measure.model_dump(mode="json"), wanted.touched, (),
        )  # fmt: skip

    @property
    def width(self) -> int:
        """How many candidates the farm has in its hands at a time."""
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
        rivals: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:
        """Hand all of them out at once, and yield what comes back in the order in which it does."""
        # they are timed beside each other, and given up where the time ends
        del rivals, until
        patience = max(self._limits.build_timeout, self._limits.run_timeout)
        places = {}
        for place, candidate in enumerate(candidates):
            order = replace(self._blank, candidates=(self._remote(candidate),), best=best)
            places[self._farm.submit(order, patience, self._teller(place))] = place
        return self._measured(places)

    def _teller(self, place: int) -> Callable[[WorkAnswer | str], None]:
        """Return who is told of an answer before anybody waits for it."""
        tell = self.tell

        def told(answer: WorkAnswer | str) -> None:
            if tell is not None and not (isinstance(answer, WorkAnswer) and answer.refused):
                tell(place, *_measurements(answer, 1))

        return told

    def _measured(self, places: dict[int, int]) -> Generator[tuple[int, Measurement]]:
        try:
            while places:
                for number, answer in self._farm.answered(places).items():
                    (found,) = _measurements(answer, 1)
                    yield places.pop(number), found
        finally:
            self._farm.cancel(places)

    @property
    def witnesses(self) -> int:
        """How many others can be asked what one worker says."""
        return max(0, self.workers - 1) + (self._here() is not None)

    def rounds(self, candidates: Sequence[Repeatable], count: int) -> list[Measurement]:
        """Have two workers time all of them in turn, and a third where these disagree.

        Each does so alone. Who contradicts two others is in `doubts` from then on.
        """
        opinion, why = self._opinion(self._timers(candidates, count, self._here), candidates)
        return opinion.measurements if opinion else _measurements(why, len(candidates))

    def witnessed(self, candidates: Sequence[Repeatable]) -> Opinion | None:
        """Return what two workers say of candidates; null where no two can be asked."""
        timers = self._timers(candidates, 1, lambda: None)
        return self._opinion(timers, candidates)[0] if self.workers > 1 else None

    def confront(self, worker: str, candidate: Repeatable, why: str) -> None:
        """Have a worker time a candidate again beside two others; doubt it if it alone differs."""
        witnesses, _ = self._timers([candidate], 1, self._here)
        said = witnesses.beside(worker)
        if said and worker in believed(said).odd:
            self.doubts.add(worker, why)

    def _timers(
        self, candidates: Sequence[Repeatable], count: int, here: Callable[[], Local | None]
    ) -> tuple[Witnesses[list[Measurement]], list[str]]:
        """Return who can be asked for times, and where it is noted why somebody could not."""
        some = tuple(map(self._remote, candidates))
        order = replace(self._blank, do="rounds", candidates=some, count=count)
        limits = self._limits
        patience = limits.build_timeout * len(some) + limits.run_timeout * count * len(some)
        failed = ["nobody is there"]

        def asked(groups: Sequence[Sequence[str]]) -> dict[str, list[Measurement]]:
            answers = self._asked(order, patience, groups, failed)
            return {name: _measurements(answer, len(some)) for name, answer in answers.items()}

        def own() -> list[Measurement] | None:
            local = here()
            return None if local is None else local.rounds(candidates, count)

        return Witnesses(self._names, asked, own, agree), failed

    def _opinion(
        self,
        timers: tuple[Witnesses[list[Measurement]], list[str]],
        candidates: Sequence[Repeatable],
    ) -> tuple[Opinion | None, str]:
        """Return what is believed of candidates, or why nobody has said anything."""
        witnesses, failed = timers
        said = witnesses.said()
        if not said:
            return None, failed[-1]
        opinion = believed(said)
        for name in opinion.odd:
            self.doubts.add(name, "two others say that its times are not true")
        if opinion.apart:
            self.doubts.undecided |= {candidate.task for candidate in candidates}
            self._tell_apart(opinion.apart, "the slower times count")
        return opinion, ""

    def check(self, piece: Piece, *, loops: bool = False) -> dict[str, WorkAnswer]:
        """Have two workers check a schedule against its plain loops, or these against themselves.

        A third is asked where they disagree.
        """
        given = RemoteCandidate(self._text(piece.workload), piece.implementation, piece.schedule)
        order = replace(self._blank, do="loops" if loops else "check", candidates=(given,))

        def asked(groups: Sequence[Sequence[str]]) -> dict[str, WorkAnswer]:
            return self._asked(order, _CHECK, groups, [])

        return Witnesses(self._names, asked, lambda: None, same).said()

    def _names(self) -> list[str]:
        names = [worker.name for worker in self._farm.own]
        SystemRandom().shuffle(names)
        return names

    def _tell_apart(self, who: tuple[str, ...], what: str) -> None:
        if tuple(sorted(who)) not in self._told:
            self._told.add(tuple(sorted(who)))
            names = " and ".join(map(shown, sorted(who)))
            text = f"{names} disagree, and nobody else can tell who is right: {what}"
            self._wanted.emit(Warn(stage="tune", message=text))

    def _asked(
        self, order: WorkOrder, patience: float, groups: Sequence[Sequence[str]], failed: list[str]
    ) -> dict[str, WorkAnswer]:
        """Have one worker of each group do an order, and return their answers by their names."""
        open_ones = {self._farm.submit(order, patience, among=group) for group in groups}
        found: dict[str, WorkAnswer] = {}
        while open_ones:
            for number, answer in self._farm.answered(open_ones).items():
                open_ones.discard(number)
                if isinstance(answer, str):
                    failed.append(answer)
                else:
                    found[str(answer.by)] = accepted(answer)
        return found

    def _here(self) -> Local | None:
        """Return who measures on this machine, if it is of the workers' kind in all they say."""
        if self._alike is None:
            facts = here(examine({}, lambda _: None))
            self._alike = fingerprint(facts) == self._device
            if self._alike:
                wanted = self._wanted
                self._own = Local(
                    wanted.conditions.target, wanted.conditions.hardware.cores, wanted.measure,
                    wanted.turn, wanted.touched,
                )  # fmt: skip
        return self._own

    def close(self) -> None:
        """Give up what is open."""
        self._farm.close()
        if self._own is not None:
            self._own.close()

    def _remote(self, candidate: Repeatable) -> RemoteCandidate:
        assert candidate.workload is not None  # noqa: S101 -- `Trials` says it of each
        text = self._text(candidate.workload)
        return RemoteCandidate(
            text, candidate.implementation, candidate.schedule, candidate.surroundings
        )

    def _text(self, module: tvm.IRModule) -> str:
        """Return a module as JSON; it is kept, so that no other one gets its id."""
        if id(module) not in self._texts:
            self._texts[id(module)] = module, tvm.ir.save_json(module)
        return self._texts[id(module)][1]


def open_runner(wanted: Wanted) -> DaskRunner:
    """Return who measures on a farm, once there is a worker.

    Raises SetupError where there is no scheduler, nobody comes, or those who are there do not fit.
    """

    def warn(text: str) -> None:
        wanted.emit(Warn(stage="tune", message=text))

    assert wanted.measure.label is not None  # noqa: S101 -- the pipeline file has said it
    farm = Farm(wanted.reach, wanted.measure.label, warn)
    try:
        _wait(farm, wanted)
        return DaskRunner(farm, wanted)
    except BaseException:
        farm.close()
        raise


def _wait(farm: Farm, wanted: Wanted) -> None:
    until = time.monotonic() + wanted.reach.wait_timeout
    told = False
    while not farm.own:
        if time.monotonic() >= until:
            raise SetupError(f"{absent(farm)} within {wanted.reach.wait_timeout:g} s")
        if not told:
            told = True
            wanted.emit(Progress(stage="tune", message=f"{absent(farm)}: waiting for one"))
        farm.pump(1.0)


def _measurements(answer: WorkAnswer | str, count: int) -> list[Measurement]:
    """Return what an answer says of so many candidates. Raises TargetError where it refuses."""
    if isinstance(answer, str):
        return [Measurement(error=f"no worker could do it: {answer}")] * count
    return [replace(found, by=answer.by) for found in accepted(answer).measurements]
