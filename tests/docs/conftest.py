"""A pipeline that was run, and commands that need not import everything anew."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.docs import warm as server
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.commands import Project
from tests.support import kept, shared

Warm = Callable[..., Path]


@pytest.fixture(scope="package")
def warm() -> Iterator[Warm]:
    """Return where commands are that import no more; `ours=False` has them import our modules."""
    with ExitStack() as open_:

        @cache
        def start(*, ours: bool = True) -> Path:
            preload = (*kept.PRELOADED, "autopipe.cli.app") if ours else ()
            return open_.enter_context(server.commands((*preload, *server.THEIRS)))

        yield start


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """A folder where `pipelines/mlp.yaml` was run, with few trials: pipelines, dist and store."""
    return shared.once(tmp_path_factory, "built", lambda folder: _build(folder, warm()))


def _build(folder: Path, commands: Path) -> None:
    (folder / "project" / "pipelines" / "models").mkdir(parents=True)
    shutil.copy(ROOT / "pipelines/models/mlp.onnx", folder / "project/pipelines/models")
    text = (ROOT / "pipelines" / "mlp.yaml").read_text()
    few = text.replace("{trials: 128,", "{trials: 6,")
    assert few != text
    (folder / "project/pipelines/mlp.yaml").write_text(
        f"{few}  batch: 2\n  measure: {{repeat: 2, min_repeat: 1ms}}\nbenchmark: {{against: []}}\n"
    )
    save = "import numpy; numpy.save('x.npy', numpy.ones((8, 128), 'float32'))"
    subprocess.run([sys.executable, "-c", save], cwd=folder / "project", check=True)
    (block,) = blocks_of("```sh\nautopipe run pipelines/mlp.yaml\n```\n", ROOT / "README.md")
    Project(folder / "project", folder / "store", commands).run(block)
