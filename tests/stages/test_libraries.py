"""A library in the contest: timed as a start, taken where it was faster."""

import json

import pytest
import tvm

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.stage import Context
from autopipe.safety.inspection import Inspector
from autopipe.stages.tune import TuneStage
from autopipe.tuning import setup
from tests.schedules.products import product, task_of
from tests.schedules.tasks import Trusting
from tests.stages.small_tuning import FACTS


class Clock:
    """Times candidates by their implementation."""

    checker = None
    width = 1

    def __init__(self, seconds):
        self.seconds = seconds
        self.device = FACTS[Facet.DEVICE]
        self.asked = []

    def measure(self, candidates, best=float("inf"), *, same_task=True, until=float("inf")):
        for place, candidate in enumerate(candidates):
            name = candidate.implementation
            self.asked.append(name)
            yield place, Measurement(seconds=(self.seconds[name],) * 3)

    def close(self):
        """Keep nothing."""

    def rounds(self, candidates, count):
        return [Measurement((self.seconds[each.implementation],) * count) for each in candidates]


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """Tune one product with these times; return what was asked, and the record."""

    def tuned(seconds, size=128, **rule):
        task, module = task_of(product, (size, size), (size, size))
        bare = tvm.IRModule({"main": module["main"].without_attr("op_info")})
        task = task.model_copy(update={"share": 1.0})
        for name in ("tasks/workloads", "out", "work"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "tasks/tasks.json").write_text(f"[{task.model_dump_json()}]")
        workload = tmp_path / "tasks/workloads" / f"{task.workload}.json"
        workload.write_text(tvm.ir.save_json(bare))
        clock = Clock(seconds)
        monkeypatch.setattr(setup, "open_runner", lambda _: clock)
        monkeypatch.setattr(Inspector, "of", lambda *_: Trusting())
        document = {
            "version": 1, "name": "small", "model": {"path": "x.onnx"},
            "tuning": {"budget": {"trials": 8}},
            "schedules": {"rules": [{"engines": [], **rule}]},
        }  # fmt: skip
        stage = TuneStage.of(Pipeline.model_validate(document), tmp_path)
        assert stage is not None
        ctx = Context(
            inputs={"tasks": tmp_path / "tasks"}, facts=FACTS, out=tmp_path / "out",
            work=tmp_path / "work", records=tmp_path / "records.sqlite", emit=lambda _: None,
        )  # fmt: skip
        stage.run(ctx)
        (line,) = (tmp_path / "out/records.jsonl").read_text().splitlines()
        return sorted(clock.asked), json.loads(line)

    return tuned


@pytest.mark.parametrize(
    ("seconds", "winner"),
    [({"direct": 2.0, "openblas": 1.0}, "openblas"), ({"direct": 1.0, "openblas": 2.0}, "direct")],
)
def test_the_library_wins_only_where_it_is_measured_faster(tuned, seconds, winner):
    asked, record = tuned(seconds)
    assert asked == ["direct", "openblas"]
    assert (record["engine"], record["implementation"]) == ("static", winner)


def test_a_rule_without_it_does_not_time_it(tuned):
    asked, record = tuned({"direct": 2.0, "openblas": 1.0}, implementations=("direct",))
    assert (asked, record["implementation"]) == (["direct"], "direct")


def test_a_rule_of_it_alone_searches_nothing(tuned):
    asked, record = tuned({"direct": 1.0, "openblas": 2.0}, implementations=("openblas",))
    assert (asked, record["implementation"]) == (["openblas"], "openblas")
    assert json.loads(record["schedule"])["template"] == "library_call"


def test_what_it_does_not_take_is_generated_all_the_same(tuned):
    asked, record = tuned({"direct": 1.0}, size=64, implementations=("openblas",))
    assert (asked, record["implementation"]) == (["direct"], "direct")
