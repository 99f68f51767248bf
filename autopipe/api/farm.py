"""What a user asks of a farm: to schedule, to work, certificates, and who is there."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from autopipe.api.doctor import Diagnosis
from autopipe.config import tuning
from autopipe.config.load import load
from autopipe.config.problem import shown
from autopipe.config.tuning import Reach
from autopipe.errors import AutopipeError, ConfigError
from autopipe.farm import certificates
from autopipe.farm.farm import Farm, FarmWorker
from autopipe.farm.joining import Joining
from autopipe.report.units import plural

__all__ = [
    "Joining", "address", "checked_label", "diagnose", "make_certificates", "present", "schedule",
    "work",
]  # fmt: skip

_SOON: Final = 30
"""Days before the end of a certificate when that is told."""


def address(text: str) -> str:
    """Return the address of a scheduler as it is. Raises ConfigError."""
    try:
        return tuning.scheduler(text)
    except ValueError as error:
        raise ConfigError(f"{text} {error}") from None


def checked_label(text: str) -> str:
    """Return the label of a kind of machines as it is. Raises ConfigError."""
    try:
        return TypeAdapter(tuning.Label).validate_python(text)
    except ValidationError:
        raise ConfigError(f"{text!r} is no label; letters, digits, `.`, `_` and `-`") from None


def schedule(listen: str, folder: Path | None, tell: Callable[[str], None]) -> None:
    """Be the scheduler of a farm until SIGTERM. Raises ConfigError and SetupError."""
    from autopipe.farm import scheduler

    scheduler.serve(address(listen), None if folder is None else str(folder), tell)


def work(joining: Joining, tell: Callable[[str], None]) -> None:
    """Be a worker of a farm until SIGTERM. Raises SetupError."""
    from autopipe.farm import worker

    worker.serve(joining, tell)


def make_certificates(folder: Path) -> list[str]:
    """Make the certificates of a new farm; return lines that say so. Raises SetupError."""
    made = certificates.make(folder)
    told = f"copy {folder} to the scheduler, every worker and whoever tunes"
    return [*(f"wrote {path}" for path in made), f"{told}; they end in {certificates.DAYS} days"]


def diagnose(scheduler: str, folder: Path | None) -> Iterator[Diagnosis]:
    """Yield what `doctor --cluster` says of a farm: certificates, scheduler, and who is there."""
    reach = Reach(
        scheduler=address(scheduler), certificates=None if folder is None else str(folder)
    )
    if scheduler.startswith("tls://"):
        yield _certificates(folder or certificates.default_directory())
    try:
        farm = Farm(reach, "")
    except AutopipeError as error:
        is_other = "not of one farm" in str(error)
        advice = "" if is_other else "start `autopipe scheduler` there"
        yield Diagnosis("fail", "scheduler", str(error), advice)
        return
    farm.close()
    yield Diagnosis("ok", "scheduler", f"{scheduler} answers")
    labels: dict[str, list[FarmWorker]] = defaultdict(list)
    for worker in farm.workers:
        labels[worker.label].append(worker)
    if not labels:
        advice = f"autopipe worker --scheduler {scheduler} --label NAME"
        yield Diagnosis("warn", "workers", "there are none", advice)
    for label, workers in sorted(labels.items()):
        yield Diagnosis("ok", shown(label, 12), _told(workers))
    for refused in farm.refused:
        yield Diagnosis("warn", "refused", shown(refused, 500), "bring it up to date")


def present(file: Path, overrides: Sequence[str] = (), build: str | None = None) -> str | None:
    """Say who is there to measure for a pipeline file; None where this machine does.

    Raises ConfigError.
    """
    section = load(file, overrides, build).tuning
    measure = section.measure if section else None
    if measure is None or measure.runner != "farm" or measure.label is None:
        return None
    try:
        farm = Farm(Reach.of(measure, file.absolute().parent), measure.label)
    except AutopipeError as error:
        return f"nobody is there: {error}"
    farm.close()
    busy = sum(worker.orders for worker in farm.own)
    return (
        f"{plural(len(farm.own), 'worker')} of label {measure.label}, {busy} trials in their hands"
    )


def _certificates(folder: Path) -> Diagnosis:
    try:
        left = certificates.days_left(certificates.check_folder(folder))
    except (AutopipeError, ValueError, ImportError) as error:
        return Diagnosis("fail", "certificate", str(error), f"`{tuning.CERTIFY}`")
    state, advice = "ok", ""
    if left < _SOON:
        state, advice = "warn" if left >= 0 else "fail", "make new ones for the whole farm"
    return Diagnosis(state, "certificate", f"{folder}: ends in {left} days", advice)  # type: ignore[arg-type]


def _told(workers: Sequence[FarmWorker]) -> str:
    """Say how many machines of a kind there are, and how a pipeline file names that kind."""
    first, busy = workers[0].facts, sum(worker.orders for worker in workers)
    lacks = [f"-{feature}" for feature in str(first["processor"]["lacks"]).split()]
    mattr = f", mattr: [{', '.join(lacks)}]" if lacks else ""
    device = first["device"]
    return shown(
        f"{plural(len(workers), 'worker')}, {busy} trials in their hands; {device['cpu']};"
        f" target: {{mcpu: {first['processor']['mcpu']}{mattr}, num_cores: {device['cores']}}}",
        2000,
    )
