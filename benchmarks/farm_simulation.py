"""A farm, event by event: `benchmarks/farm.py` runs it with measured figures."""

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Final

BUILD: Final = 0.2
"""Seconds of a build that sleeps."""

RUN: Final = 0.1
"""Seconds for which a candidate is alone on its machine."""

HOUR: Final = 3600.0

_NOTICED: Final = 0.1
"""Seconds after which the end of a worker is known."""

_FROZEN: Final = 20.0
"""The same of one that says nothing any more."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    scheduler: float = 0.0006
    """Processor seconds of the scheduler for a trial; it has one thread."""
    agent: float = 0.0005
    """The same of the process that speaks to it, one a run."""
    worker: float = 0.0006
    """The same of a worker, besides building and timing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is simulated."""

    models: int = 1000
    trials: int = 1000
    """Of each model."""
    workers: int = 200
    cores: int = 2
    dying: float = 0.05
    """Part of the workers that die within an hour."""
    frozen: float = 0.1
    """Part of these that freeze, which shows after 20 s; the end of others shows at once."""
    again: float = 600.0
    """Seconds until Slurm or Kubernetes has started another one."""
    batch: int = 32
    search: float = 1.0
    """Seconds of a core in which a search proposes a batch, and learns."""
    searching: int = 64
    """Cores of the machines that the runs are on."""

    @property
    def service(self) -> float:
        """Seconds of a worker for a trial: builds go beside each other, times do not."""
        return BUILD / self.cores + RUN


@dataclass(slots=True)
class Modelled:
    """A model that is tuned."""

    left: int
    """Trials that were not proposed yet."""
    held: int = 0
    """Those that were proposed, and not handed out."""
    out: int = 0
    """Those that were handed out, and have no answer."""
    searching: bool = False


@dataclass(slots=True)
class Simulation:
    """Models, workers, and what is about to happen to them."""

    scene: Scene
    figures: Figures
    random: Random = field(default_factory=lambda: Random(0))  # noqa: S311 -- the same every time
    now: float = 0.0
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    """When, in which order, what, whose, and in which life of a worker."""
    count: int = 0
    models: list[Modelled] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
    """Models whose trials wait for a worker."""
    asking: deque[int] = field(default_factory=deque)
    """Models that wait for a core to search on."""
    searching: int = 0
    idle: deque[int] = field(default_factory=deque)
    serving: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Model and beginning of the trial of each worker."""
    lives: dict[int, int] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    free_at: float = 0.0
    """When the scheduler has handed out all that it was asked to."""
    worked: float = 0.0
    wasted: float = 0.0
    redone: int = 0
    deaths: int = 0
    ends: list[float] = field(default_factory=list)

    def run(self) -> Iterator[str]:
        """Tune all models; yield lines that say how that went."""
        scene = self.scene
        self.models = [Modelled(scene.trials) for _ in range(scene.models)]
        for number, model in enumerate(self.models):
            self._ask(number, model)
        for worker in range(scene.workers):
            self._born(worker)
        while len(self.ends) < scene.models:
            self._begin()
            self.now, _, what, whose, life = heapq.heappop(self.events)
            if life == self.lives.get(whose, 0) or what in {"proposed", "again"}:
                getattr(self, f"_{what}")(whose)
        yield from self._told()

    def _begin(self) -> None:
        """Begin searches on free cores, and trials on free workers."""
        while self.asking and self.searching < self.scene.searching:
            self.searching += 1
            self._at(self.scene.search, "proposed", self.asking.popleft())
        while self.queue and self.idle:
            number, worker = self.queue.popleft(), self.idle.popleft()
            self.free_at = max(self.free_at, self.now) + self.figures.scheduler
            begins = self.free_at - self.now
            self.serving[worker] = number, self.free_at
            seconds = self.scene.service * self.random.uniform(0.5, 1.5)
            self._at(begins + seconds, "served", worker)

    def _proposed(self, number: int) -> None:
        model = self.models[number]
        self.searching -= 1
        model.searching = False
        batch = min(self.scene.batch, model.left)
        model.left -= batch
        model.held += batch
        self._hand_out(number, model)

    def _served(self, worker: int) -> None:
        number, begun = self.serving.pop(worker)
        self.worked += self.now - begun
        self.idle.append(worker)
        model = self.models[number]
        model.out -= 1
        self._hand_out(number, model)
        if model.left and not model.searching and model.out + model.held <= self.scene.batch // 2:
            self._ask(number, model)
        elif not (model.left or model.out or model.held):
            self.ends.append(self.now)

    def _dies(self, worker: int) -> None:
        self.deaths += 1
        self.lives[worker] += 1
        self.dead.add(worker)
        frozen = self.random.random() < self.scene.frozen
        if worker in self.serving:
            number, begun = self.serving.pop(worker)
            self.wasted += max(0.0, self.now - begun)
            self.redone += 1
            self._at(_FROZEN if frozen else _NOTICED, "again", number)
        else:
            self.idle.remove(worker)
        self._at(self.scene.again, "born", worker)

    def _born(self, worker: int) -> None:
        self.dead.discard(worker)
        self.lives.setdefault(worker, 0)
        self.idle.append(worker)
        if self.scene.dying:
            self._at(self.random.expovariate(self.scene.dying / HOUR), "dies", worker)

    def _again(self, number: int) -> None:
        self.queue.appendleft(number)

    def _ask(self, number: int, model: Modelled) -> None:
        model.searching = True
        self.asking.append(number)

    def _hand_out(self, number: int, model: Modelled) -> None:
        """Hand out as many trials of a model as its share of the farm is, and two more."""
        slots = 2 * self.scene.cores * (self.scene.workers - len(self.dead))
        share = math.ceil(slots / max(1, self.scene.models - len(self.ends))) + 2
        some = min(model.held, max(0, share - model.out))
        model.held -= some
        model.out += some
        self.queue.extend([number] * some)

    def _at(self, seconds: float, what: str, whose: int) -> None:
        life = self.lives.get(whose, 0) if what in {"served", "dies", "born"} else 0
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, what, whose, life))

    def _told(self) -> Iterator[str]:
        scene, end = self.scene, self.ends[-1]
        rate = scene.models * scene.trials / end
        used = self.worked / end / scene.workers
        yield (
            f"{scene.models} models of {scene.trials} trials, {scene.workers} workers of"
            f" {scene.cores} cores, {scene.dying:.0%} dying an hour"
        )
        yield f"{rate:.0f} trials/s; {used:.0%} of the workers' time used"
        first, half, last = (each / HOUR for each in (self.ends[0], median(self.ends), end))
        yield f"first model after {first:.2f} h, half after {half:.2f} h, the last {last:.2f} h"
        wasted = self.wasted / max(self.worked, 1e-9)
        died = f"{self.deaths} workers died; {self.redone} trials done twice"
        yield f"{died}, {wasted:.4%} of the work"
        yield f"one scheduler could hand out {1 / self.figures.scheduler:.0f} trials/s"
