import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.library.runtime import LoadedModel
from autopipe.compiler.target import cpu
from autopipe.environment import cuda
from autopipe.environment.cuda import Gpu
from autopipe.errors import ConfigError, PackageError, SetupError
from autopipe.packaging import archive, manifest, provenance
from autopipe.packaging import open as opening
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS
from autopipe.packaging.open import open_package
from autopipe.signing.sign import sign_file
from autopipe.signing.signature import SignedKind, find_signature_path
from autopipe.signing.signers import Signers
from tests.packaging.packages import edit
from tests.signing import keys
from tests.signing.keys import NEEDED
from tests.support import small_build

NAMES = (COMPONENTS, LIBRARY, MANIFEST, WEIGHTS)
NEEDS = ("predicate", "buildDefinition", "internalParameters")


@pytest.fixture
def repacked(package, tmp_path):
    """Change a package: the manifest as a document, the other files as bytes."""

    def change(edit=lambda document: None, **files):
        folder = tmp_path / "unpacked"
        folder.mkdir()
        with archive.open_archive(package, NAMES) as (file, members):
            for name in NAMES:
                archive.extract_member(file, members[name], folder / name)
        document = json.loads((folder / MANIFEST).read_text())
        edit(document)
        (folder / MANIFEST).write_text(json.dumps(document))
        for name, content in files.items():
            (folder / {"lib": LIBRARY, "weights": WEIGHTS}[name]).write_bytes(content)
        out = tmp_path / "repacked.tar"
        archive.write_archive(out, {name: folder / name for name in NAMES})
        return out

    return change


@NEEDED
@pytest.mark.fault("N10", "N12")
def test_only_what_a_signer_signed_is_loaded(package, repacked, tmp_path, monkeypatch):
    key = keys.key(tmp_path, "alice")
    signers = keys.signers(tmp_path, f"alice {keys.public(key)}")
    with package.open("rb") as content:
        sign_file(content, package, SignedKind.PACKAGE, key)
    assert open_package(package, signers=str(signers)).signature.threads == 2
    other = repacked(edit(*NEEDS, "signature", "threads", value=1))
    shutil.copy(find_signature_path(package), find_signature_path(other))
    checked = Signers.check

    def exchange(self, content, path, kind):
        found = checked(self, content, path, kind)
        shutil.copy(other, package)
        return found

    monkeypatch.setattr(Signers, "check", exchange)
    assert open_package(package, Signers(signers)).signature.threads == 2, "not the one of now"
    monkeypatch.setattr(opening, "opened", None)
    for refused in (other, package):
        with pytest.raises(PackageError, match=r"does not count: .* incorrect signature"):
            open_package(refused, signers)


@pytest.mark.fault("E14")
def test_kernels_of_another_gpu_are_refused(repacked, never_loaded, monkeypatch):
    monkeypatch.setattr(cuda, "look", lambda: Gpu("NVIDIA T4", "sm_75", "13.0"))
    package = repacked(edit(*NEEDS, "processor", "gpu", value="sm_90"))
    with pytest.raises(PackageError, match=r"built for sm_90, but this GPU \(NVIDIA T4\) is sm_75"):
        open_package(package)


@pytest.fixture
def never_loaded(monkeypatch):
    def load(*_, **__):
        pytest.fail("the library was loaded")

    monkeypatch.setattr(opening, "load_model", load)


def inputs():
    x = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    return {"data/x": x, "ids": np.array([0, 4, 2, 1])}


def test_a_package_computes_the_model_and_leaves_nothing_behind(package, no_leaks):
    model = open_package(package)
    given = inputs()
    outputs = model(given)
    scores, best = small_build.expected(given["data/x"], given["ids"])
    np.testing.assert_allclose(outputs["scores"], scores, rtol=1e-5)
    np.testing.assert_array_equal(outputs["best"], best)


@pytest.mark.parametrize(
    ("variable", "asked", "threads"), [(None, None, 2), ("1", None, 1), ("1", 3, 3)]
)
def test_threads_are_those_of_the_package_the_user_or_the_call(
    package, monkeypatch, variable, asked, threads
):
    if variable:
        monkeypatch.setenv("TVM_NUM_THREADS", variable)
    model = open_package(package, threads=asked)
    assert model.signature.threads == threads
    assert isinstance(model, LoadedModel)
    assert model._threads._count == threads


@pytest.mark.parametrize("value", ["0", "-1", "two", ""])
def test_a_number_of_threads_that_is_none_is_refused(package, monkeypatch, value):
    monkeypatch.setenv("TVM_NUM_THREADS", value)
    with pytest.raises(ConfigError, match=r"\$TVM_NUM_THREADS is .*; it takes a whole number"):
        open_package(package)
    with pytest.raises(ConfigError, match="instances is 0; it takes a whole number from 1"):
        open_package(package, instances=0, threads=1)


