import json
import math
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from tvm import te, topi

from autopipe.errors import StageError
from autopipe.schedules.engines.autotvm import AutoTVM, KnobSearch
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.engines.knobs import space as space_module
from autopipe.schedules.engines.knobs.cost_model import CostModel, _to_log_speeds
from autopipe.schedules.engines.knobs.features import compute_features
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.engines.knobs.tuners import FixedOrder, ModelGuided
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.policy import Policy
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import dump
from tests.artifacts.examples import best_record
from tests.schedules.computed import assert_same
from tests.schedules.engines.test_default import softmax
from tests.schedules.engines.test_static import conv, dense
from tests.schedules.made import choose_one
from tests.schedules.tasks import CONDITIONS, Trusting, task
from tests.schedules.tensors import module_of

TUNERS = ("grid", "random", "model")
SIDES = tuple(2**n for n in range(8))


@dataclass(frozen=True)
class Knobs:
    rows: int
    columns: int
    order: str
    split: tuple[int, int]


@dataclass(frozen=True)
class Fixed:
    """No knobs at all."""


@dataclass(frozen=True)
class Found:
    name: str
    extents: tuple[int, ...]


def every(_found=None, _hardware=None):
    for rows in SIDES:
        for columns in SIDES:
            for order in ("ij", "ji"):
                for split in ((1, 1), (2, 1), (4, 1), (1, 4)):
                    yield Knobs(rows, columns, order, split)


TOY = SimpleNamespace(name="toy", version=3, settings=every, estimate=lambda *_: None)
FILLED = Knobs(1, 64, "ji", (2, 1))


def toy(size=64, seed=0):
    served = SimpleNamespace(template=TOY, match=Found("a", (size, 7)), knobs=FILLED)
    return Space.of(served, CONDITIONS.hardware, seed)  # type: ignore[arg-type]


def seconds(knobs, size=64):
    """A cost with one best setting: a tile of 256 elements, as wide as the function is large."""
    area = abs(math.log2(knobs.rows * knobs.columns) - 8)
    wide = abs(math.log2(knobs.columns / size))
    return size * 1e-6 * (1 + area + wide + (knobs.order == "ij") + 0.3 * sum(knobs.split))


def tuned(tuner, space, trials, batch=8, size=64):
    """Return the least time after so many trials, against the least there is."""
    seen: dict[int, float] = {}
    while len(seen) < trials:
        chosen = tuner.choose(batch, seen)
        measured = {index: seconds(space.settings[index], size) for index in chosen}
        tuner.learn(measured)
        seen |= measured
    return min(seen.values()) / min(seconds(knobs, size) for knobs in space.settings)


def search(module, tuner="model", known=(), engine=None):
    problem = Problem(task(), module, CONDITIONS, known, 8, 0, tuner)
    return (engine or AutoTVM(CONDITIONS)).search(problem)


def proposed(found, batch=8):
    """Return all that a search proposes until it says that there is no more."""
    documents: list[str] = []
    while batch_of := found.propose(batch):
        documents += batch_of
        found.learn([MeasuredSchedule(each, 1e-3 * (1 + len(each))) for each in batch_of])
    return documents


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_whole_space_is_proposed_once_and_then_there_is_no_more(tuner):
    module = module_of(*dense())
    documents = proposed(search(module, tuner))
    assert len(documents) == len(set(documents)) > 8
    assert set(documents) == set(proposed(search(module, "grid")))


def test_a_proposal_is_a_schedule_that_computes_the_same():
    module = module_of(*conv())
    documents = search(module, "random").propose(3)
    assert len(documents) == 3
    assert_same(
        module, *(replay_schedule(module, DIRECT, document, CONDITIONS) for document in documents)
    )


def test_no_more_is_proposed_than_asked_for():
    assert len(search(module_of(*dense())).propose(3)) == 3


def test_a_function_without_a_template_has_no_search():
    x = te.placeholder((6, 21), "float32")
    assert search(module_of([x, topi.sort(x, axis=1)])) is None


@pytest.mark.parametrize("tuner", TUNERS)
def test_what_was_measured_before_is_not_proposed_again(tuner):
    module = module_of(*dense())
    first = search(module, tuner).propose(8)
    stranger = json.dumps({"template": "toy", "version": 1, "knobs": {}})
    known = [MeasuredSchedule(each, 1e-3) for each in first] + [
        MeasuredSchedule(stranger),
        MeasuredSchedule("[[], []]", 1.0),
    ]
    assert not set(proposed(search(module, tuner, known))) & set(first)
    late = search(module, tuner)
    late.observe(known)
    assert not set(proposed(late)) & set(first)


def test_what_was_measured_before_teaches_the_model():
    space = toy()
    cost = [seconds(knobs) for knobs in space.settings]
    known = [
        MeasuredSchedule(space.document(index), cost[index]) for index in range(0, len(cost), 4)
    ]
    fresh, taught = (KnobSearch(space, ModelGuided(space, 0, CostModel()), k) for k in ((), known))
    places = {space.document(index): index for index in range(len(cost))}
    least = [min(cost[places[each]] for each in found.propose(8)) for found in (taught, fresh)]
    assert least[0] < least[1]


