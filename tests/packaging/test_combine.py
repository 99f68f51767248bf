"""Builds of one model for several processors are one package, of which the best one is loaded."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from autopipe.artifacts.library import BuiltLibrary
from autopipe.cli.app import build_app
from autopipe.compiler.target import cpu
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, PackageError
from autopipe.export.folder import export_package
from autopipe.packaging.combine import combine_packages
from autopipe.packaging.contents import opened
from autopipe.packaging.open import open_package
from autopipe.runtime.weights import are_aligned, read_header
from autopipe.stages.package import PackageStage
from autopipe.verification.compare import compute_rms
from tests.artifacts.examples import imported
from tests.export.test_export import run
from tests.support.small_build import DENSE, INPUTS, OUTPUTS, TARGET, save_library, weights

GIVEN = {
    "data/x": np.arange(32, dtype="float32").reshape(4, 8) / 32,
    "ids": np.arange(4, dtype="int64"),
}


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The small model with a kernel that answers something else, and one weight more its own."""
    folder = tmp_path_factory.mktemp("other")
    save_library(folder, DENSE.replace("T.float32(0)", "T.float32(1)"))
    stored = load_file(folder / "weights.safetensors")
    stored["table"] = stored["table"] * 2
    save_file(stored, folder / "weights.safetensors")
    return folder


@pytest.fixture
def pack(context, tmp_path):
    def make(name, mcpu, **inputs):
        ctx = context(**inputs)
        ctx.facts[Facet.TARGET] = {**TARGET, "mcpu": mcpu}
        PackageStage(pipeline="small", configuration={"version": 1}).run(ctx)
        return (ctx.out / "small.tar").rename(tmp_path / name)

    return make


@pytest.fixture
def parts(pack, other):
    return [pack("v2.tar", "x86-64-v2"), pack("v4.tar", "x86-64-v4", build=other)]


@pytest.fixture
def combined(parts, tmp_path):
    assert combine_packages(parts, tmp_path / "both.tar") == ["x86-64-v2", "x86-64-v4"]
    return tmp_path / "both.tar"


def answers(model):
    return model(GIVEN)["scores"]


def test_the_best_build_that_the_processor_has_is_loaded(combined, parts, monkeypatch):
    needed = cpu.list_required_features({**TARGET, "mcpu": "x86-64-v4"})
    monkeypatch.setattr(cpu, "list_host_features", lambda: frozenset(needed))
    best = answers(open_package(combined))
    np.testing.assert_array_equal(best, answers(open_package(parts[1])))
    monkeypatch.setattr(cpu, "list_host_features", lambda: frozenset(needed) - {"avx512bw"})
    plain = answers(open_package(combined))
    np.testing.assert_array_equal(plain, answers(open_package(parts[0])))
    assert compute_rms(best - plain) > 1e-3
    monkeypatch.setattr(cpu, "list_host_features", lambda: frozenset({"sse3"}))
    with pytest.raises(PackageError, match="built for x86-64-v2, but this CPU"):
        open_package(combined)


def test_weights_that_builds_share_are_stored_once(combined):
    with opened(combined) as contents:
        needs = contents.manifest.needs
        assert needs.signature.weights == ("weight", "table")
        assert [one.needs.signature.weights for one in needs.variants] == [("weight", "v1.table")]
        contents.extract("weights.safetensors", combined.with_name("w"))
        assert "v1.lib.so" in contents.manifest.files
        assert contents.manifest.name == "both"
    stored = read_header(memoryview(combined.with_name("w").read_bytes()))
    assert sorted(stored) == ["table", "v1.table", "weight"]
    assert are_aligned(stored)


def test_the_same_packages_give_the_same_bytes(combined, parts, tmp_path):
    combine_packages(parts[::-1], tmp_path / "again" / "both.tar")
    assert (tmp_path / "again" / "both.tar").read_bytes() == combined.read_bytes()
    assert len(combined.read_bytes()) < sum(len(part.read_bytes()) for part in parts)