def test_instances_compute_the_model(package):
    given = inputs()
    model = open_package(package, instances=2, threads=1)
    expected = open_package(package)(given)
    for name, array in model(given).items():
        np.testing.assert_array_equal(array, expected[name])


def test_it_needs_no_compiler(package):
    code = (
        "import sys; from autopipe.packaging.open import open_package; "
        "open_package(sys.argv[1]); print('tvm' in sys.modules, 'onnx' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(package)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"


@pytest.mark.fault("C6", "E11")
@pytest.mark.parametrize("file", ["lib", "weights"])
def test_a_damaged_file_is_found_before_anything_is_loaded(repacked, library, never_loaded, file):
    name = {"lib": LIBRARY, "weights": WEIGHTS}[file]
    damaged = bytearray((library / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path = repacked(**{file: bytes(damaged)})
    with pytest.raises(PackageError, match=f"'{name}' is damaged"):
        open_package(path)


@pytest.mark.fault("C6")
def test_a_library_cut_short_never_reaches_the_loader(repacked, library, never_loaded):
    path = repacked(lib=(library / LIBRARY).read_bytes()[:4096])
    with pytest.raises(PackageError, match=r"'lib\.so' is damaged"):
        open_package(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edit("format", value=3), r"manifest\.json does not fit: "),
        (edit("_type", value="https://in-toto.io/Statement/v2"), r"does not fit: _type: "),
        (
            edit(*NEEDS[:2], "buildType", value="urn:autopipe:package:3"),
            r"does not fit: predicate\.buildDefinition\.buildType: .*package:2",
        ),
        (edit(*NEEDS, "signature", "threads", value="x"), r"Parameters\.signature\.threads: "),
        (edit("surprise", value=1), "surprise: Extra inputs are not permitted"),
        (edit("subject", value=[]), "lists no files; there are components"),
        (edit("subject", 0, "name", value="../x"), r"lists \.\./x, lib\.so"),
        (edit("subject", 0, "name", value=LIBRARY), "subject: .*listed twice"),
        (edit("subject", 1, "digest", "sha256", value="no digest"), r"subject\.1\.digest\."),
        (
            edit("subject", 1, "annotations", "size", value=-1),
            r"subject\.1\.annotations\.size",
        ),
        (edit("subject", 1, "annotations", "size", value=1), r"'lib\.so' is damaged: it has"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(repacked, never_loaded, edit, message):
    with pytest.raises(PackageError, match=message):
        open_package(repacked(edit))


@pytest.mark.fault("E14")
def test_another_architecture_is_refused(repacked, never_loaded):
    path = repacked(edit(*NEEDS, "processor", "machine", value="riscv64"))
    with pytest.raises(PackageError, match="built for riscv64, this machine is "):
        open_package(path)


@pytest.mark.fault("E14")
def test_a_processor_without_the_features_is_refused(repacked, never_loaded, monkeypatch):
    path = repacked(edit(*NEEDS, "processor", "mcpu", value="znver5"))
    has = cpu.list_host_features() - {"sse4.2", "popcnt"}
    monkeypatch.setattr(cpu, "list_host_features", lambda: has)
    with pytest.raises(PackageError, match=r"built for znver5, .* has no popcnt, sse4\.2"):
        open_package(path)


@pytest.mark.fault("D19")
def test_another_tvm_is_refused_with_what_to_install(repacked, never_loaded):
    path = repacked(edit(*NEEDS, "runtime", "apache-tvm-ffi", value="0.1.9"))
    with pytest.raises(SetupError) as caught:
        open_package(path)
    installed = manifest.read_installed_runtime()
    assert str(caught.value) == (
        "the package was built for another runtime, "
        f"here is apache-tvm-ffi {installed['apache-tvm-ffi']}: "
        f"pip install apache-tvm=={installed['apache-tvm']} apache-tvm-ffi==0.1.9"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PackageError, match=r"nowhere\.tar: No such file"):
        open_package(tmp_path / "nowhere.tar")


@pytest.mark.fault("E11")
def test_it_is_unpacked_where_only_its_owner_can_look(package, monkeypatch):
    modes = []
    monkeypatch.setattr(
        opening, "load_model", lambda folder, *_, **__: modes.append(folder.stat().st_mode & 0o777)
    )
    open_package(package)
    assert modes == [0o700]


@pytest.mark.parametrize("text", [b"", b"[]", b"[" * 100_000, b'{"format": NaN}', b"\xff"])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(PackageError, match=r"manifest\.json does not fit: "):
        provenance.parse_manifest(text)
