"""Eight processes at once, on one store and one file of records."""

import multiprocessing
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from autopipe.pipeline.stage import Context, Need
from autopipe.records.identity import digest_module
from autopipe.records.store import RecordStore
from autopipe.store.artifact import Kind
from autopipe.store.canonical import digest_json
from autopipe.store.gc import verify_store
from autopipe.store.store import open_store
from tests.pipeline.fakes import Fake, Read, Upper, go
from tests.records.written import HERE, record

PROCESSES = 8
TASKS = 3
"""Workloads of a model. All models have the hashes of the first in common, as if they collided."""


class Tasks(Fake, frozen=True):
    """Keeps records of each task of its model, one at a time, as tuning does."""

    name: ClassVar[str] = "tune"
    produces: ClassVar[Kind] = Kind.RECORDS
    needs: ClassVar[Mapping[str, Need]] = {"lower": Need(Kind.LOWERED)}

    def run(self, ctx: Context) -> str:
        model = (ctx.inputs["lower"] / "sub" / "text").read_text()
        with RecordStore.open(ctx.records, pytest.fail) as store:
            for task in range(TASKS):
                name = "00" if task == 0 else digest_json([model, task])[:16]
                for trial in range(5):
                    made = record((1.0 + trial,), workload=name, schedule=f"{model} {task}")
                    store.add(HERE, module(model, task), [made])
        (ctx.out / "records").write_text(model * TASKS)
        return ""


def module(model: str, task: int) -> str:
    return f'{{"root": "{model} {task}"}}'


def one(source: Path, root: Path, start: Any, answers: Any) -> None:
    start.wait()
    _, made = go([Read(path=source), Upper(), Tasks()], root)
    answers.put((source.name, sorted(artifact.digest for artifact in made.values())))


def run(folder: Path, models: int) -> dict[str, set[tuple[str, ...]]]:
    """Run so many models in all processes at the same time; return the digests each came to."""
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(PROCESSES), context.SimpleQueue()
    sources = [folder / f"model-{n}" for n in range(models)]
    for source in sources:
        source.write_text(source.name)
    each = [
        context.Process(
            target=one, args=(sources[n % models], folder / "store", start, answers), daemon=True
        )
        for n in range(PROCESSES)
    ]
    with warnings.catch_warnings():  # numpy, where another test has imported it, has threads
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in each:
            process.start()
    found: dict[str, set[tuple[str, ...]]] = {}
    for process in each:
        process.join(60)
        assert process.exitcode == 0
        name, digests = answers.get()
        found.setdefault(name, set()).add(tuple(digests))
    return found


@pytest.mark.parametrize("models", [1, 3, 8])
@pytest.mark.parametrize(
    "turn", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
@pytest.mark.fault("C9", "C10", "C16", "G4")
def test_eight_runs_at_once_end_right(tmp_path: Path, models: int, turn: int) -> None:
    found = run(tmp_path, models)
    assert len(found) == models
    assert all(len(digests) == 1 for digests in found.values()), "the same model, the same digests"
    with open_store(tmp_path / "store") as store:
        assert verify_store(store) == (3 * models, [])
    assert os.listdir(tmp_path / "store" / "tmp") == []  # noqa: PTH208
    with RecordStore.view(tmp_path / "store" / "records" / "records.sqlite") as records:
        every = records.every()
        assert records.damaged == 0
    assert len(every) == models * TASKS * 5, "each stage was done once"
    for each in every:
        model, task = each.record.schedule.split()
        assert each.identity == digest_module(module(model, int(task)))
        if task != "0":
            assert each.record.workload == digest_json([model, int(task)])[:16]
