"""Paths of a lock and of the records beside it."""

from pathlib import Path


def lock_of(pipeline: Path, build: str | None = None) -> Path:
    """Return the path of the lock of a pipeline file, or of one of its builds."""
    return pipeline.with_suffix(".lock" if build is None else f".{build}.lock")


def find_records_path(lock: Path) -> Path:
    """Return the path of the records of a lock."""
    return lock.with_suffix(".records.jsonl")
