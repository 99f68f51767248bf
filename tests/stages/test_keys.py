"""What the real stages put into their keys, held so that a change is a decision."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError
from autopipe.pipeline.keys import build_action
from autopipe.stages import STAGES, stages_of
from autopipe.store.canonical import digest_json
from autopipe.store.content import TreeDigests

GOLDEN = Path(__file__).parents[1] / "golden" / "stages.json"
FACTS = {facet: {"is": facet.value} for facet in Facet}


def documents(tmp_path, **sections):
    for name in ("memory", "tmp"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "m.onnx").write_bytes(b"a model")
    pipeline = Pipeline.model_validate(
        {"version": 1, "name": "p", "model": {"path": "m.onnx"}, **sections}
    )
    contents = TreeDigests(tmp_path / "memory", tmp_path / "tmp")
    return {
        stage.name: build_action(stage, dict.fromkeys(stage.needs, "0" * 64), FACTS, contents)
        for stage in stages_of(pipeline, tmp_path)
    }


def test_keys_of_the_stages(tmp_path):
    """If this fails a result is made anew after an upgrade: bump versions, then run with BLESS=1.

    A changed default or a new field shows here; say in CHANGELOG under "Keys" which stages run.
    """
    found = {
        name: {"key": digest_json(document), "action": document}
        for name, document in documents(tmp_path).items()
    }
    if os.environ.get("BLESS"):
        GOLDEN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    kept = json.loads(GOLDEN.read_text())
    other = [name for name in {**found, **kept} if found.get(name) != kept.get(name)]
    assert other == [], "keys of these stages changed: bump versions, then run with BLESS=1"
    assert list(found) == [stage.name for stage in STAGES]


def changed(tmp_path, **sections):
    before, after = documents(tmp_path), documents(tmp_path, **sections)
    return {name for name in before if before[name] != after.get(name)}


def test_a_changed_setting_changes_only_the_stages_it_is_for(tmp_path):
    assert changed(tmp_path, benchmark={"repeat": 99}) == {"benchmark"}
    assert changed(tmp_path, verify={"cases": 9}) == {"verify"}
    assert changed(tmp_path, tuning={"seed": 9}) == {"tune"}
    assert changed(tmp_path, layout={"conv2d": ["NHWC", "HWIO"]}) == {"optimize", "package"}
    joined = {"join": [["matmul", "nn.softmax", "matmul"]]}
    assert changed(tmp_path, fusion=joined) == {"lower", "package"}
    assert changed(tmp_path, tasks={"heuristics": {"min_flops": 7}}) == {"tasks"}
    assert changed(tmp_path, tasks={"scheduler": "round_robin"}) == {"tune"}
    fatal = changed(tmp_path, tasks={"on_task_failure": "fail"})
    assert fatal == {"tune", "build"}
    assert changed(tmp_path, gates={"measured_share": 0.5}) == {"benchmark"}
    assert changed(tmp_path, name="other") == {"package"}


def test_real_inputs_are_keyed_by_what_is_in_them(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    np.savez(tmp_path / "c.npz", x=np.ones(3))
    assert changed(tmp_path, verify={"inputs": ["a.npz"]}) == {"verify"}
    assert changed(tmp_path, benchmark={"inputs": "a.npz"}) == {"benchmark"}
    timed = [
        documents(tmp_path, benchmark={"inputs": f"{name}.npz"})["benchmark"] for name in "abc"
    ]
    assert timed[0] == timed[1] != timed[2]
    checked = [documents(tmp_path, verify={"inputs": [f"{name}.npz"]})["verify"] for name in "ac"]
    assert [list(each["sources"]) for each in checked] == [["inputs:a.npz"], ["inputs:c.npz"]]
    assert str(tmp_path) not in json.dumps(checked + timed)


def test_inputs_that_can_not_be_the_models_are_refused_before_anything_runs(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    model = {"path": "m.onnx", "inputs": {"x": {"shape": (3,), "dtype": "float32"}}}
    with pytest.raises(
        ConfigError, match=r"^verify\.inputs: .*input 'x' is float64 \[3\]; the model"
    ):
        documents(tmp_path, verify={"inputs": ["a.npz"]}, model=model)
    with pytest.raises(ConfigError, match=r"^benchmark\.inputs: .*gone\.npz: No such file"):
        documents(tmp_path, benchmark={"inputs": "gone.npz"})


def test_where_a_farm_measures_the_machine_that_searches_is_in_no_key_of_tuning(tmp_path):
    measure = {"runner": "farm", "label": "zen5", "scheduler": "tls://farm.example:8786"}
    farm = {"target": {"mcpu": "znver5", "num_cores": 2}, "tuning": {"measure": measure}}
    assert Facet.DEVICE.value in documents(tmp_path)["tune"]["facts"]
    assert documents(tmp_path, **farm)["tune"]["facts"].keys() == {
        facet.value
        for facet in (
            Facet.TVM,
            Facet.TARGET,
            Facet.LIBRARIES,
            Facet.EXTENSIONS,
            Facet.TEMPLATES,
        )
    }
