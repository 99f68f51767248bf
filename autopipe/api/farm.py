"""Check the options of a farm, create its certificates, and list its workers."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from autopipe.report.units import format_plural

_SOON: Final = 30
"""Days before the expiry of a certificate from which a warning is given."""


def check_address(text: str) -> str:
    """Validate the address of a scheduler and return it. Raises ConfigError."""
    try:
        return tuning.check_scheduler_address(text)
    except ValueError as error:
        raise ConfigError(f"{text} {error}") from None


def check_label(text: str) -> str:
    """Validate the label of a kind of machines and return it. Raises ConfigError."""
    try:
        return TypeAdapter(tuning.Label).validate_python(text)
    except ValidationError:
        raise ConfigError(f"{text!r} is no label; letters, digits, `.`, `_` and `-`") from None


def make_certificates(folder: Path) -> list[str]:
    """Create the certificates of a new farm; return the lines to print. Raises SetupError."""
    paths = certificates.make_certificates(folder)
    advice = f"copy {folder} to the scheduler, every worker and whoever tunes"
    return [*(f"wrote {path}" for path in paths), f"{advice}; they end in {certificates.DAYS} days"]


def diagnose_farm(scheduler: str, folder: Path | None) -> Iterator[Diagnosis]:
    """Yield the checks of `doctor --cluster`: certificates, scheduler, and workers."""
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
    for refusal in farm.refused:
        yield Diagnosis("warn", "refused", format_value(refusal, 500), "bring it up to date")


def describe_workers(
    file: Path, overrides: Sequence[str] = (), build: str | None = None
) -> str | None:
    """Describe the workers that measure for a pipeline file; None where this machine does.

    Raises ConfigError.
    """
    section = load(file, overrides, build).tuning
    measure = section.measure if section else None
    if measure is None or measure.runner != "farm" or measure.label is None:
        return None
    try:
        farm = Farm(Reach.of(measure, file.absolute().parent), measure.label)
    except AutopipeError as error:
        return f"the farm is unavailable: {error}"
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
    """Describe the workers of one kind, with the target that a pipeline file names them by."""
    first, busy = workers[0].facts, sum(worker.orders for worker in workers)
    lacks = [f"-{feature}" for feature in str(first["processor"]["lacks"]).split()]
    mattr = f", mattr: [{', '.join(lacks)}]" if lacks else ""
    device = first["device"]
    return format_value(
        f"{format_plural(len(workers), 'worker')}, {busy} trials in their hands; {device['cpu']};"
        f" target: {{mcpu: {first['processor']['mcpu']}{mattr}, num_cores: {device['cores']}}}",
        2000,
    )