def test_what_was_proposed_is_not_proposed_again_before_it_is_measured():
    found = search(module_of(*dense()), "grid")
    assert not set(found.propose(4)) & set(found.propose(4))


def test_the_tuner_is_the_one_that_was_asked_for():
    module = module_of(*dense())
    orders = [search(module, tuner).propose(12) for tuner in TUNERS]
    assert len({tuple(order) for order in orders}) == 3
    served = serve(module, CONDITIONS.hardware)
    assert served is not None
    every_one = served.template.settings(served.match, CONDITIONS.hardware)
    in_order = [dump(served.template, knobs) for knobs in every_one]
    assert orders[0][1:] == [each for each in in_order if each != orders[0][0]][:11]


def test_what_is_learned_is_how_near_a_setting_comes_to_the_best():
    goals = _to_log_speeds([2.0, 1.0, math.inf, 1e9])
    np.testing.assert_allclose(goals, [-math.log(2), 0, -math.log(16), -math.log(16)], rtol=1e-6)


def test_grid_goes_in_order_and_random_does_not():
    space = toy()
    size = len(space.settings)
    assert FixedOrder(range(size)).choose(3, {0, 2}) == [1, 3, 4]
    orders = [FixedOrder.shuffled(size, seed).choose(512, ()) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(size))


def test_the_first_settings_are_the_filled_one_its_neighbours_and_distant_ones():
    space = toy()
    chosen = [space.settings[index] for index in ModelGuided(space, 0, CostModel()).choose(8, ())]
    assert chosen[0] == FILLED
    changed = [sum(asdict(knobs)[name] != value for name, value in asdict(FILLED).items())
               for knobs in chosen]  # fmt: skip
    assert changed[1:4] == [1, 1, 1]
    assert max(changed[4:]) >= 3


@pytest.mark.parametrize("others", [(), (32, 128)])
def test_a_filled_setting_that_was_measured_as_a_start_is_left_out_of_the_first_settings(others):
    model = CostModel()
    for size in others:
        tuned(ModelGuided(toy(size), 0, model), toy(size), 96, size=size)
    untold, told = (ModelGuided(toy(), 0, model) for _ in range(2))
    told.learn({0: 1e-3})
    assert told.choose(7, {0}) == untold.choose(7, {0})


def test_where_the_template_estimates_its_best_guesses_come_first():
    def estimate(found, knobs, _hardware):
        return 3 * (1 + abs(knobs.rows - 16) + found.extents[-1] * abs(knobs.columns - 2))

    template = SimpleNamespace(**{**vars(TOY), "estimate": estimate})
    served = SimpleNamespace(template=template, match=Found("a", (64, 7)), knobs=FILLED)
    space = Space.of(served, CONDITIONS.hardware, 0)  # type: ignore[arg-type]
    chosen = ModelGuided(space, 0, CostModel()).choose(16, ())
    tiles = [(space.settings[index].rows, space.settings[index].columns) for index in chosen]
    assert tiles[:8] == [(1, 64), *[(16, 2)] * 7]
    assert len(set(tiles[8:])) == 8
    guesses = compute_features(space)["estimate"]
    assert (guesses.min(), guesses[chosen[1]], guesses[0]) == (1, 1, 1 + 15 + 7 * 62)


def test_a_template_without_a_choice_has_one_proposal():
    class Nothing(SimpleNamespace):
        settings = staticmethod(lambda *_: [Fixed()])

    template = Nothing(name="fixed", version=1, estimate=lambda *_: None)
    served = SimpleNamespace(template=template, match=None, knobs=Fixed())
    space = Space.of(served, CONDITIONS.hardware, 0)  # type: ignore[arg-type]
    tuner = AutoTVM(CONDITIONS)._tuner(space, Problem(task(), None, CONDITIONS, (), 8, 0))  # type: ignore[arg-type]
    found = KnobSearch(space, tuner, ())
    assert (len(found.propose(8)), found.propose(8)) == (1, [])


def test_the_model_needs_fewer_trials_than_chance():
    space = toy()
    guided = [tuned(ModelGuided(space, seed, CostModel()), space, 48) for seed in range(4)]
    size = len(space.settings)
    chance = [tuned(FixedOrder.shuffled(size, seed), space, 48) for seed in range(4)]
    assert max(guided) < 1.1
    assert np.mean(guided) < np.mean(chance) - 0.1


def test_tasks_teach_each_other():
    model = CostModel()
    for size in (32, 128):
        tuned(ModelGuided(toy(size), 0, model), toy(size), 96, size=size)
    space = toy(64)
    assert space.settings[ModelGuided(space, 0, model).choose(8, ())[0]] == FILLED
    taught = tuned(ModelGuided(space, 0, model), space, 8)
    assert taught < tuned(ModelGuided(space, 0, CostModel()), space, 8)


