"""What is made in a child is what would be made here; what fails there is not tried for ever."""

import json
from pathlib import Path

import pytest
import tvm_ffi

from autopipe.errors import StageError
from autopipe.processes import contained
from autopipe.processes.contained import Failed
from autopipe.safety.maker import Maker, Refused
from autopipe.schedules.engines import static
from autopipe.schedules.implementations.implementation import build_implementations
from autopipe.schedules.policy import Contender
from tests.schedules import saboteur
from tests.schedules.engines.test_static import conv
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def workload():
    return module_of(*conv())


@pytest.fixture
def said():
    return []


@pytest.fixture
def maker(workload, tmp_path, said):
    with Maker({"t": workload}, failures(tmp_path, said)) as maker:
        yield maker


def same(one, other):
    return tvm_ffi.structural_equal(one, other)


def test_it_makes_what_would_be_made_here(maker, workload, said):
    here = build_implementations(workload, CONDITIONS)
    found = maker.implementations("t")
    assert list(found) == list(here)
    assert all(same(found[name], here[name]) for name in here)
    assert len(here) > 1
    for mine, theirs in zip(
        maker.plans("t", "static"), static.list_plans(workload, CONDITIONS), strict=True
    ):
        assert (mine.implementation, mine.schedule) == (theirs.implementation, theirs.schedule)
        assert same(mine.module, theirs.module)
        by = Contender("static", mine.implementation)
        assert same(maker.replay("t", by, mine.schedule), mine.module)
    assert [planned.implementation for planned in maker.plans("t", "default")] == ["direct"]
    assert said == []


def test_a_record_that_does_not_fit_is_refused_and_no_failure(maker, said):
    with pytest.raises(Refused, match="there is no template 'gone'"):
        maker.replay(
            "t",
            Contender("autotvm", "direct"),
            json.dumps({"template": "gone", "version": 1, "knobs": {}}),
        )
    assert said == []


@pytest.mark.parametrize("way", saboteur.WAYS)
def test_what_fails_is_left_out_and_not_tried_a_third_time(maker, monkeypatch, tmp_path, said, way):
    monkeypatch.setattr(contained, "MEMORY", 200 << 20)
    monkeypatch.setattr(maker._child, "seconds", 2.0 if way == "hang" else 60.0)
    monkeypatch.setattr(maker._child, "memory", 200 << 20)
    tries = tmp_path / "tries"

    def counted(act=saboteur.WAYS[way]):
        with tries.open("a") as file:
            file.write("x")
        act()

    monkeypatch.setitem(saboteur.WAYS, way, counted)
    saboteur.implementation(monkeypatch, way)
    before = {"direct", "winograd4", "winograd2"}
    assert set(maker.implementations("t")) >= before
    assert [*maker.plans("t", "static")]
    assert tries.read_text() == "xx"
    (line,) = said
    assert line.startswith(f"task t: rewriting bad failed twice: {saboteur.ENDS[way]}")
    (row,) = maker._failures.listed["t"]
    folder = maker._failures.place.folder / Path(row.folder).name
    record = json.loads((folder / "record.json").read_text())
    assert record["how"] == saboteur.ENDS[way]
    if way != "memory":
        assert any("saboteur.py" in line for line in record["log"])


def test_a_record_that_crashes_fails(maker, monkeypatch, said):
    saboteur.implementation(monkeypatch, "crash")
    for _ in range(2):
        with pytest.raises(Failed, match="killed by SIGSEGV"):
            maker.replay("t", Contender("autotvm", "bad"), "[[],[]]")
    assert len(said) == 1


@pytest.mark.parametrize(
    ("what", "doing"), [("template", "planning"), ("implementation", "rewriting")]
)
def test_a_failure_can_end_it_all(workload, tmp_path, monkeypatch, what, doing):
    getattr(saboteur, what)(monkeypatch, "crash")
    with (
        Maker({"t": workload}, failures(tmp_path, fatal=True)) as maker,
        pytest.raises(StageError, match=f"task t: {doing} .*on_task_failure"),
    ):
        next(maker.plans("t", "static"))


def test_a_mistake_in_a_template_is_told_and_the_next_one_serves(maker, monkeypatch, said):
    saboteur.template(monkeypatch, "exception")
    for _ in range(2):
        assert [planned.implementation for planned in maker.plans("t", "static")]
    assert all("template bad: RuntimeError: no such loop" in line for line in said)
    assert len(said) == len(maker.implementations("t"))
