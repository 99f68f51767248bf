import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autopipe.errors import PackageError
from autopipe.host.copy_file import STRETCH
from autopipe.packaging import archive

NAMES = ("a.txt", "b.bin")


def written(folder, a=b"first", b=bytes(700)):
    for name, content in zip(NAMES, (a, b), strict=True):
        (folder / name).write_bytes(content)
    out = folder / "out.tar"
    archive.write_archive(out, {name: folder / name for name in NAMES})
    return out


def contents(path):
    with archive.open_archive(path, NAMES) as (file, members):
        return [archive.read_member(file, members[name], 1 << 20) for name in NAMES]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 100_000])
def test_what_is_written_is_read(tmp_path, size):
    path = written(tmp_path, b=b"x" * size)
    assert contents(path) == [b"first", b"x" * size]
    with archive.open_archive(path, NAMES) as (file, members):
        archive.extract_member(file, members["b.bin"], tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x" * size


def test_the_bytes_of_all_files_are_reported(tmp_path):
    reported: list[int] = []
    for name, content in zip(NAMES, (b"first", bytes(2 * STRETCH + 1)), strict=True):
        (tmp_path / name).write_bytes(content)
    files = {name: tmp_path / name for name in NAMES}
    archive.write_archive(tmp_path / "out.tar", files, reported.append)
    assert reported == [5, STRETCH, STRETCH, 1]


@pytest.mark.fault("E10")
def test_tar_can_read_it_and_finds_nothing_of_this_machine(tmp_path):
    with tarfile.open(written(tmp_path), "r:") as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == list(NAMES)
    for member in members:
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert (member.mtime, member.mode, member.isreg()) == (0, 0o644, True)


@pytest.mark.fault("E10")
def test_time_owner_mode_and_place_of_the_files_do_not_matter(tmp_path):
    first, second = tmp_path / "first", tmp_path / "a" / "second"
    second.mkdir(parents=True)
    first.mkdir()
    written(first)
    written(second)
    os.utime(second / "a.txt", (1, 1))
    (second / "a.txt").chmod(0o600)
    archive.write_archive(second / "out.tar", {name: second / name for name in reversed(NAMES)})
    assert (first / "out.tar").read_bytes() == (second / "out.tar").read_bytes()


def hostile(change):
    """Make an archive of the right names with one member changed."""

    def make(path):
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for name in NAMES:
                entry = tarfile.TarInfo(name)
                entry.size = 4
                if name == "b.bin":
                    change(entry)
                tar.addfile(entry, io.BytesIO(b"data"))

    return make


def attribute(**values):
    def change(entry):
        for name, value in values.items():
            setattr(entry, name, value)

    return hostile(change)


def members(*names):
    def make(path):
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for name in names:
                entry = tarfile.TarInfo(name)
                tar.addfile(entry, io.BytesIO(b""))

    return make


def sparse(path):
    entry = tarfile.TarInfo("b.bin")
    entry.type = tarfile.GNUTYPE_SPARSE
    members("a.txt")(path)
    path.write_bytes(path.read_bytes()[:512] + entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def huge(path):
    entry = tarfile.TarInfo("b.bin")
    entry.size = 10 << 30
    members("a.txt")(path)
    path.write_bytes(path.read_bytes()[:512] + entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


@pytest.mark.fault("E11")
@pytest.mark.parametrize(
    "make",
    [
        attribute(name="../b.bin"),
        attribute(name="/b.bin"),
        attribute(name="./b.bin"),
        attribute(type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        attribute(type=tarfile.LNKTYPE, linkname="a.txt", size=0),
        attribute(type=tarfile.CHRTYPE, devmajor=1, devminor=5, size=0),
        attribute(type=tarfile.FIFOTYPE, size=0),
        attribute(type=tarfile.DIRTYPE, size=0),
        attribute(type=tarfile.XHDTYPE),
        attribute(mtime=1),
        attribute(uid=1000),
        attribute(uname="somebody"),
        attribute(mode=0o4755),
        members("a.txt", "a.txt"),
        members("b.bin", "a.txt"),
        members("a.txt"),
        members("a.txt", "b.bin", "c"),
        members("a.txt", "b.bin", "b.bin"),
        members(),
        sparse,
        huge,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no tar at all" * 100),
        lambda path: path.write_bytes(b"\x1f\x8b" + bytes(2000)),
        lambda path: path.mkdir(),
        os.mkfifo,
    ],
)
def test_what_is_not_written_by_autopipe_is_refused(tmp_path, make):
    path = tmp_path / "hostile.tar"
    make(path)
    with pytest.raises(PackageError, match=r"hostile\.tar: "):
        contents(path)


def test_what_it_compares_with_would_pass(tmp_path):
    members(*NAMES)(tmp_path / "good.tar")
    data = (tmp_path / "good.tar").read_bytes()[: 4 * 512]  # tarfile pads to 20 blocks
    (tmp_path / "good.tar").write_bytes(data)
    assert contents(tmp_path / "good.tar") == [b"", b""]


@pytest.mark.fault("E11")
@settings(max_examples=60)
@given(st.data())
def test_no_flipped_byte_outside_the_files_is_overlooked(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("flip")
    path = written(folder)
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    first, second = range(512, 517), range(1536, 2236)
    try:
        contents(path)
    except PackageError:
        assert at not in {*first, *second}
    else:
        assert at in {*first, *second}  # what the digests are for


@pytest.mark.fault("E11")
@pytest.mark.parametrize(
    ("length", "message"),
    [
        (0, "'a.txt' does not follow"),
        (100, "'a.txt' does not follow"),
        (512, "ends within 'a.txt'"),
        (600, "ends within 'a.txt'"),
        (2047, "ends within 'a.txt'"),
        (2100, "ends within 'b.bin'"),
        (3583, "ends within 'b.bin'"),
    ],
)
def test_a_shortened_archive_is_refused(tmp_path, length, message):
    path = written(tmp_path, b=bytes(600))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(PackageError, match=message):
        contents(path)


@pytest.mark.fault("E11")
def test_a_file_beyond_its_limit_is_not_read(tmp_path):
    with (
        archive.open_archive(written(tmp_path), NAMES) as (file, members),
        pytest.raises(PackageError, match="700 bytes, where 699 is the limit"),
    ):
        archive.read_member(file, members["b.bin"], 699)


@pytest.mark.parametrize("there", [(), ("a.opt",), ("c.opt",), ("a.opt", "c.opt")])
def test_optional_files_may_be_there_or_not(tmp_path, there):
    files = {name: tmp_path / name for name in (*NAMES, *there)}
    for name, path in files.items():
        path.write_text(name)
    archive.write_archive(tmp_path / "out.tar", files)
    with archive.open_archive(tmp_path / "out.tar", NAMES, ("a.opt", "c.opt")) as (file, members):
        assert {name: archive.read_member(file, each, 99) for name, each in members.items()} == {
            name: name.encode() for name in files
        }


def test_an_optional_file_is_in_its_place_or_refused(tmp_path):
    files = {name: tmp_path / name for name in (*NAMES, "a.opt")}
    for path in files.values():
        path.write_bytes(b"data")
    with tarfile.open(tmp_path / "out.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("a.txt", "b.bin", "a.opt"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"data"))
    with (
        pytest.raises(PackageError, match="something after the last file"),
        archive.open_archive(tmp_path / "out.tar", NAMES, ("a.opt",)),
    ):
        pytest.fail("it was opened")


@pytest.mark.fault("E11")
def test_a_link_in_place_of_an_optional_file_is_refused(tmp_path):
    with tarfile.open(tmp_path / "out.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        link = tarfile.TarInfo("a.opt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name in NAMES:
            tar.addfile(tarfile.TarInfo(name))
    with (
        pytest.raises(PackageError, match=r"'a.txt' does not follow"),
        archive.open_archive(tmp_path / "out.tar", NAMES, ("a.opt",)),
    ):
        pytest.fail("it was opened")