def test_searches_of_one_engine_share_the_model_of_a_template():
    engine = AutoTVM(CONDITIONS)
    for module in (module_of(*dense()), module_of(*conv())):
        search(module, engine=engine).propose(1)
    (model,) = engine._models.values()
    assert len(model._samples) == 2


def test_failed_trials_are_bad_and_not_the_end():
    space = toy()
    tuner = ModelGuided(space, 0, CostModel())
    first = tuner.choose(8, ())
    tuner.learn(dict.fromkeys(first, math.inf))
    assert len(tuner.choose(8, first)) == 8
    works = [knobs.order == "ji" for knobs in space.settings]
    tuner.learn({index: 1.0 if works[index] else math.inf for index in range(40)})
    assert all(works[index] for index in tuner.choose(16, {*first, *range(40)})[:8])
    assert tuner.choose(8, range(len(works))) == []


def test_a_space_of_which_everything_failed_runs_out():
    space = toy()
    tuner = ModelGuided(space, 0, CostModel())
    tuner.learn(dict.fromkeys(range(len(space.settings)), math.inf))
    assert tuner.choose(8, range(len(space.settings))) == []


def test_a_proposal_from_a_large_space_may_be_large():
    for count in (300, 500, 512):
        assert len(set(ModelGuided(toy(), 0, CostModel()).choose(count, ()))) == count


def test_of_a_huge_space_a_part_is_looked_at(monkeypatch):
    monkeypatch.setattr(space_module, "LARGEST", 100)
    spaces = [toy(seed=seed).settings for seed in (0, 0, 1)]
    assert spaces[0] == spaces[1] != spaces[2]
    assert len(set(spaces[0])) == 100
    assert spaces[0][0] == FILLED
    assert {knobs.rows for knobs in spaces[0]} == set(SIDES)


def test_features_are_knobs_extents_and_how_they_divide():
    found = compute_features(toy(64))
    place = toy(64).settings.index(Knobs(4, 16, "ij", (1, 4)))
    row = {name: float(column[place]) for name, column in found.items()}
    assert row["knobs.rows"] == 4
    assert row["knobs.columns*knobs.rows"] == 64
    assert row["function.extents.-2/knobs.columns"] == 4
    assert (row["knobs.order=ij"], row["knobs.order=ji"]) == (1, 0)
    assert row["knobs.split.-1"] == 4
    assert not any(name.startswith("function.name") for name in row)


def record(**changes):
    """Return the text of a good record with some entries changed."""
    document = json.loads(search(module_of(*conv()), "grid").propose(1)[0])
    return json.dumps({**document, **changes})


GOOD = json.loads(record())
KNOBS, NAME = GOOD["knobs"], GOOD["template"]
FIRST = next(name for name, value in KNOBS.items() if type(value) is int)


def turned(value):
    return {"knobs": {**KNOBS, FIRST: value}}


BAD: dict[str, tuple[dict[str, object], str]] = {
    "unknown template": ({"template": "nonsense"}, "there is no template 'nonsense'"),
    "no template": ({"template": None}, "there is no template None"),
    "other version": ({"version": 99}, f"template {NAME} has version .*, the record has 99"),
    "no version": ({"version": None}, "the record has None"),
    "out of range": (turned(10**6), f"template {NAME} has no setting .*1000000"),
    "negative": (turned(-KNOBS[FIRST]), "has no setting"),
    "a float": (turned(float(KNOBS[FIRST])), "has no setting"),
    "a truth": (turned(value=True), "has no setting"),
    "a text": (turned(str(KNOBS[FIRST])), "has no setting"),
    "a list": (turned([KNOBS[FIRST]]), "has no setting"),
    "one too few": ({"knobs": {FIRST: KNOBS[FIRST]}}, "has no setting"),
    "one too many": ({"knobs": {**KNOBS, "nonsense": 1}}, "has no setting"),
    "no knobs": ({"knobs": None}, "has no setting null"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_a_miss_with_its_reason(case, tmp_path):
    changes, reason = BAD[case]
    module = module_of(*conv())
    with pytest.raises(StageError, match=reason) as refused:
        replay_schedule(module, DIRECT, record(**changes), CONDITIONS)
    assert "\n" not in str(refused.value)
    bad = best_record(engine="autotvm", seconds=(1.0,), schedule=record(**changes))
    policy = Policy((), ("static", "default"))
    chosen = choose_one(tmp_path, task(), module, bad, policy, Trusting())
    assert chosen.engine == "static"
    assert chosen.reason == f"its record does not apply: {refused.value}"


def test_a_record_of_a_function_that_the_template_does_not_serve_is_refused():
    with pytest.raises(StageError, match=f"template {NAME} does not serve this function"):
        replay_schedule(module_of(softmax()), DIRECT, record(), CONDITIONS)


def test_a_good_record_with_its_values_in_any_order_is_taken():
    shuffled = {**dict(reversed(list(KNOBS.items())))}
    replay_schedule(module_of(*conv()), DIRECT, record(knobs=shuffled), CONDITIONS)
