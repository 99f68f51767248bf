"""What a child does: build candidates, wait for the turn of each, time it, end."""

import gc
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autopipe.config.tuning import Measure
from autopipe.measure.measurement import Candidate, Repeatable, Surroundings
from autopipe.processes import failure
from autopipe.processes.bounds import first_to_go, limit_address_space
from autopipe.processes.link import Link

if TYPE_CHECKING:
    import tvm

    from autopipe.measure.build import Kernel
    from autopipe.measure.caches import ModelCaches


@dataclass(frozen=True, slots=True)
class Job:
    """What a child has to do."""

    candidates: Sequence[Candidate]
    """What it may be asked to build and time, by place."""
    target: "tvm.target.Target"
    cores: int
    """Threads the kernel runs on."""
    limits: Measure
    caches: "ModelCaches | None" = None
    """What brings caches into the state that a model leaves; null to time in a loop."""

    def prepare(self, place: int) -> "Callable[[Sequence[object]], Callable[..., None]] | None":
        """Return what is done before each call of a candidate with certain arguments.

        Null for nothing.
        """
        surroundings = self._find_surroundings(place)
        if surroundings is None or self.caches is None:
            return None
        return partial(self.caches.before, surroundings=surroundings)

    def weights(self, place: int) -> tuple[int, ...]:
        """Return the arguments of a kernel that lie in memory as weights do, by position."""
        surroundings = self._find_surroundings(place)
        return surroundings.weights if surroundings else ()

    def _find_surroundings(self, place: int) -> Surroundings | None:
        """Return how a model calls a candidate; null where it is timed in a loop of its own."""
        candidate = self.candidates[place]
        return candidate.surroundings if isinstance(candidate, Repeatable) else None


def serve_job(job: Job, link: Link) -> None:
    """Build and time candidates as the parent asks, until it closes the link.

    Called in a fresh fork. `[place]` asks to build a candidate: the answer is null once it is
    built. `[place, best, repeat]` asks for a measurement of a built one, with the time that it has
    to beat. A candidate that raises is answered by how it has failed, and others may follow.
    """
    gc.disable()  # it would look through all that TVM is, and copy those pages
    try:
        _close_other_files(link)
        first_to_go()
        # Imported here so that whoever only holds a measurement does not load TVM.
        from autopipe.compiler.library.kernel_threads import shorten_spin
        from autopipe.measure import device, timing

        timing.use_threads(job.cores)
        shorten_spin()
        place = device.prepare_device(job.target)
        if not device.is_off_host(place):  # CUDA reserves addresses for all memory there is
            limit_address_space(job.limits.memory << 20)
        built = _BuiltKernels(job, place)
        while True:
            link.write(_answer_request(built, json.loads(link.receive())))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it costs these trials only
        with suppress(EOFError):  # nobody may listen any more
            link.write(failure.encode_failure(failure.describe_raised(error)))


class _BuiltKernels:
    """Answers what the parent asks for, with the kernels that were built."""

    def __init__(self, job: Job, device: "tvm.runtime.Device") -> None:
        self._job = job
        self._device = device
        self._kernels: dict[int, Kernel] = {}

    def build(self, place: int) -> None:
        """Build a candidate."""
        from autopipe.measure.build import build_kernel

        self._kernels[place] = build_kernel(self._job.candidates[place](), self._job.target)

    def time(self, place: int, best: float, repeat: int) -> dict[str, object]:
        """Time a candidate that was built."""
        from autopipe.measure.timing import time_kernel

        job, kernel = self._job, self._kernels[place]
        limits = job.limits.model_copy(update={"repeat": repeat})
        return asdict(
            time_kernel(kernel, self._device, limits, best, job.prepare(place), job.weights(place))
        )


def _answer_request(built: _BuiltKernels, request: Sequence[Any]) -> bytes:
    """Return the answer to a request as a line, or how the candidate has failed."""
    try:
        if len(request) > 1:
            return failure.encode_answer(built.time(*request))
        built.build(*request)
        return failure.encode_answer(None)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this trial only
        return failure.encode_failure(failure.describe_raised(error))


def _close_other_files(link: Link) -> None:
    """Keep the child from reaching or flooding anybody else."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    own = link.fileno()
    os.closerange(3, own)
    os.closerange(own + 1, 1 << 16)