def test_commands_state_every_build(combined, parts, tmp_path):
    invoke = CliRunner().invoke
    inspected = invoke(build_app(), ["inspect", str(combined)]).output
    assert "x86_64, x86-64-v2" in inspected
    assert "x86_64, x86-64-v4" in inspected
    verified = invoke(build_app(), ["verify", str(combined)])
    assert verified.exit_code == 0, verified.output
    assert verified.output.count("compared with nothing") == 2
    differ = invoke(build_app(), ["diff", str(parts[0]), str(combined)])
    assert "x86-64-v4" in differ.output
    done = invoke(
        build_app(), ["combine", *map(str, parts), "--output", str(tmp_path / "by" / "c.tar")]
    )
    assert done.output.endswith("c.tar: x86-64-v2, x86-64-v4\n")


def test_an_exported_folder_chooses_as_well(combined, parts, tmp_path):
    folder = export_package(combined, tmp_path / "folder")
    expected = {place: answers(open_package(part)) for place, part in enumerate(parts, 0)
                if cpu.list_host_features() >= set(_features(part))}  # fmt: skip
    for name, array in GIVEN.items():
        np.save(tmp_path / f"{name.replace('/', '.')}.npy", array)
    words = ("--input", f"data/x={tmp_path}/data.x.npy", "--input", f"ids={tmp_path}/ids.npy",
             "--output", str(tmp_path / "out"))  # fmt: skip
    done = run(folder, *words)
    assert done.returncode == 0, done.stderr
    assert run(folder, "--self-test").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "scores.npy"), expected[max(expected)])
    text = (folder / "model.1.txt").read_text()
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("feature")]
    (folder / "model.1.txt").write_text("".join(lines))  # what any processor has
    assert run(folder, *words).returncode == 0
    best = np.load(tmp_path / "out" / "scores.npy")
    assert "processor: x86-64-v4\n" in run(folder, "--describe").stdout
    assert compute_rms(best - expected[0]) > 1e-3
    (folder / "model.1.txt").write_text(text.replace("feature ", "feature x9 x9\nfeature ", 1))
    assert run(folder, *words).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "scores.npy"), expected[0])
    assert "processor: x86-64-v2\n" in run(folder, "--describe").stdout
    plain = (folder / "model.txt").read_text()
    (folder / "model.txt").write_text(plain.replace("feature ", "feature x8 x8\nfeature ", 1))
    lacking = run(folder, *words)
    assert (lacking.returncode, lacking.stderr.count("\n")) == (4, 1)
    assert "lacks x8" in lacking.stderr
    (folder / "model.1.txt").write_text(text[:-4])
    assert run(folder, *words).returncode == 3


def _features(package):
    with opened(package) as contents:
        return contents.manifest.needs.processor.features


def test_packages_that_do_not_belong_together_are_refused(pack, parts, combined, tmp_path, other):
    model = tmp_path / "model"
    model.mkdir()
    imported(
        name="small", inputs=INPUTS, outputs=OUTPUTS, weights=tuple(weights()),
        source_sha256="c" * 64,
    ).write(model)  # fmt: skip
    narrow = tmp_path / "narrow"
    shutil.copytree(other, narrow)
    built = BuiltLibrary.read(narrow)
    outputs = (built.outputs[0].model_copy(update={"name": "scored"}), *built.outputs[1:])
    built.model_copy(update={"outputs": outputs}).write(narrow)
    cases = [
        ([parts[0]], "1 packages: 2 to 4"),
        ([parts[0], parts[0]], "named twice"),
        ([parts[0], pack("same.tar", "x86-64-v2", build=other)], "are for the same features"),
        ([parts[0], combined], "combined already"),
        ([parts[0], pack("model.tar", "x86-64-v3", **{"import": model})], "differ in the model"),
        ([parts[0], pack("narrow.tar", "x86-64-v3", build=narrow)], "differ in their outputs"),
    ]
    for packages, said in cases:
        with pytest.raises(ConfigError, match=said):
            combine_packages(packages, tmp_path / "new.tar")
        assert not (tmp_path / "new.tar").exists()
    with pytest.raises(ConfigError, match="exists"):
        combine_packages(parts, combined)


def test_damage_in_a_build_that_is_not_loaded_is_found(combined, monkeypatch):
    data = combined.read_bytes()
    with opened(combined) as contents:
        start = contents.members["v1.lib.so"].start
    combined.write_bytes(data[: start + 100] + b"damage" + data[start + 106 :])
    here = cpu.list_host_features() - {"avx512f"}
    monkeypatch.setattr(cpu, "list_host_features", lambda: here)
    with pytest.raises(PackageError, match=r"'v1.lib.so' is damaged"):
        open_package(combined)
