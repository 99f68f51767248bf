"""Schedules that were fast elsewhere are tried first, and decide nothing."""

import json
import math
from dataclasses import replace

import pytest
import tvm

from autopipe.backends.cuda import CUDA
from autopipe.measure.measurement import Measurement
from autopipe.records.about import WorkloadInfo
from autopipe.records.merge import add_seeds
from autopipe.records.record import Record
from autopipe.records.seed import Seed, list_seed_keys
from autopipe.safety.maker import Maker
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.templates.serve import serve
from autopipe.tuning.search.seeds import find_nearest_setting, find_seeds
from tests.records.test_autotvm import PRODUCT
from tests.schedules.engines.test_static import conv, dense, depthwise
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of
from tests.tuning.states import HERE, TEMPLATES, state_of, trials_of


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
def maker(module, tmp_path):
    with Maker({PRODUCT.name: module}, failures(tmp_path)) as maker:
        yield maker


@pytest.fixture
def state(module):
    return state_of(PRODUCT, (TEMPLATES,), text=tvm.ir.save_json(module))


def record(schedule, seconds, **fields):
    return Record(
        **{
            "workload": PRODUCT.workload, "engine": "autotvm", "implementation": "direct",
            "schedule": schedule, "seconds": (seconds,), "error": None, "cut": False,
            "measured": "2026-01-01T00:00:00+00:00", "session": "s", **fields,
        }
    )  # fmt: skip


def found(state, journal, maker, trials=100):
    proposals = find_seeds(trials_of(journal, [state], trials=trials), maker)
    assert all(each is state and proposal.by == TEMPLATES for each, proposal in proposals)
    return [proposal.schedule for _, proposal in proposals]


def test_the_fastest_of_another_platform_are_tried_as_far_as_they_apply(
    state, journal, maker, documents
):
    old = documents[0].replace('"version": ', '"version": 9')
    every = [record(old, 1e-6), *(record(d, 1e-3 - i * 1e-5) for i, d in enumerate(documents))]
    journal.store.add(HERE._replace(versions="other"), state.text, every)
    journal.store.add(HERE._replace(device="other"), state.text, [record(documents[1], 1.0)])
    journal.store.add(
        HERE._replace(target="other"), state.text, [record("[]", 1e-6, engine="ansor")]
    )
    first, *others = found(state, journal, maker)
    assert first == documents[1]  # only its device is another
    assert others == [documents[5], documents[4]]
    assert len(found(state, journal, maker, trials=2)) == 2
    state.stopped = "not worth a search"
    assert found(state, journal, maker) == []


def test_other_loops_of_the_same_operators_are_near(state, journal, maker, documents):
    about = WorkloadInfo.of(PRODUCT)
    other = record(documents[2], 1e-3, workload="ee")
    journal.store.add(HERE, '{"root": 1}', [other], about._replace(likeness="other"))
    assert found(state, journal, maker) == []
    journal.store.add(HERE, '{"root": 2}', [other], about)
    assert found(state, journal, maker) == [documents[2]]


class Stopwatch:
    width = 1

    def measure(self, candidates, best=math.inf, *, same_task=True, until=math.inf):
        del best, same_task, until
        yield from ((place, Measurement((2.0,))) for place, _ in enumerate(candidates))


def test_only_what_is_measured_here_counts(state, journal, maker, documents):
    journal.store.add(HERE._replace(device="other"), state.text, [record(documents[3], 1e-6)])
    assert journal.winner(state) is None
    assert journal.known(state, TEMPLATES.implementation) == []
    trials = trials_of(journal, [state], Stopwatch(), trials=9)
    trials.each(find_seeds(trials, maker))
    assert journal.known(state, TEMPLATES.implementation) == [MeasuredSchedule(documents[3], 2.0)]
    assert state.trials == 1
    assert journal.winner(state).times == (2.0,)
    assert found(state, journal, maker) == []  # once is enough


def test_a_schedule_that_failed_or_is_wrong_here_is_not_tried_again(
    state, journal, maker, documents
):
    journal.store.add(HERE._replace(device="other"), state.text, [record(documents[3], 1e-6)])
    journal.store.add(HERE, state.text, [record(documents[3], 1.0)])
    journal.add_verdict(state, journal.winner(state).proposal, "failed")
    assert journal.rows(state) == []
    assert found(state, journal, maker) == []


def seed(key, template, **knobs):
    return Seed(key, json.dumps({"template": template, "knobs": knobs}), "llvm", 1.0)


def test_a_log_gives_the_nearest_setting_of_our_template(state, journal, maker):
    (key,) = list_seed_keys(PRODUCT)
    for rows, columns in ((4, 8), (2, 16)):
        wanted = {"tile_y": [-1, 1, rows], "tile_x": [-1, 2, columns], "tile_k": [-1, 4]}
        add_seeds(journal.store, [seed(key, "dense_pack.x86", **wanted)])
    knobs = [json.loads(document)["knobs"] for document in found(state, journal, maker)]
    assert [(each["rows"], each["columns"]) for each in knobs] == [(4, 8), (2, 16)]
    assert journal.winner(state) is None


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
    wanted = seed(key, template, tile_oc=[-1, columns], tile_ow=[-1, rows], unroll_kw=True)
    knobs = json.loads(find_nearest_setting(module_of(*tensors), wanted, CONDITIONS) or "")["knobs"]
    found = (knobs["rows"], knobs["columns"])
    assert found == (tile if channels == tensors[0][-1].shape[-1] else tile[::-1])


def test_a_log_says_nothing_of_what_no_tile_is_for(module):
    assert find_nearest_setting(module, seed("[]", "dense_pack.x86"), CONDITIONS) is None
    gpu = replace(CONDITIONS, hardware=replace(CONDITIONS.hardware, backend=CUDA))
    wanted = seed("[]", "dense_pack.x86", tile_y=[-1, 4], tile_x=[-1, 4])
    assert find_nearest_setting(module, wanted, gpu) is None
