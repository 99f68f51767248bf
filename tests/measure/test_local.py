import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KIT = [sys.executable, "-m", "tests.measure.bad_candidates"]
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def found():
    start = time.monotonic()
    done = subprocess.run(
        KIT, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=True
    )
    trials = json.loads(done.stdout)
    return {
        "first": trials[0],
        "last": trials[-4],
        "printed": len(done.stdout) + len(done.stderr),
        "seconds": time.monotonic() - start,
        **{trial["name"]: trial for trial in trials},
    }


def test_a_good_candidate_has_a_time_for_each_repeat(found):
    for trial in (found["first"], found["last"]):
        assert trial["error"] is None
        assert len(trial["seconds"]) == 2
        assert all(0 < seconds < 1 for seconds in trial["seconds"])


def test_of_what_is_not_built_in_time_nothing_is_said(found):
    assert found["late"]["measured"] == 2


@pytest.mark.fault("D7", "D8", "G12")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("raises", "ValueError: no such schedule"),
        ("segfaults", "building crashed: SIGSEGV"),
        ("hangs", "building took longer than 4 s"),
        ("exits", "building crashed: ended with status 3"),
        ("quits", "SystemExit: 4"),
        ("eats_memory", "MemoryError: "),
        ("endless", "running took longer than 2 s"),
        ("divides_by_zero", "running crashed: SIGFPE"),
    ],
)
def test_a_bad_candidate_costs_that_trial_and_says_why(found, name, error):
    assert found[name]["error"] == error
    assert found[name]["seconds"] == []


def test_candidates_share_a_child_for_each_core(found):
    assert found["shared"] == {"name": "shared", "errors": [None] * 6, "children": 2}


def test_a_kernel_with_too_much_data_fails_by_itself(found):
    assert found["too_large"]["error"]


@pytest.mark.fault("D7")
def test_a_fork_does_not_keep_the_trial_waiting_beyond_its_deadline(found):
    assert "building" in found["forks"]["error"]


@pytest.mark.fault("D7")
def test_a_flood_of_output_reaches_nobody(found):
    assert found["floods"]["error"] is None
    assert found["printed"] < 100_000


@pytest.mark.fault("D7", "G12")
def test_deadlines_are_kept(found):
    assert found["seconds"] < 60


@pytest.mark.fault("E1")
def test_a_schedule_that_changes_the_result_is_a_wrong_answer(found):
    assert found["wrong"]["error"].startswith("WrongAnswer: off by up to 0.9")
    assert found["right"]["error"] is None


def test_a_candidate_that_can_not_win_is_cut_short_after_one_run(found):
    assert found["slow"]["cut"]
    assert len(found["slow"]["seconds"]) == 1
    assert not found["first"]["cut"]


def test_children_end_with_their_parent():
    with subprocess.Popen([*KIT, "hang"], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE) as kit:
        assert kit.stdout is not None
        parent = int(kit.stdout.readline())
        children = Path(f"/proc/{parent}/task/{parent}/children")
        child = _eventually(lambda: children.read_text(encoding="ascii").split())[0]
        kit.send_signal(signal.SIGKILL)
        kit.wait()
        _eventually(lambda: not Path("/proc", child).exists() or _state(child) == "Z")


def _state(pid):
    return Path("/proc", pid, "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def _eventually(holds):
    for _ in range(1000):
        if value := holds():
            return value
        time.sleep(0.01)
    pytest.fail("did not happen within 10 s")


def test_a_child_that_nobody_listens_to_ends_without_its_parents_cleanup(tmp_path):
    """It was forked in the middle of what the parent does, and must not do the rest of it."""
    from autopipe.config.tuning import Measure
    from autopipe.measure.worker import Job, serve_job
    from autopipe.processes.link import make_link_pair
    from autopipe.processes.start import fork_process

    ours, theirs = make_link_pair()
    ours.close()
    try:
        process = fork_process(lambda: serve_job(Job([lambda: 1 / 0], None, 1, Measure()), theirs))  # type: ignore[arg-type, list-item, return-value]
        assert process.wait(60) == 0
    except BaseException:
        (tmp_path / "cleaned up").touch()
        raise
    assert list(tmp_path.iterdir()) == []
