"""Schedules that were fast elsewhere are tried first, and decide nothing."""

import json
import math
from dataclasses import replace

import pytest
import tvm

from autopipe.config.schedules import Rule
from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Measurement
from autopipe.records.about import About
from autopipe.records.merge import plant
from autopipe.records.record import Platform, Record
from autopipe.records.seed import Seed, keys
from autopipe.records.session import Session
from autopipe.records.store import Store
from autopipe.safety.maker import Maker
from autopipe.schedules.engines.engine import Known
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.policy import Contender
from autopipe.schedules.templates.serve import serve
from autopipe.tuning.contest import Contest, Entry
from autopipe.tuning.first_round import measure
from autopipe.tuning.journal import Journal
from autopipe.tuning.scheduler import Standing
from autopipe.tuning.seeds import nearest, seeds
from autopipe.tuning.task_state import Spending, Work
from tests.records.test_autotvm import PRODUCT
from tests.schedules.engines.test_static import conv, dense, depthwise, module_of
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS

TEMPLATES = Contender("autotvm", "direct")
HERE = Platform("t", "v", "d")


@pytest.fixture(scope="module")
def module():
    return module_of(*dense(8, 256))


@pytest.fixture(scope="module")
def documents(module):
    served = serve(module, CONDITIONS.hardware)
    assert served is not None
    space = Space.of(served, CONDITIONS.hardware, 0)
    return [space.document(index) for index in range(6)]


@pytest.fixture
def journal(tmp_path):
    with Store.open(tmp_path / "records.sqlite", pytest.fail) as store:
        yield Journal(store, HERE, Session.resume(tmp_path))


@pytest.fixture
def maker(module, tmp_path):
    with Maker({PRODUCT.name: module}, failures(tmp_path)) as maker:
        yield maker


@pytest.fixture
def work(module):
    contest = Contest(Rule(engines=("autotvm",)), 0, {0: Entry(TEMPLATES)})
    return Work(
        Standing(PRODUCT), tvm.ir.save_json(module), lambda _, schedule: lambda: schedule, (),
        contest,
    )  # fmt: skip


def record(schedule, seconds, **fields):
    return Record(
        **{
            "workload": PRODUCT.workload, "engine": "autotvm", "implementation": "direct",
            "schedule": schedule, "seconds": (seconds,), "error": None, "cut": False,
            "measured": "2026-01-01T00:00:00+00:00", "session": "s", **fields,
        }
    )  # fmt: skip


def found(work, journal, maker, trials=100):
    spending = Spending(Budget(trials=trials), [work.standing], journal.session)
    starts = seeds([work], spending, journal, maker, CONDITIONS)
    assert all(start.work is work and start.by == TEMPLATES for start in starts)
    return [start.schedule for start in starts]


def test_the_fastest_of_another_platform_are_tried_as_far_as_they_apply(
    work, journal, maker, documents
):
    old = documents[0].replace('"version": ', '"version": 9')
    every = [record(old, 1e-6), *(record(d, 1e-3 - i * 1e-5) for i, d in enumerate(documents))]
    journal.store.add(replace(HERE, versions="other"), work.text, every)
    journal.store.add(replace(HERE, device="other"), work.text, [record(documents[1], 1.0)])
    journal.store.add(
        replace(HERE, target="other"), work.text, [record("[]", 1e-6, engine="ansor")]
    )
    first, *others = found(work, journal, maker)
    assert first == documents[1]  # only its device is another
    assert others == [documents[5], documents[4]]
    assert len(found(work, journal, maker, trials=2)) == 2
    work.standing.stopped = "not worth a search"
    assert found(work, journal, maker) == []


def test_other_loops_of_the_same_operators_are_near(work, journal, maker, documents):
    about = About.of(PRODUCT)
    other = record(documents[2], 1e-3, workload="ee")
    journal.store.add(HERE, '{"root": 1}', [other], replace(about, likeness="other"))
    assert found(work, journal, maker) == []
    journal.store.add(HERE, '{"root": 2}', [other], about)
    assert found(work, journal, maker) == [documents[2]]


class Stopwatch:
    def measure(self, candidates, best=math.inf, *, rivals=True):
        del best, rivals
        yield from (Measurement((2.0,)) for _ in candidates)


def test_only_what_is_measured_here_counts(work, journal, maker, documents):
    journal.store.add(replace(HERE, device="other"), work.text, [record(documents[3], 1e-6)])
    assert journal.best(work) is None
    assert journal.known(work, TEMPLATES) == []
    spending = Spending(Budget(trials=9), [work.standing], journal.session)
    starts = seeds([work], spending, journal, maker, CONDITIONS)
    measure(starts, spending, Stopwatch(), journal, lambda: None)
    assert journal.known(work, TEMPLATES) == [Known(documents[3], 2.0)]
    assert work.standing.trials == 1
    assert journal.best(work).record.seconds == (2.0,)
    assert found(work, journal, maker) == []  # once is enough


def test_a_schedule_that_failed_or_is_wrong_here_is_not_tried_again(
    work, journal, maker, documents
):
    journal.store.add(replace(HERE, device="other"), work.text, [record(documents[3], 1e-6)])
    journal.store.add(HERE, work.text, [record(documents[3], 1.0)])
    journal.condemn(work, journal.best(work))
    assert journal.rows(work) == []
    assert found(work, journal, maker) == []


def seed(key, template, **knobs):
    return Seed(key, json.dumps({"template": template, "knobs": knobs}), "llvm", 1.0)


def test_a_log_gives_the_nearest_setting_of_our_template(work, journal, maker):
    (key,) = keys(PRODUCT)
    for rows, columns in ((4, 8), (2, 16)):
        wanted = {"tile_y": [-1, 1, rows], "tile_x": [-1, 2, columns], "tile_k": [-1, 4]}
        plant(journal.store, [seed(key, "dense_pack.x86", **wanted)])
    knobs = [json.loads(document)["knobs"] for document in found(work, journal, maker)]
    assert [(each["rows"], each["columns"]) for each in knobs] == [(4, 8), (2, 16)]
    assert journal.best(work) is None


@pytest.mark.parametrize(
    ("tensors", "channels", "template", "tile"),
    [
        (conv(32, size=12), 32, "conv2d_NCHWc.x86", (2, 16)),
        (conv(32, size=12), 16, "conv2d_NCHWc.x86", (8, 4)),
        (depthwise(), 24, "depthwise_conv2d_NCHWc.x86", (2, 4)),
    ],
)
def test_channels_are_columns_where_they_come_last(tensors, channels, template, tile):
    rows, columns = tile
    key = json.dumps(["conv2d", [], [channels, 1, 3, 3]])
    logged = seed(key, template, tile_oc=[-1, columns], tile_ow=[-1, rows], unroll_kw=True)
    knobs = json.loads(nearest(module_of(*tensors), logged, CONDITIONS) or "")["knobs"]
    found = (knobs["rows"], knobs["columns"])
    assert found == (tile if channels == tensors[0][-1].shape[-1] else tile[::-1])


def test_a_log_says_nothing_of_what_no_tile_is_for(module):
    assert nearest(module, seed("[]", "dense_pack.x86"), CONDITIONS) is None
    gpu = replace(CONDITIONS, hardware=replace(CONDITIONS.hardware, gpu=True))
    wanted = seed("[]", "dense_pack.x86", tile_y=[-1, 4], tile_x=[-1, 4])
    assert nearest(module, wanted, gpu) is None
