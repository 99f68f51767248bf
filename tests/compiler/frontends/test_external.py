import os

import numpy as np
import pytest

from autopipe.compiler.frontends.onnx.reading import gate, source, tensors
from autopipe.errors import ModelError
from autopipe.formats import external_data
from tests.compiler.frontends.models import dense, external, ints, model, node, save, value


def admitted(path):
    vetted = gate.vet_model(source.read_model_file(path), path, {})
    return tensors.read_array(vetted.weights["weight"], path)


def refusal(path):
    with pytest.raises(ModelError) as refused:
        admitted(path)
    return str(refused.value)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    return made


def expected():
    return np.frombuffer(dense().graph.initializer[0].raw_data, np.float32).reshape(3, 4)


def test_external_data_is_read(folder):
    made = dense()
    data = external(made, "sub/data.bin", offset=4, length=48)
    (folder / "sub").mkdir()
    (folder / "sub/data.bin").write_bytes(b"1234" + data)
    path = save(made, folder)
    assert np.array_equal(admitted(path), expected())
    assert external_data.list_files(path) == {
        "model": path,
        "data:sub/data.bin": folder / "sub/data.bin",
    }


def test_a_shape_stored_outside_is_read_for_inference(folder):
    made = model(
        [node("Reshape", ["x", "shape"])],
        [value("x", [2, 3])],
        [value("y", [6])],
        [ints("shape", 6)],
    )
    (folder / "data.bin").write_bytes(external(made))
    path = save(made, folder)
    assert gate.vet_model(source.read_model_file(path), path, {}).shapes["y"] == (6,)


@pytest.mark.fault("B3", "B5", "G15")
@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("../secret.bin", "outside the folder"),
        ("sub/../../secret.bin", "outside the folder"),
        ("/etc/passwd", "outside the folder"),
        ("", "not a file name"),
        ("data.bin\0.txt", "not a file name"),
        ("sub\\data.bin", "not a file name"),
        ("missing.bin", "No such file"),
        (".", "not a file name"),
        ("sub", "not a regular file"),
        ("link.bin", "links outside"),
        ("linked/secret.bin", "links outside"),
        ("circle.bin", "symbolic links|circle"),
        ("hard.bin", "hard link"),
        ("pipe", "not a regular file"),
    ],
)
def test_other_files_are_never_read(tmp_path, folder, location, told):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(48))
    (folder / "sub").mkdir()
    (folder / "link.bin").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "circle.bin").symlink_to("circle.bin")
    os.link(secret, folder / "hard.bin")
    os.mkfifo(folder / "pipe")
    made = dense()
    external(made, location)
    path = save(made, folder)
    with pytest.raises(ModelError, match=told) as refused:
        admitted(path)
    assert "'weight'" in str(refused.value)
    assert external_data.list_files(path) == {"model": path}


@pytest.mark.fault("B6")
def test_links_inside_the_folder_are_followed(folder):
    made = dense()
    (folder / "real.bin").write_bytes(external(made))
    (folder / "data.bin").symlink_to("real.bin")
    assert np.array_equal(admitted(save(made, folder)), expected())


@pytest.mark.fault("B6")
def test_a_model_hubs_cache_of_links_is_read(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    made = dense()
    (blobs / "d").write_bytes(external(made))
    save(made, blobs, "m")
    (snapshot / "model.onnx").symlink_to("../../blobs/m")
    (snapshot / "data.bin").symlink_to("../../blobs/d")
    path = snapshot / "model.onnx"
    assert np.array_equal(admitted(path), expected())
    assert external_data.list_files(path)["data:data.bin"] == blobs / "d"


@pytest.mark.fault("B5")
@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"offset": -1}, "offset of external data is '-1'"),
        ({"offset": 10**15}, "needs 48 bytes of external data at 1000000000000000"),
        ({"offset": "9" * 5000}, "not a number"),
        ({"offset": "\u0661"}, "not a number"),
        ({"length": 10**15}, "claims 1000000000000000"),
        ({"length": 12}, "claims 12"),
        ({"offset": 1}, "has 48"),
    ],
)
def test_an_extent_that_is_not_there_is_refused(folder, entries, told):
    made = dense()
    (folder / "data.bin").write_bytes(external(made, **entries))
    assert told in refusal(save(made, folder))


@pytest.mark.fault("B4")
def test_a_short_file_is_refused(folder):
    made = dense()
    (folder / "data.bin").write_bytes(external(made)[:-1])
    told = refusal(save(made, folder))
    assert told == (
        "tensor 'weight' needs 48 bytes of external data at 0; it claims 48, "
        "and the file 'data.bin' has 47"
    )


def test_a_location_in_another_encoding_is_refused(folder):
    """Its file would not be in the cache key."""
    made = dense()
    (folder / "data.bin").write_bytes(external(made))
    path = save(made, folder)
    entry = b"\x0a\x08location\x12\x08data.bin"
    swapped = b"\x12\x08data.bin\x0a\x08location"
    data = path.read_bytes()
    assert data.count(entry) == 1
    path.write_bytes(data.replace(entry, swapped))
    assert "unusual encoding" in refusal(path)


def test_files_of_something_else_are_the_file_itself(tmp_path):
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert external_data.list_files(empty) == {"model": empty}
    missing = tmp_path / "missing.onnx"
    assert external_data.list_files(missing) == {"model": missing}


def test_files_finds_a_long_location(folder):
    name = "n" * 200
    made = dense()
    (folder / name).write_bytes(external(made, name))
    assert f"data:{name}" in external_data.list_files(save(made, folder))
