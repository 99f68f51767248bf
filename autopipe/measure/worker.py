"""The work of a child: build candidates, wait for requests to time them, end."""

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
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
    """The candidates of a child, with its target and limits."""

    candidates: Sequence[Candidate]
    """The candidates that requests name by index."""
    target: "tvm.target.Target"
    cores: int
    """Threads the kernel runs on."""
    limits: Measure
    caches: "ModelCaches | None" = None
    """Brings caches into the state of a model; None to time in a loop."""

    def prepare(self, place: int) -> "Callable[[Sequence[object]], Callable[..., None]] | None":
        """Return the function that prepares the caches for calls of a candidate.

        None for no preparation.
        """
        surroundings = self._find_surroundings(place)
        if surroundings is None or self.caches is None:
            return None
        return partial(self.caches.before, surroundings=surroundings)

    def weights(self, place: int) -> tuple[int, ...]:
        """Return the positions of a kernel's arguments that lie in the memory of weights."""
        surroundings = self._find_surroundings(place)
        return surroundings.weights if surroundings else ()

    def _find_surroundings(self, place: int) -> Surroundings | None:
        """Return the surroundings of a candidate in its model; None to time it in a loop."""
        candidate = self.candidates[place]
        return candidate.surroundings if isinstance(candidate, Repeatable) else None


def serve_job(job: Job, link: Link) -> None:
    """Build and time candidates on the parent's request, until it closes the link.

    Called in a fresh fork. `[[place, ...]]` requests builds, each of which is answered by null.
    `[place, best, repeat]` requests a measurement of a built candidate, with the time to beat. A
    candidate that raises is answered by its failure, and others may follow.
    """
    gc.disable()  # it would traverse all objects of TVM, and copy their pages
    try:
        _close_other_files(link)
        first_to_go()
        # Imported here so that users of a measurement alone do not load TVM.
        from autopipe.compiler.library.kernel_threads import shorten_spin
        from autopipe.measure import device, timing

        timing.use_threads(job.cores)
        shorten_spin()
        place = device.prepare_device(job.target)
        if not device.is_off_host(place):  # CUDA reserves addresses for all memory
            limit_address_space(job.limits.memory << 20)
        kernels = _BuiltKernels(job, place)
        while True:
            for answer in kernels.answer_request(json.loads(link.receive())):
                link.write(answer)
    except BaseException as error:  # noqa: BLE001 - any error costs these trials only
        with suppress(EOFError):  # the parent may have closed the link
            link.write(failure.encode_failure(failure.describe_raised(error)))


class _BuiltKernels:
    """Builds and times kernels on the parent's requests."""

    def __init__(self, job: Job, device: "tvm.runtime.Device") -> None:
        self._job = job
        self._device = device
        self._kernels: dict[int, Kernel] = {}

    def answer_request(self, request: Sequence[Any]) -> Iterator[bytes]:
        """Yield the answers to a request, a line each."""
        if len(request) > 1:
            yield _answer_call(partial(self._time, *request))
            return
        (places,) = request
        if len(places) > 1:
            with suppress(BaseException):  # each is built alone then, and raises its own error
                self._build(places)
        for place in places:
            yield _answer_call(partial(self._build, [place]))

    def _build(self, places: Sequence[int]) -> None:
        """Build those candidates that are not built yet."""
        from autopipe.measure.build import build_kernels

        missing = [place for place in places if place not in self._kernels]
        modules = [self._job.candidates[place]() for place in missing]
        kernels = build_kernels(modules, self._job.target) if modules else []
        self._kernels.update(zip(missing, kernels, strict=True))

    def _time(self, place: int, best: float, repeat: int) -> dict[str, object]:
        """Time a built candidate."""
        from autopipe.measure.timing import TimedCall, time_call

        job = self._job
        limits = job.limits.model_copy(update={"repeat": repeat})
        call = TimedCall.of(self._kernels[place], self._device, job.weights(place))
        return asdict(time_call(call, limits, best, job.prepare(place)))


def _answer_call(work: Callable[[], object]) -> bytes:
    """Return the result of a function as a line; its failure is an answer, too."""
    try:
        return failure.encode_answer(work())
    except BaseException as error:  # noqa: BLE001 - any error costs this trial only
        return failure.encode_failure(failure.describe_raised(error))


def _close_other_files(link: Link) -> None:
    """Close all inherited files, so that the child cannot write to them."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    link_file = link.fileno()
    os.closerange(3, link_file)
    os.closerange(link_file + 1, 1 << 16)
