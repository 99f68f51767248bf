"""Pieces of work that need no machine of the target, and what is said of one that goes well."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from autopipe.compiler.library.kernel_threads import shorten_spin, use_threads
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.job import Piece, can_bound_memory, do
from autopipe.safety.reproduce import reproduce_failure
from autopipe.safety.verdict import Finding
from autopipe.schedules.engines import default
from tests.compiler.cuda_graphs import CONDITIONS as GPU
from tests.compiler.cuda_graphs import needs_nvcc
from tests.schedules.bad_schedules import doubled
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@needs_nvcc
def test_a_schedule_for_a_gpu_is_compiled_without_one():
    workload = doubled()
    planned = default.plan(workload, GPU)
    assert planned is not None
    assert do(Piece("compiling", "t", workload, scheduled=planned.module), GPU) is None


def test_only_what_runs_on_a_gpu_has_no_bound_on_its_memory():
    pieces = [Piece(doing, "t", doubled()) for doing in ("checking", "compiling")]
    assert [can_bound_memory(piece, GPU) for piece in pieces] == [False, True]
    assert [can_bound_memory(piece, CONDITIONS) for piece in pieces] == [True, True]


def check_in_fork(piece):
    """Run a kernel on two threads, and then check a piece in a child."""
    shorten_spin()
    use_threads(2)
    kernel = tvm.compile(piece.candidate, target=CONDITIONS.target)["main"]
    x = np.ones((4, 32), "float32")
    kernel(*map(tvm.runtime.tensor, (x, x)))
    with Child(lambda: lambda _: do(piece, CONDITIONS), seconds=20) as child:
        return child.ask()


def test_a_check_needs_no_workers_of_the_thread_that_was_forked():
    workload = doubled()
    schedule = Schedule(workload)
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedule.parallel(schedule.get_loops(block)[0])
    piece = Piece("checking", "t", workload, scheduled=schedule.mod)
    with ThreadPoolExecutor(1) as caller:  # whose pool ends with it
        assert caller.submit(check_in_fork, piece).result()["finding"] == Finding.RIGHT


def failing(how, log=""):
    return Failed(Failure(How.RAISED, how), log)


@pytest.mark.parametrize("doing", ["planning", "checking", "compiling"])
def test_what_goes_well_the_next_time_says_so(doing, tmp_path, capsys):
    workload = doubled()
    piece = Piece(doing, "t", workload, "static", scheduled=workload)
    folder = Path(failures(tmp_path).add(piece, failing("killed by SIGKILL", "the last\nwords")))
    record = json.loads((folder / "record.json").read_text())
    assert (record["how"], record["log"]) == ("killed by SIGKILL", ["the last", "words"])
    assert (record["seconds"], record["memory"]) == (contained.SECONDS, contained.MEMORY)
    assert reproduce_failure(folder) == 0
    assert capsys.readouterr().out == f"t, {doing} static on direct: it went well this time\n"


def test_the_same_failure_is_kept_once(tmp_path):
    kept = failures(tmp_path)
    piece = Piece("planning", "t", doubled(), "static")
    first, second = (kept.add(piece, failing(how)) for how in ("one way", "another"))
    other = kept.add(Piece("planning", "t", doubled(), "default"), failing("one way"))
    assert first == second != other
    assert [row.how for row in kept.listed["t"]] == ["one way", "another", "one way"]
    assert kept.format_count() == "; 3 failures put aside"
