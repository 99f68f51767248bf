import json
import subprocess
import tarfile
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.artifacts.signature import LIBRARY
from autopipe.errors import PackageError
from autopipe.packaging import archive, components
from autopipe.packaging.examine import examine_package
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS
from autopipe.packaging.provenance import Statement, parse_manifest
from tests.packaging import packages
from tests.packaging.packages import CONTENTS


@pytest.fixture
def package(tmp_path):
    return packages.make(tmp_path / "made")


def test_a_sound_package_says_what_it_is_wherever_it_would_run(package):
    found = examine_package(package)
    assert (found.name, found.format) == ("demo", 2)
    assert found.sha256 == sha256(package.read_bytes()).hexdigest()
    assert set(found.files) == {COMPONENTS, LIBRARY, WEIGHTS}
    assert found.files[LIBRARY].sha256 == sha256(CONTENTS[LIBRARY]).hexdigest()
    assert found.needs.processor.machine == "riscv64"


def test_a_package_is_the_same_wherever_it_is_made(package, tmp_path):
    again = packages.make(tmp_path / "elsewhere" / "and" / "deeper")
    assert again.read_bytes() == package.read_bytes()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return packages.make(tmp_path_factory.mktemp("sound") / "made")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_byte_is_overlooked(tmp_path, sound, data):
    """Wherever it is: in a header, a file, the manifest, or the end."""
    whole = bytearray(sound.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "flipped.tar"
    path.write_bytes(whole)
    try:
        found = examine_package(path)
    except PackageError as error:
        assert str(path) in str(error)  # noqa: PT017 -- either outcome is looked at
    else:  # what only the manifest knows: that is what a lock is for
        assert found.differences({"demo.tar": sha256(sound.read_bytes()).hexdigest()})


def test_a_changed_byte_is_named(package):
    data = bytearray(package.read_bytes())
    data[data.index(b"machine code")] ^= 1
    package.write_bytes(data)
    with pytest.raises(PackageError, match=r"demo\.tar: 'lib\.so' is damaged: its sha256"):
        examine_package(package)


def test_a_changed_name_is_named(package):
    data = package.read_bytes().replace(b"lib.so\0", b"lib.sO\0")
    package.write_bytes(data)
    with pytest.raises(PackageError, match=r"'lib\.so' does not follow"):
        examine_package(package)


def test_a_changed_size_is_named(package, tmp_path):
    def larger(document):
        document["subject"][1]["annotations"]["size"] += 1

    path = packages.changed(package, manifest=larger)
    with pytest.raises(PackageError, match=r"'lib\.so' is damaged: it has 1200 bytes, 1201 in"):
        examine_package(path)


def test_a_file_too_many_and_one_too_few_are_named(package, tmp_path):
    (tmp_path / "all").mkdir()
    subprocess.run(["tar", "-xf", package, "-C", tmp_path / "all"], check=True)
    paths = {path.name: path for path in (tmp_path / "all").iterdir()}
    extra = tmp_path / "all" / "libscipy_openblas.so"  # a name that a package may have
    extra.write_bytes(b"not asked for")
    archive.write_archive(tmp_path / "more.tar", {**paths, extra.name: extra})
    with pytest.raises(PackageError, match=r"lists .*; there are .*libscipy_openblas\.so"):
        examine_package(tmp_path / "more.tar")
    for name in paths:
        rest = {other: path for other, path in paths.items() if other != name}
        archive.write_archive(tmp_path / "less.tar", rest)
        with pytest.raises(PackageError, match=name.replace(".", r"\.")):
            examine_package(tmp_path / "less.tar")


def component(which, **changes):
    def edit(document):
        (entry,) = [each for each in document["components"] if each["name"] == which]
        entry.update(changes)

    return edit


def drop(document):
    document["components"] = document["components"][1:]


def twice(document):
    document["components"].append(document["components"][0])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (component("onnx", version="1.20.0"), "and the manifest differ in onnx"),
        (component("onnx", purl="pkg:pypi/onnx@1.20.0"), "differ in onnx"),
        (component("model", hashes=[]), "differ in model"),
        (component("lib.so", hashes=[{"alg": "SHA-256", "content": "0" * 64}]), r"in lib\.so"),
        (component("model", hashes=[{"content": []}]), "differ in model"),
        (component("llvm", name="gcc"), "differ in gcc, llvm"),
        (drop, "differ in weights"),
        (twice, "differ in what is there twice"),
        (lambda document: document.pop("components"), "is no component list"),
        (component("onnx", name=None, hashes=3), "is no component list"),
    ],
)
def test_a_component_list_of_something_else_is_refused(package, edit, message):
    with tarfile.open(package, "r:") as tar:
        file = tar.extractfile(COMPONENTS)
        document = json.loads(file.read()) if file else {}
    edit(document)
    path = packages.changed(package, components=json.dumps(document).encode())
    with pytest.raises(PackageError, match=f"components.cdx.json.* {message}"):
        examine_package(path)


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"[" * 100_000, b'{"components": [[]]}'])
def test_what_is_no_component_list_is_refused(text):
    statement = Statement(subject=(), predicate=packages.predicate())
    with pytest.raises(PackageError, match="is no component list"):
        components.check_components(text, statement)


def test_a_package_without_its_component_list_is_refused(package):
    def unlist(document):
        document["subject"] = document["subject"][1:]

    path = packages.changed(package, manifest=unlist, without=(COMPONENTS,))
    with pytest.raises(PackageError, match=r"'components\.cdx\.json' is missing"):
        examine_package(path)


def test_what_differs_from_a_lock_is_named(package):
    found = examine_package(package)
    right = {
        "demo.tar": found.sha256,
        LIBRARY: found.files[LIBRARY].sha256,
        WEIGHTS: found.files[WEIGHTS].sha256,
    }
    assert found.differences(right) == []
    assert found.differences({}) == [f"demo.tar: locked nothing, here {found.sha256[:12]}"]
    assert found.differences({**right, LIBRARY: "0" * 64, "other.tar": "1" * 64}) == [
        f"lib.so: locked {'0' * 12}, here {right[LIBRARY][:12]}",
        f"other.tar: locked {'1' * 12}, here nothing",
    ]


def test_the_statement_is_read_as_it_was_written(package):
    with tarfile.open(package, "r:") as tar:
        file = tar.extractfile(MANIFEST)
        statement = parse_manifest(file.read()) if file else None
    assert isinstance(statement, Statement)
    assert statement.predicate == packages.predicate()
