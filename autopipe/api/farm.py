"""What a user asks of a farm: to schedule, to work, certificates, and who is there."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from autopipe.api.doctor import Diagnosis
from autopipe.config import tuning
from autopipe.config.load import load
from autopipe.config.problem import format_value
from autopipe.config.tuning import Reach
from autopipe.errors import AutopipeError, ConfigError
from autopipe.farm import certificates
from autopipe.farm.farm import Farm, FarmWorker
from autopipe.farm.joining import Joining
from autopipe.report.units import format_plural

__all__ = [
    "Joining",
    "check_address",
    "check_label",
    "describe_workers",
    "diagnose_farm",
    "make_certificates",
    "schedule",
    "work",
]  # fmt: skip

_SOON: Final = 30
"""Days before the end of a certificate when that is told."""


def check_address(text: str) -> str:
    """Return the address of a scheduler as it is. Raises ConfigError."""
    try:
        return tuning.check_scheduler_address(text)
    except ValueError as error:
        raise ConfigError(f"{text} {error}") from None


def check_label(text: str) -> str:
    """Return the label of a kind of machines as it is. Raises ConfigError."""
    try:
        return TypeAdapter(tuning.Label).validate_python(text)
    except ValidationError:
        raise ConfigError(f"{text!r} is no label; letters, digits, `.`, `_` and `-`") from None


def schedule(listen: str, folder: Path | None, tell: Callable[[str], None]) -> None:
    """Be the scheduler of a farm until SIGTERM. Raises ConfigError and SetupError."""
    from autopipe.farm import scheduler

    scheduler.run_scheduler(check_address(listen), None if folder is None else str(folder), tell)


def work(joining: Joining, tell: Callable[[str], None]) -> None:
    """Be a worker of a farm until SIGTERM. Raises SetupError."""
    from autopipe.farm import worker

    worker.run_worker(joining, tell)


def make_certificates(folder: Path) -> list[str]:
    """Make the certificates of a new farm; return lines that say so. Raises SetupError."""
    made = certificates.make_certificates(folder)
    told = f"copy {folder} to the scheduler, every worker and whoever tunes"
    return [*(f"wrote {path}" for path in made), f"{told}; they end in {certificates.DAYS} days"]


def diagnose_farm(scheduler: str, folder: Path | None) -> Iterator[Diagnosis]:
    """Yield what `doctor --cluster` says of a farm: certificates, scheduler, and who is there."""
    reach = Reach(
        scheduler=check_address(scheduler), certificates=None if folder is None else str(folder)
    )
    if scheduler.startswith("tls://"):
        yield _diagnose_certificates(folder or certificates.find_default_directory())
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
        yield Diagnosis("ok", format_value(label, 12), _describe_machines(workers))
    for refused in farm.refused:
        yield Diagnosis("warn", "refused", format_value(refused, 500), "bring it up to date")


def describe_workers(
    file: Path, overrides: Sequence[str] = (), build: str | None = None
) -> str | None:
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
        f"{format_plural(len(farm.own), 'worker')} of label {measure.label}, {busy} trials in "
        "their hands"
    )


def _diagnose_certificates(folder: Path) -> Diagnosis:
    try:
        left = certificates.count_days_left(certificates.check_folder(folder))
    except (AutopipeError, ValueError, ImportError) as error:
        return Diagnosis("fail", "certificate", str(error), f"`{tuning.CERTIFY}`")
    state, advice = "ok", ""
    if left < _SOON:
        state, advice = "warn" if left >= 0 else "fail", "make new ones for the whole farm"
    return Diagnosis(state, "certificate", f"{folder}: ends in {left} days", advice)  # type: ignore[arg-type]


def _describe_machines(workers: Sequence[FarmWorker]) -> str:
    """Say how many machines of a kind there are, and how a pipeline file names that kind."""
    first, busy = workers[0].facts, sum(worker.orders for worker in workers)
    lacks = [f"-{feature}" for feature in str(first["processor"]["lacks"]).split()]
    mattr = f", mattr: [{', '.join(lacks)}]" if lacks else ""
    device = first["device"]
    return format_value(
        f"{format_plural(len(workers), 'worker')}, {busy} trials in their hands; {device['cpu']};"
        f" target: {{mcpu: {first['processor']['mcpu']}{mattr}, num_cores: {device['cores']}}}",
        2000,
    )
