"""Plain loops are compiled ahead of the checks that use them."""

import numpy as np
import pytest
import tvm

from autopipe.building.prepared_checks import PreparedChecks
from autopipe.measure.build import split_weights
from autopipe.measure.cases import make_case_arguments
from autopipe.measure.plain_code import (
    PlainKernel,
    PlainSource,
    compile_plain,
    link_plain,
    open_plain,
)
from autopipe.safety.quarantine import Suspect
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.engines import static
from tests.schedules.engines.test_static import dense, module_of
from tests.schedules.tasks import CONDITIONS


class Recording:
    """A checker that keeps what it is asked, and needs a check of each but some."""

    def __init__(self, *known):
        self.known = known
        self.asked = []

    def needs_check(self, suspect):
        return suspect.task not in self.known

    def judge(self, suspects):
        self.asked += suspects
        return [Verdict(Finding.RIGHT) for _ in suspects]


def suspects(count):
    """Return a schedule that packs weights, as that of many tasks."""
    workload = module_of(*dense())
    planned = static.plan(workload, CONDITIONS)
    assert planned is not None
    return [
        Suspect(f"task{place}", "static", "direct", planned.schedule, workload, planned.module)
        for place in range(count)
    ]


@pytest.mark.parametrize("count", [1, 8, 21])
def test_checks_find_the_plain_loops_compiled(tmp_path, count):
    checker, made = Recording("task0"), suspects(count + 1)
    with PreparedChecks(checker, tmp_path / "plain") as checks:
        for suspect in made:
            checks.prepare(suspect)
        checks.start()
        checks.judge(made)
    assert checker.asked[0].plain is None
    for suspect in checker.asked[1:]:
        assert suspect.plain is not None
        open_plain(suspect.plain, PlainSource(suspect.workload))


def test_another_schedule_of_a_task_is_compiled_by_its_check(tmp_path):
    checker, (suspect,) = Recording(), suspects(1)
    with PreparedChecks(checker, tmp_path / "plain") as checks:
        checks.prepare(suspect)
        checks.start()
        checks.judge([suspect._replace(schedule="{}"), suspect])
    assert [bool(one.plain) for one in checker.asked] == [False, True]


def test_without_a_folder_nothing_is_compiled(tmp_path):
    checker, (suspect,) = Recording(), suspects(1)
    with PreparedChecks(checker, None) as checks:
        checks.prepare(suspect)
        checks.start()
        checks.judge([suspect])
    assert checker.asked[0].plain is None
    assert not list(tmp_path.iterdir())


def test_a_batch_that_fails_leaves_its_tasks_to_their_checks(tmp_path):
    checker, (suspect,) = Recording(), suspects(1)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "plain0.so").mkdir()  # where the library should be written
    with PreparedChecks(checker, tmp_path / "plain") as checks:
        checks.prepare(suspect)
        checks.start()
        (verdict,) = checks.judge([suspect])
    assert checker.asked[0].plain is None
    assert verdict.finding is Finding.RIGHT


@pytest.mark.parametrize("packs", [False, True])
def test_linked_plain_loops_are_those_of_their_workload(tmp_path, packs):
    """Two workloads of one library do not take each other's place."""
    sources = {}
    for name, columns in (("wide", 48), ("narrow", 16)):
        workload = module_of(*dense(columns=columns))
        planned = static.plan(workload, CONDITIONS)
        assert planned is not None
        packing = split_weights(planned.module).packing if packs else None
        sources[name] = PlainSource(workload, packing)
    path = tmp_path / "plain.so"
    link_plain(sources, path)
    for name, source in sources.items():
        linked, alone = open_plain(PlainKernel(str(path), name), source), compile_plain(source)
        assert (linked.packing is None) is (not packs)
        results = []
        for functions in (linked, alone):
            given = make_case_arguments(source.workload, "random", 0)
            tensors = [tvm.runtime.tensor(array) for array in given]
            functions.loops(*tensors)
            results.append(tensors[-1].numpy())
        assert np.array_equal(results[0], results[1])
        assert results[0].any()
