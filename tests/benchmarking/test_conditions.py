"""What else ran: counters are made up here, but for one test with programs that really burn."""

import os
import subprocess
import sys
import time

import pytest

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.benchmarking import conditions
from autopipe.benchmarking.conditions import Glance, disturbance, read_counters
from tests.support.table import each_row

STAT = """\
cpu  900 0 900 9000 0 0 0 90 0 0
cpu0 100 20 30 4000 500 6 7 80 100 0
cpu1 200 0 0 4000 0 0 0 10 0 0
cpu12 600 0 870 1000 0 0 0 0 0 0
intr 264581 0 0
ctxt 1
"""


@pytest.fixture(autouse=True)
def ticks(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_CLK_TCK": 100}[name])


@pytest.fixture
def stat(tmp_path):
    def write(text):
        path = tmp_path / "stat"
        path.write_bytes(text.encode(errors="surrogateescape"))
        return path

    return write


@pytest.mark.fault("N1")
@pytest.mark.parametrize(
    ("cpus", "busy", "stolen"),
    [({0}, 1.63, 0.8), ({0, 1}, 3.63, 0.9), ({1, 12}, 16.7, 0.1)],
)
def test_only_the_processors_that_a_contender_may_use_count(stat, cpus, busy, stolen):
    found = read_counters(cpus, stat(STAT))
    assert found.busy == pytest.approx(busy)
    assert found.stolen == pytest.approx(stolen)


@each_row(
    "text",
    ["", "cpu  1 2 3\n", STAT.replace("cpu1 ", "cpu9 "), STAT.replace(" 80 100 0", ""),
     STAT.replace("4000", "many"), "cpu0\ncpu1\n", "\udcff", "processor 0\n"],
)  # fmt: skip
def test_where_the_file_says_nothing_nothing_is_claimed(stat, text):
    found = read_counters({0, 1}, stat(text)).until(read_counters({0, 1}, stat(text)), 2)
    assert (found.others, found.stolen) == (None, None)
    assert disturbance(found, 2) is None


def test_a_file_that_is_not_there_and_counters_that_stand_still_say_nothing(stat, tmp_path):
    assert read_counters({0}, tmp_path / "nothing").busy is None
    path = stat(STAT)
    assert read_counters({0, 1}, path).until(read_counters({0, 1}, path), 2).others is None


def test_what_is_left_of_the_busy_time_is_of_others():
    before = Glance(at=10.0, cpu=1.0, load=0.5, busy=100.0, stolen=7.0, counted=1000.0)
    after = Glance(at=12.0, cpu=4.0, load=1.5, busy=103.5, stolen=7.25, counted=1004.0)
    found = before.until(after, 2)
    assert found == RoundConditions(
        seconds=2.0, cpu=3.0, others=0.5, stolen=0.25, cores=2, load_before=0.5, load_after=1.5
    )
    busier = Glance(at=12.0, cpu=9.0, load=1.5, busy=103.5, stolen=7.0, counted=1004.0)
    assert before.until(busier, 2).others == 0.0, "ticks are coarser than the time of a process"


def took(others=0.0, stolen=0.0, *, seconds=10.0, cpu=10.0, cores=2, quota=None):
    return RoundConditions(
        seconds=seconds, cpu=cpu, others=others, stolen=stolen, cores=cores, load_before=0.0,
        load_after=0.0, quota=quota,
    )  # fmt: skip


@pytest.mark.fault("N1")
@each_row(
    "found, wanted, says",
    [(took(0.0), 2, None),
     (took(1.9), 2, None),
     (took(2.2), 2, "other programs took 11% of the processor"),
     (took(17.4), 2, "other programs took 87% of the processor"),
     (took(10.0), 1, None),  # it takes the processor that is free
     (took(11.2), 1, "other programs took 56% of the processor"),
     (took(10.0), 99, "other programs took 50% of the processor"),  # there are two
     (took(300.0, cores=64), 2, None),
     (took(300.0, cores=64), 64, "other programs took 47% of the processor"),
     (took(300.0, cores=64, quota=3.5), 64, None),  # a container on a busy host
     (took(620.0, cores=64, quota=3.5), 64, "other programs took 97% of the processor"),
     (took(0.0, cpu=20.0), 2, None),  # threads that spin are its own
     (took(0.08, seconds=0.3), 2, None),  # a few ticks
     (took(0.12, seconds=0.3), 2, "other programs took 20% of the processor"),
     (took(0.0, 1.0), 2, None),
     (took(0.0, 1.3), 2, "the host of this machine took 12% of the processor"),
     (took(0.0, 1.3, cpu=20.0), 2, None),  # a tenth of what was asked for
     (took(None, None), 2, None),
     (took(0.0, seconds=0.0), 2, None),
     (took(30.0), 2, "other programs took 100% of the processor")],
)  # fmt: skip
def test_who_disturbs(found, wanted, says):
    told = disturbance(found, wanted)
    assert (told and str(told)) == says


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_no_other_figures_are_read_back(value):
    known = took().model_dump()
    for name in ("seconds", "cpu", "others", "stolen"):
        with pytest.raises(ValueError, match=name):
            RoundConditions.model_validate({**known, name: value})


@pytest.mark.fault("N1")
def test_programs_that_burn_are_seen():
    cpus = os.sched_getaffinity(0)
    burn = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    burners = [subprocess.Popen(burn, stdout=subprocess.PIPE) for _ in cpus]
    try:
        for each in burners:
            assert each.stdout is not None
            each.stdout.readline()
        before = read_counters(cpus)
        time.sleep(1.0)
        found = before.until(read_counters(cpus), len(cpus))
    finally:
        for each in burners:
            each.kill()
            each.communicate()
    told = disturbance(found, len(cpus))
    assert told is not None
    assert told.by in {"other programs", "the host of this machine"}
    assert found.others is not None
    assert found.others > 0.3
    assert conditions.load_average() >= 0
