import json

import onnx
import pytest
from safetensors.numpy import load_file

from autopipe.compiler.frontends.onnx.reading import source
from autopipe.config.model import Input, Model, Weights
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, ModelError
from autopipe.host import copy_file
from autopipe.pipeline import counted
from autopipe.pipeline.events import Event, Progress, Warn
from autopipe.pipeline.stage import Context
from autopipe.stages.import_model import ImportStage
from autopipe.store import arrays
from tests.compiler.frontends.models import dense, external, save, tensor
from tests.compiler.frontends.sources import EMBED


def stage(path, **fields):
    return ImportStage(
        **{"format": "onnx", "path": path, "sha256": None, "inputs": {}, "weights": None, **fields}
    )


def ran(made, tmp_path):
    """Run a stage and return its line, its folder and what it told the reporter."""
    out = tmp_path / "out"
    events: list[Event] = []
    out.mkdir()
    line = made.run(Context({}, {}, out, tmp_path / "work", tmp_path / "records", events.append))
    return line, out, events


def port(name, shape):
    return {"name": name, "shape": shape, "dtype": "float32", "dimensions": [], "ranges": []}


def test_the_artifact_is_what_the_architecture_says(tmp_path):
    from autopipe.compiler import module_io

    path = save(dense(), tmp_path)
    line, out, events = ran(stage(path), tmp_path)
    assert line == "small: opset 17, 16 weights read"
    said = [event.message for event in events]
    assert said == ["converting model.onnx", "writing 2 arrays of weights"]
    assert sorted(file.name for file in out.iterdir()) == [
        "model.json", "module.json", "nodes.json", "original.onnx", "reference.onnx",
        "reference.weights", "weights.safetensors",
    ]  # fmt: skip
    text = (out / "model.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert json.loads(text) == {
        "name": "small",
        "inputs": [port("x", [2, 3])],
        "outputs": [port("y", [2, 4])],
        "dimensions": {},
        "weights": ["weight", "bias"],
        "source_sha256": onnx_digest(path),
        "synthesized": False,
        "opset": 17,
        "params": 16,
        "selects": {},
        "promises": {
            "chooses_rows": False,
            "rounds_to_steps": False,
            "error_floors": {},
            "exact_cases": [],
            "finite_cases": ["tiny", "signed"],
            "nan_only_on_cpu": False,
            "references_lose_nan": False,
        },
    }
    weights = load_file(out / "weights.safetensors")
    assert {name: values.shape for name, values in weights.items()} == {
        "weight": (3, 4),
        "bias": (4,),
    }
    assert len(module_io.load_module(out / "module.json")["main"].params) == 3
    onnx.checker.check_model(out / "reference.onnx", full_check=True)


def test_bytes_are_counted_in_every_step_of_a_large_model(tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "INTERVAL", 0.0)
    monkeypatch.setattr(copy_file, "MIB", 1)
    monkeypatch.setattr(source, "STRETCH", 8)
    monkeypatch.setattr(arrays, "STRETCH", 8)
    _, _, events = ran(stage(save(dense(), tmp_path)), tmp_path)
    counts = [event for event in events if isinstance(event, Progress) and event.done is not None]
    messages = dict.fromkeys(event.message for event in counts)
    assert list(messages) == [
        "MiB of the model digested", "MiB of the model checked", "MiB of weights read",
        "clean-up passes run", "nodes converted", "MiB of the model read again",
        "MiB of weights written", "MiB written for references",
    ]  # fmt: skip
    assert all(event.remaining is not None for event in counts if event.message.startswith("MiB"))


def test_a_model_that_is_not_onnx_has_no_reference_of_it(tmp_path):
    from autopipe.compiler import module_io

    path = tmp_path / "embed.py"
    path.write_text(EMBED)
    line, out, _ = ran(stage(path, format="tvmscript", weights=Weights()), tmp_path)
    assert line == "embed: tvmscript, 21 weights drawn"
    assert sorted(file.name for file in out.iterdir()) == [
        "model.json", "module.json", "nodes.json", "weights.safetensors",
    ]  # fmt: skip
    document = json.loads((out / "model.json").read_text())
    assert document["outputs"] == [port("rows", [5, 3])]
    assert (document["opset"], document["selects"]) == (None, {"ids": 7})
    assert list(load_file(out / "weights.safetensors")) == document["weights"] == ["table"]
    assert len(module_io.load_module(out / "module.json")["main"].params) == 2


def onnx_digest(path):
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_warnings_are_told(tmp_path):
    made = dense()
    made.graph.initializer[0].CopyFrom(tensor("weight", 3, 4, fill=0.02))
    _, _, events = ran(stage(save(made, tmp_path)), tmp_path)
    assert [type(event) for event in events] == [Progress, Warn, Progress]


def test_drawn_weights_are_said_to_be(tmp_path):
    line, out, _ = ran(stage(save(dense(), tmp_path), weights=Weights()), tmp_path)
    assert line.endswith("16 weights drawn")
    assert json.loads((out / "model.json").read_text())["synthesized"] is True


def test_a_refused_model_leaves_nothing(tmp_path):
    made = dense()
    secret = tmp_path / "secret"
    secret.write_bytes(external(made, "../secret"))
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelError):
        ran(stage(save(made, folder)), tmp_path)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_stage_is_what_the_pipeline_says(tmp_path):
    path = save(dense(), tmp_path)
    inputs = {"x": Input(shape=(2, 3))}
    model = Model(path="model.onnx", sha256="0" * 64, inputs=inputs, weights=Weights(seed=4))
    made = ImportStage.of(Pipeline(version=1, name="p", model=model), tmp_path)
    assert made == stage(path, sha256="0" * 64, inputs=inputs, weights=Weights(seed=4))
    with pytest.raises(ConfigError, match="not in"):
        ImportStage.of(Pipeline(version=1, name="p", model=Model(path="no.onnx")), tmp_path)


def test_the_key_covers_the_content_of_all_files_and_no_path(tmp_path):
    made = dense()
    data = tmp_path / "data.bin"
    data.write_bytes(external(made))
    path = save(made, tmp_path)
    assert stage(path).sources() == {"model": path, "data:data.bin": data}
    assert stage(path).unkeyed() == {"path", "dimensions"}  # no size is open
    assert stage(path).reads == {Facet.TVM, Facet.FRONTEND}
