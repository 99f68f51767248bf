"""What travels: orders and answers, as JSON. What comes back is believed in nothing."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final, Literal, Self

from autopipe import foreign
from autopipe.measure.measurement import Measurement, Surroundings, to_measurement

MESSAGE: Final = 1 << 24
"""Bytes of a message between a scheduler, workers and runs, and of the answer of a bench."""

Do = Literal["time", "rounds", "check", "loops"]

_LONGEST: Final = 2000
"""Characters of an error that are worth keeping."""

_MOST: Final = 10_000
"""Times that a candidate may have."""


@dataclass(frozen=True, slots=True)
class RemoteCandidate:
    """A schedule, as another machine makes it."""

    workload: str
    """The unscheduled module, as TVM's JSON."""
    implementation: str
    schedule: str
    """As `replay` reads it: a trace, or a template and its knobs."""
    surroundings: Surroundings | None = None
    """How a model calls it; null where it is timed in a loop of its own."""


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """What a worker is asked to do."""

    do: Do
    """`time` a candidate, time a few in `rounds`, `check` a candidate against its plain loops, or
    check these `loops` against themselves."""
    target: Mapping[str, Any]
    """The resolved facts of `Facet.TARGET`."""
    fast_algorithms: bool
    measure: Mapping[str, Any]
    """Section `tuning.measure` of the pipeline file."""
    touched: int
    candidates: tuple[RemoteCandidate, ...]
    best: float = math.inf
    """The time in seconds that a candidate has to beat."""
    count: int = 1
    """How many rounds."""

    def text(self) -> str:
        """Write it as JSON."""
        document = asdict(self)
        document["best"] = None if math.isinf(self.best) else self.best
        return json.dumps(document)

    def identity(self) -> str:
        """Digest what decides the answer: equal orders of several runs are done once for all.

        A time to beat counts by its power of two. It only says from when on a time may be coarse.
        """
        document = asdict(self)
        document["best"] = None if math.isinf(self.best) else math.frexp(self.best)[1]
        return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Read what `text` wrote. Raises ValueError, TypeError or LookupError for anything else."""
        document = foreign.parse_object(text)
        best = document.pop("best")
        candidates = tuple(map(_parse_candidate, document.pop("candidates")))
        return cls(**document, candidates=candidates, best=math.inf if best is None else best)


def _parse_candidate(document: Mapping[str, Any]) -> RemoteCandidate:
    called = document["surroundings"]
    known = called and Surroundings(
        int(called["touched"]),
        tuple(map(int, called["activations"])),
        tuple(map(int, called["weights"])),
    )
    workload, implementation, schedule = (
        str(document[name]) for name in ("workload", "implementation", "schedule")
    )
    return RemoteCandidate(workload, implementation, schedule, known or None)


@dataclass(frozen=True, slots=True)
class WorkAnswer:
    """What a worker says."""

    device: str
    """The fingerprint of the device that did it, and of the versions there."""
    measurements: tuple[Measurement, ...] = ()
    """One a candidate."""
    checked: Mapping[str, Any] | None = None
    """What came of a check, as `Checked` is told, or of its failure."""
    refused: str | None = None
    """Why the worker does nothing of this kind: it is another machine than it is taken for."""
    lost: str | None = None
    """Why this worker could not do it, although another one may."""
    by: str | None = None
    """Who has done it, as the scheduler says; nothing that a worker says of itself."""

    def text(self) -> str:
        """Write it as JSON."""
        said = asdict(self)
        return json.dumps({name: said[name] for name in said if name != "by"})

    @classmethod
    def read(cls, text: object, count: int) -> Self:
        """Read an answer about so many candidates. Raises ValueError for anything else."""
        if not isinstance(text, str):
            raise ValueError("no text")  # noqa: TRY004 -- its reader knows only this
        try:
            document = foreign.parse_object(text)
            found = tuple(map(_parse_measurement, document["measurements"]))
            checked = document["checked"]
            if checked is not None and not isinstance(checked, dict):
                raise ValueError("no verdict")
            reasons = (_parse_reason(document[name]) for name in ("refused", "lost"))
            answer = cls(str(document["device"])[:64], found, checked, *reasons)
        except (LookupError, TypeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        whole = answer.refused or answer.lost or checked is not None
        if len(found) != (0 if whole else count):
            raise ValueError(f"{len(found)} times for {count} candidates")
        return answer


def _parse_measurement(document: Mapping[str, Any]) -> Measurement:
    """Read a measurement. Raises ValueError for a time that no worker of ours says."""
    error, seconds = document["error"], document["seconds"]
    if error is not None:
        return Measurement(error=_parse_reason(error))
    if not 0 < len(seconds) <= _MOST:
        raise ValueError("no times")
    times: Sequence[float] = tuple(float(value) for value in seconds)
    found = to_measurement(tuple(times), cut=document["cut"] is True)
    if found.error is not None:
        raise ValueError(found.error)
    return found


def _parse_reason(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())[:_LONGEST]
