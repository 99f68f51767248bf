"""Plain loops are compiled ahead of the checks that use them."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import te, topi

from autopipe.building.dynamic_twins import find_dynamic_twins
from autopipe.building.prepared_checks import PreparedChecks
from autopipe.compiler.dynamic_sizes.kernel_sizes import bind_kernel_sizes
from autopipe.measure.build import split_weights
from autopipe.measure.cases import make_case_arguments
from autopipe.measure.check import PlainLoops, WrongAnswer
from autopipe.measure.plain_code import (
    PlainKernel,
    PlainSource,
    compile_plain,
    link_plain,
    open_plain,
)
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.engines import static
from tests.compiler.dynamic_sizes.test_likely_kernels import extracted
from tests.schedules.engines.test_static import dense
from tests.schedules.tasks import CONDITIONS
from tests.schedules.templates.test_dynamic_shapes import module
from tests.schedules.tensors import module_of


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
        Piece(
            "checking",
            f"task{place}",
            workload,
            "static",
            "direct",
            planned.schedule,
            planned.module,
        )
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
        checks.judge([replace(suspect, schedule="{}"), suspect])
    assert [bool(one.plain) for one in checker.asked] == [False, True]


def extracted_suspects(likely):
    """Return kernels of dynamic and of specialized sizes as their own schedules, and the twins."""
    _, tasks, workloads = extracted(likely)
    pairs = [(task, workloads[task.workload]) for task in tasks.values()]
    suspects = {
        at: Piece("checking", task.name, module, "static", "direct", "", module)
        for at, (task, module) in zip(tasks, pairs, strict=True)
    }
    return suspects, find_dynamic_twins(pairs)


def test_loops_of_dynamic_shapes_check_the_kernel_of_their_likely_size(tmp_path):
    """One for 4 rows is checked by the loops of any number, and one for 6 by its own."""
    suspects, twins = extracted_suspects((4, 6))
    assert {task: twin.task for task, twin in twins.items()} == {
        suspects["4"].task: suspects[""].task
    }
    checker = Recording()
    with PreparedChecks(checker, tmp_path / "plain", twins) as checks:
        for suspect in suspects.values():
            checks.prepare(suspect)
        checks.start()
        checks.judge(list(suspects.values()))
    plain = {suspect.task: suspect.plain for suspect in checker.asked}
    for_four, for_six, for_all = (plain[suspects[at].task] for at in ("4", "6", ""))
    assert (for_four.name, for_four.path) == (for_all.name, for_all.path) != for_six
    workload = suspects["4"].workload
    x = te.placeholder((4, 6), "float32")
    wrong = tvm.IRModule({"main": te.create_prim_func([x, topi.add(x, 1.0)])})
    loops = PlainLoops(workload, CONDITIONS.target, plain=for_four)
    loops.check(workload)
    with pytest.raises(WrongAnswer):
        loops.check(wrong)


def test_a_kernel_has_its_own_loops_where_those_of_its_twin_are_not_compiled(tmp_path):
    suspects, twins = extracted_suspects((4,))
    checker = Recording(suspects[""].task)
    with PreparedChecks(checker, tmp_path / "plain", twins) as checks:
        for suspect in suspects.values():
            checks.prepare(suspect)
        checks.start()
        checks.judge(list(suspects.values()))
    assert [suspect.plain for suspect in checker.asked] == [None, None]


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


def test_loops_of_dynamic_shapes_take_the_tensors_of_a_size(tmp_path):
    n = te.var("n", "int64")
    x = te.placeholder((n * 8,), name="x")
    workload = module([x, n, topi.nn.relu(x)], [[1, 2, 40]])
    link_plain({"all": PlainSource(workload)}, tmp_path / "plain.so")
    static = bind_kernel_sizes(workload, {"n": 2})
    kernel = PlainKernel(str(tmp_path / "plain.so"), "all", ((1, 2),))
    loops = open_plain(kernel, PlainSource(static)).loops
    arrays = make_case_arguments(static, "random", 0)
    tensors = list(map(tvm.runtime.tensor, arrays))
    loops(*tensors)
    assert np.array_equal(tensors[1].numpy(), np.maximum(arrays[0], 0))
