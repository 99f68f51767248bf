"""What a child does: build one candidate, wait for its turn, time it, end."""

import gc
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from autopipe.config.tuning import Measure
from autopipe.measure.measurement import Candidate, Repeatable, Surroundings
from autopipe.processes import failure
from autopipe.processes.bounds import bound, first_to_go
from autopipe.processes.link import Link

if TYPE_CHECKING:
    import tvm

    from autopipe.measure.caches import ModelCaches


@dataclass(frozen=True, slots=True)
class Job:
    """What a child has to do."""

    candidate: Candidate
    target: "tvm.target.Target"
    cores: int
    """Threads the kernel runs on."""
    limits: Measure
    caches: "ModelCaches | None" = None
    """What brings caches into the state that a model leaves; null to time in a loop."""

    @property
    def surroundings(self) -> Surroundings | None:
        """How a model calls the candidate; null where it is timed in a loop of its own."""
        return self.candidate.surroundings if isinstance(self.candidate, Repeatable) else None

    @property
    def prepare(self) -> "Callable[[Sequence[object]], Callable[..., None]] | None":
        """What is done before each call with certain arguments; null for nothing."""
        if self.surroundings is None or self.caches is None:
            return None
        return partial(self.caches.before, surroundings=self.surroundings)

    @property
    def weights(self) -> tuple[int, ...]:
        """Arguments of the kernel that lie in memory as weights do, by position."""
        return self.surroundings.weights if self.surroundings else ()


def serve(job: Job, link: Link) -> None:
    """Build, say so, and time the candidate whenever told the best time so far, and how often.

    Called in a fresh fork. It answers null once the candidate is built, then a measurement each
    time that it is asked for one, or at any time how it has failed.
    """
    gc.disable()  # it would look through all that TVM is, and copy those pages
    try:
        _alone(link)
        first_to_go()
        # Imported here so that whoever only holds a measurement does not load TVM.
        from autopipe.compiler.library.kernel_threads import shorten_spin
        from autopipe.measure import build, device, timing

        timing.use_threads(job.cores)
        shorten_spin()
        place = device.prepare(job.target)
        if not device.elsewhere(place):  # CUDA reserves addresses for all memory there is
            bound(job.limits.memory << 20)
        kernel = build.build(job.candidate(), job.target)
        link.write(failure.answer(None))
        while True:
            best, repeat = json.loads(link.receive())
            limits = job.limits.model_copy(update={"repeat": repeat})
            found = timing.time_kernel(kernel, place, limits, best, job.prepare, job.weights)
            link.write(failure.answer(asdict(found)))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this trial only
        with suppress(EOFError):  # nobody may listen any more
            link.write(failure.complaint(failure.raised(error)))


def _alone(link: Link) -> None:
    """Keep the child from reaching or flooding anybody else."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    own = link.fileno()
    os.closerange(3, own)
    os.closerange(own + 1, 1 << 16)
