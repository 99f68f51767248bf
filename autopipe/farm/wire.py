"""Orders and answers as JSON. Answers are not trusted: every field is validated."""

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
"""Maximum length of an error."""

_MOST: Final = 10_000
"""Maximum number of times of a candidate."""


@dataclass(frozen=True, slots=True)
class RemoteCandidate:
    """A schedule, as another machine replays it."""

    workload: str
    """The unscheduled module, as TVM's JSON."""
    implementation: str
    schedule: str
    """The schedule in the format of `replay`: a trace, or a template and its knobs."""
    surroundings: Surroundings | None = None
    """How a model calls it; None if it is timed in a loop."""


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """A unit of work for a worker."""

    do: Do
    """`time` a candidate, time several in `rounds`, `check` a candidate against its plain loops,
    or check these `loops` against themselves."""
    target: Mapping[str, Any]
    """The resolved facts of `Facet.TARGET`."""
    fast_algorithms: bool
    measure: Mapping[str, Any]
    """Section `tuning.measure` of the pipeline file."""
    touched: int
    candidates: tuple[RemoteCandidate, ...]
    best: float = math.inf
    """The incumbent's time in seconds."""
    count: int = 1
    """Number of rounds."""

    def text(self) -> str:
        """Serialize the order as JSON."""
        document = asdict(self)
        document["best"] = None if math.isinf(self.best) else self.best
        return json.dumps(document)

    def identity(self) -> str:
        """Digest the fields that determine the answer: equal orders of several runs are shared.

        Of the time to beat only the power of two counts: it only sets the precision of a timing.
        """
        document = asdict(self)
        document["best"] = None if math.isinf(self.best) else math.frexp(self.best)[1]
        return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Parse the output of `text`. Raises ValueError, TypeError or LookupError otherwise."""
        document = foreign.parse_object(text)
        best = document.pop("best")
        candidates = tuple(map(_parse_candidate, document.pop("candidates")))
        return cls(**document, candidates=candidates, best=math.inf if best is None else best)


def _parse_candidate(document: Mapping[str, Any]) -> RemoteCandidate:
    section = document["surroundings"]
    surroundings = section and Surroundings(
        int(section["touched"]),
        tuple(map(int, section["activations"])),
        tuple(map(int, section["weights"])),
    )
    workload, implementation, schedule = (
        str(document[name]) for name in ("workload", "implementation", "schedule")
    )
    return RemoteCandidate(workload, implementation, schedule, surroundings or None)


@dataclass(frozen=True, slots=True)
class WorkAnswer:
    """The answer of a worker."""

    device: str
    """The fingerprint of its device and versions."""
    measurements: tuple[Measurement, ...] = ()
    """One a candidate."""
    checked: Mapping[str, Any] | None = None
    """The result of a check, a `Checked` as JSON, or its failure."""
    refused: str | None = None
    """Why the worker refuses orders of this kind: its machine does not fit the target."""
    lost: str | None = None
    """Why this worker failed, although another one may succeed."""
    by: str | None = None
    """Name of the worker, set by the scheduler and not by the worker."""

    def text(self) -> str:
        """Serialize the answer as JSON."""
        document = asdict(self)
        return json.dumps({name: document[name] for name in document if name != "by"})

    @classmethod
    def read(cls, text: object, count: int) -> Self:
        """Parse the answer for `count` candidates. Raises ValueError if it is invalid."""
        if not isinstance(text, str):
            raise ValueError("no text")  # noqa: TRY004 -- its reader knows only this
        try:
            document = foreign.parse_object(text)
            measurements = tuple(map(_parse_measurement, document["measurements"]))
            check_result = document["checked"]
            if check_result is not None and not isinstance(check_result, dict):
                raise ValueError("no verdict")
            reasons = (_parse_reason(document[name]) for name in ("refused", "lost"))
            answer = cls(str(document["device"])[:64], measurements, check_result, *reasons)
        except (LookupError, TypeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        has_no_times = answer.refused or answer.lost or check_result is not None
        if len(measurements) != (0 if has_no_times else count):
            raise ValueError(f"{len(measurements)} times for {count} candidates")
        return answer


def _parse_measurement(document: Mapping[str, Any]) -> Measurement:
    """Parse a measurement. Raises ValueError for a time that no worker sends."""
    error, seconds = document["error"], document["seconds"]
    if error is not None:
        return Measurement(error=_parse_reason(error))
    if not 0 < len(seconds) <= _MOST:
        raise ValueError("no times")
    times: Sequence[float] = tuple(float(value) for value in seconds)
    measurement = to_measurement(tuple(times), cut=document["cut"] is True)
    if measurement.error is not None:
        raise ValueError(measurement.error)
    return measurement


def _parse_reason(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())[:_LONGEST]
