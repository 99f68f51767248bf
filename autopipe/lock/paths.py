"""Where a lock lies, and the records beside it."""

from pathlib import Path


def lock_of(pipeline: Path, build: str | None = None) -> Path:
    """Return where the lock of a pipeline file, or of one of its builds, is: beside it."""
    return pipeline.with_suffix(".lock" if build is None else f".{build}.lock")


def find_records_path(lock: Path) -> Path:
    """Return where the records are that a lock was written with."""
    return lock.with_suffix(".records.jsonl")
