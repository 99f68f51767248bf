"""What is done with a checked-out pipeline and its lock, for several files of tests."""

import pytest

from autopipe.api import flow
from autopipe.errors import LockError
from autopipe.lock import file as files
from autopipe.lock import text
from autopipe.lock.mode import Mode
from autopipe.pipeline.events import Event, StageFinished, Warn


def run(folder, mode=Mode.AUTO, **options):
    """Run the pipeline and return what was told."""
    told: list[Event] = []
    flow.run(
        folder / "mlp.yaml", store=folder / "store", output=folder / "dist", mode=mode,
        emit=told.append, **options,
    )  # fmt: skip
    return told


def refused(folder, mode, **options):
    with pytest.raises(LockError) as caught:
        run(folder, mode, **options)
    assert caught.value.exit_code == 6
    return str(caught.value).splitlines()


def checked_in(folder):
    names = ("mlp.yaml", "mlp.lock", "mlp.records.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


def edit(folder, old, new, name="mlp.yaml"):
    before = (folder / name).read_text()
    assert old in before
    (folder / name).write_text(before.replace(old, new))


def resealed(folder, **fields):
    """Change fields of the lock as only a forger would."""
    lock = files.read_lock(folder / "mlp.lock").model_copy(update=fields)
    (folder / "mlp.lock").write_text(text.format_lock(lock))


def forget(folder, stage):
    """Have the store know nothing of a stage."""
    found = [
        path
        for path in (folder / "store/actions").glob("*.json")
        if f'"stage":"{stage}"' in path.read_text().replace(" ", "")
    ]
    assert found
    for path in found:
        path.unlink()


def finished(told):
    return {event.stage: event.summary for event in told if isinstance(event, StageFinished)}


def warnings(told):
    return [event.message for event in told if isinstance(event, Warn)]
