"""What a child does: build one candidate, wait for its turn, time it, end."""

import gc
import json
import os
import resource
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

from autopipe.config.tuning import Measure
from autopipe.measure.measurement import Candidate, Measurement
from autopipe.processes.contained import bound
from autopipe.processes.lifeline import die_with_parent

_LONGEST = 2000
"""Characters of an error that are worth keeping."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child has to do."""

    candidate: Candidate
    target: object
    """TVM's target."""
    cores: int
    """Threads the kernel runs on."""
    limits: Measure


def serve(job: Job, link: Connection, parent: int) -> NoReturn:
    """Build, say so, and time the candidate whenever told the best time so far; never return.

    Called in a fresh fork. Messages are JSON: `null` once built, then a measurement each
    time that it is asked for one.
    """
    gc.disable()  # it would look through all that TVM is, and copy those pages
    try:
        _alone(link, parent)
        # Imported here so that whoever only holds a measurement does not load TVM.
        from autopipe.measure import build, device, timing

        timing.use_threads(job.cores)
        place = device.prepare(job.target)
        if not device.on_gpu(place):  # CUDA reserves addresses for all memory there is
            bound(job.limits.memory << 20)
        kernel = build.build(job.candidate(), job.target)
        _send(link, None)
        while True:
            best = json.loads(link.recv_bytes())
            _send(link, timing.time_kernel(kernel, place, job.limits, best))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this trial only
        _send(link, Measurement(error=f"{type(error).__name__}: {error}"[-_LONGEST:]))
    finally:  # nobody may listen any more; what the parent was in the middle of is not ours to end
        os._exit(0)


def _alone(link: Connection, parent: int) -> None:
    """Keep the child from reaching, flooding or outliving anybody else."""
    os.setpgid(0, 0)
    die_with_parent(parent)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    own = link.fileno()
    os.closerange(3, own)
    os.closerange(own + 1, 1 << 16)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(link: Connection, message: Measurement | None) -> None:
    document = None if message is None else asdict(message)
    link.send_bytes(json.dumps(document).encode())
