"""Files of real inputs: whoever wrote one, it is data, and it fits or it is refused in a line."""

import io
import zipfile

import numpy as np
import pytest

from autopipe.artifacts.signature import Port
from autopipe.compiler.library import samples
from autopipe.config.dimension import Dimension
from autopipe.errors import ConfigError
from tests.support.table import each_row

PORTS = (
    Port(name="a/x:0", shape=(2, 3), dtype="float32"),
    Port(name="ids", shape=(4,), dtype="int64"),
)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([0, 4, -5, 1])


def saved(path, save=np.savez, **arrays):
    save(path, **{"a/x:0": X, "ids": IDS} | arrays)
    return path


@each_row("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_by_name(tmp_path, save):
    path = saved(tmp_path / "in.npz", save, **{"a/x:0": np.asfortranarray(X)})
    found = samples.load(path, PORTS, {"ids": 5})
    assert list(found) == ["a/x:0", "ids"]
    np.testing.assert_array_equal(found["a/x:0"], X)
    np.testing.assert_array_equal(found["ids"], IDS)
    assert all(array.flags.c_contiguous and array.flags.writeable for array in found.values())
    samples.check_file(path, PORTS)


def test_the_only_input_needs_no_name(tmp_path):
    np.savez(tmp_path / "in.npz", X)
    np.testing.assert_array_equal(samples.load(tmp_path / "in.npz", PORTS[:1])["a/x:0"], X)


def test_a_number_alone_is_an_array(tmp_path):
    np.savez(tmp_path / "in.npz", s=np.float64(2))
    port = Port(name="s", shape=(), dtype="float64")
    assert samples.load(tmp_path / "in.npz", [port])["s"] == 2


@each_row(
    "arrays, says",
    [
        ({"ids": IDS.astype(np.int32)}, "input 'ids' is int32 [4]; the model takes int64 [4]"),
        ({"ids": IDS[:3]}, "input 'ids' is int64 [3]; the model takes int64 [4]"),
        ({"ids": IDS.astype(">i8")}, "input 'ids' is >i8 [4]; the model takes int64 [4]"),
        ({"ids": IDS + 2}, "input 'ids' holds 6, and selects from 5 entries"),
        ({"ids": IDS - 1}, "input 'ids' holds -6, and selects from 5 entries"),
        ({"idz": IDS}, "the model has no input 'idz'; did you mean 'ids'?"),
        ({"zzzzzz": IDS}, "the model has no input 'zzzzzz'; it takes a/x:0, ids"),
        ({"ids": np.array([{}] * 4)}, "input 'ids' is object [4]; the model takes int64 [4]"),
        ({"more": np.zeros(300_000)}, "bytes are more than the inputs of the model, 56 bytes"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(tmp_path, arrays, says):
    path = saved(tmp_path / "in.npz", **arrays)
    with pytest.raises(ConfigError) as refused:
        samples.load(path, PORTS, {"ids": 5})
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert message.isprintable()


def npy(array, **header):
    """Return the bytes of a `.npy` file whose header may lie."""
    file = io.BytesIO()
    said = {"descr": "<i8", "fortran_order": False, "shape": array.shape, **header}
    np.lib.format.write_array_header_1_0(file, said)
    return file.getvalue() + array.tobytes()


def packed(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)


IDS_ALONE = PORTS[1:]


@pytest.mark.fault("A15")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@each_row(
    "members, says",
    [
        ([], "input 'ids' int64 [4] is missing; there is nothing"),
        ([("x.npy", b"")], "input 'ids' int64 [4] is missing; there is x"),
        ([("ids.npy", npy(IDS)), ("ids.npy", npy(IDS))], "two arrays have one name"),
        ([("ids.npy", npy(IDS)), ("ids", npy(IDS))], "two arrays have one name"),
        ([("ids.npy", npy(IDS[:2], shape=(4,)))], "its data is not as long as it says"),
        ([("ids.npy", npy(np.zeros(10**7, np.int64), shape=(4,)))], "not as long as it says"),
        ([("ids.npy", npy(IDS, shape=(2**60,)))], "is int64 [1152921504606846976]"),
        (
            [("ids.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)],
            "no array has a header as long",
        ),
        ([("ids.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 10**7)], "a header as long"),
        ([("ids.npy", b"\x93NUMPY\x01\x00\x00\x20" + b"(" * 8192)], "not a .npz file: "),
        ([("ids.npy", b"no array")], "not a .npz file: "),
        ([("ids.npy", b"")], "not a .npz file: "),
        ([("\x1b[31m.npy", npy(IDS))], r"is missing; there is \x1b[31m"),
    ],
)
def test_a_file_that_lies_is_refused(tmp_path, members, says):
    """Ten million numbers that take a few kilobytes are not unpacked, and no header of 4 GiB."""
    packed(tmp_path / "in.npz", members)
    for read in (samples.load, samples.check_file):
        if read is samples.check_file and "not as long" in says:
            continue  # which reads headers alone
        with pytest.raises(ConfigError) as refused:
            read(tmp_path / "in.npz", IDS_ALONE)
        assert says in str(refused.value)
        assert str(refused.value).isprintable()


def test_what_is_no_such_file_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("text")
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "cut.npz").write_bytes(saved(tmp_path / "in.npz").read_bytes()[:-30])
    for name in ("text.npz", "x.npy", "cut.npz", "nowhere.npz", "."):
        with pytest.raises(ConfigError, match=r"not a \.npz file|No such file|Is a directory"):
            samples.load(tmp_path / name, PORTS)


OPEN = Port(name="x", shape=(-1, 3), dtype="float32", dimensions=("batch", ""))
MASK = Port(name="m", shape=(-1,), dtype="int64", dimensions=("batch",))
BATCH = {"batch": Dimension(min=2, max=8, multiple=2, likely=(4,))}


def test_a_file_has_its_own_sizes(tmp_path):
    np.savez(tmp_path / "in.npz", x=np.ones((6, 3), np.float32), m=np.ones(6, np.int64))
    samples.check_file(tmp_path / "in.npz", (OPEN, MASK), BATCH)
    sizes = samples.read_sizes(tmp_path / "in.npz", (OPEN, MASK), BATCH)
    assert sizes == {"batch": 6}
    found = samples.load(tmp_path / "in.npz", (OPEN.at(sizes), MASK.at(sizes)))
    assert found["x"].shape == (6, 3)


@each_row(
    "x, m, says",
    [
        ((9, 3), 9, "dimension 0 (batch) is 9, which is not from 2 to 8"),
        ((10**12, 3), 2, "dimension 0 (batch) is 1000000000000, which is not from 2 to 8"),
        ((3, 3), 3, "dimension 0 (batch) is 3, which is no multiple of 2"),
        ((4, 3), 6, "input 'm': dimension 0 (batch) is 6, and 4 in another place"),
        ((4,), 4, "input 'x' has 1 dimensions; the model takes float32 [batch, 3]"),
        ((4, 2), 4, "input 'x' is int64 [4, 2]; the model takes float32 [4, 3]"),
        (None, 4, "input 'x' float32 [batch, 3] is missing; there is m"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, x, m, says):
    members = [("m.npy", npy(np.ones(m, np.int64)))]
    if x is not None:
        members.append(("x.npy", npy(np.ones((2, 3), np.float32), shape=x)))
    packed(tmp_path / "in.npz", members)
    with pytest.raises(ConfigError) as refused:
        samples.check_file(tmp_path / "in.npz", (OPEN, MASK), BATCH)
    assert says in str(refused.value)
