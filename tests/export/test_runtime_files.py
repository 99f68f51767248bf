"""TVM's runtime is taken out of wheels, of which nothing else is believed."""

import zipfile
from hashlib import sha256

import pytest

from autopipe.errors import PackageError, SetupError
from autopipe.export.runtime_files import unpack_wheels
from tests.support.table import each_row

VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
TVM = "apache_tvm-0.27.0.post1-py3-none-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl"
FFI = "apache_tvm_ffi-0.1.14.post1-cp311-cp311-manylinux_2_24_aarch64.manylinux_2_28_aarch64.whl"
FILES = {
    TVM: {
        "tvm/lib/libtvm_runtime.so": b"runtime",
        "tvm/lib/libtvm_runtime_extra.so": b"extra",
        "tvm/lib/libtvm_compiler.so": b"large",
        "tvm/licenses/LICENSE.vllm.txt": b"licence",
    },
    FFI: {
        "tvm_ffi/lib/libtvm_ffi.so": b"ffi",
        "tvm_ffi/include/tvm/ffi/c_api.h": b"header",
        "apache_tvm_ffi-0.1.14.post1.dist-info/licenses/NOTICE": b"notice",
    },
}


def write(folder, files=FILES):
    folder.mkdir()
    for name, members in files.items():
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for path, data in members.items():
                wheel.writestr(path, data)
    return folder


def test_only_what_is_needed_is_taken_out(tmp_path):
    wheels = write(tmp_path / "wheels")
    found = unpack_wheels("aarch64", VERSIONS, [wheels / FFI, wheels], tmp_path / "out")
    assert {path.name: path.read_bytes() for path in found.libraries} == {
        "libtvm_runtime.so": b"runtime", "libtvm_runtime_extra.so": b"extra",
        "libtvm_ffi.so": b"ffi",
    }  # fmt: skip
    assert (found.headers / "tvm/ffi/c_api.h").read_bytes() == b"header"
    assert sorted(found.licences) == ["apache-tvm-ffi.NOTICE", "apache-tvm.LICENSE.vllm.txt"]
    assert not list((tmp_path / "out").rglob("*compiler*"))
    digest = sha256((wheels / TVM).read_bytes()).hexdigest()
    assert found.origins[0] == f"apache-tvm 0.27.0.post1, {TVM}, sha256 {digest}"


@each_row(
    "name, other",
    [
        (TVM, TVM.replace("post1", "post2")),
        (TVM, TVM.replace("aarch64", "x86_64")),
        (FFI, FFI.replace("apache_tvm_ffi", "apache_tvm_fake")),
        (FFI, FFI.replace("manylinux_2_24_aarch64.manylinux_2_28_aarch64", "macosx_11_aarch64")),
    ],
)
def test_a_wheel_of_something_else_is_none(tmp_path, name, other):
    files = {other if each == name else each: members for each, members in FILES.items()}
    wheels = write(tmp_path / other, files)
    with pytest.raises(SetupError) as caught:
        unpack_wheels("aarch64", VERSIONS, [wheels], tmp_path / f"{other}.out")
    assert str(caught.value).endswith(
        "pip download --only-binary :all: --no-deps --platform manylinux_2_28_aarch64 -d wheels "
        "apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1"
    )


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SetupError, match="nowhere: there is no such file or folder"):
        unpack_wheels("aarch64", VERSIONS, [tmp_path / "nowhere"], tmp_path / "out")


@each_row(
    "label, members, said",
    [
        ("lacking", {"tvm/lib/libtvm_runtime.so": b""}, "libtvm_runtime_extra.so is missing"),
        ("escaping", {**FILES[TVM], "tvm/licenses/../../../LICENSE": b""}, "leads out of it"),
        ("absolute", {**FILES[TVM], "/tmp/licenses/LICENSE": b""}, "leads out of it"),
    ],
)
def test_a_hostile_wheel_is_refused(tmp_path, label, members, said):
    wheels = write(tmp_path / label, {**FILES, TVM: members})
    with pytest.raises(PackageError, match=said):
        unpack_wheels("aarch64", VERSIONS, [wheels], tmp_path / f"{label}.out")
    assert not (tmp_path / "LICENSE").exists()


@each_row("label, change", [("text", lambda _: b"text"), ("cut", lambda data: data[:-30])])
def test_a_damaged_wheel_is_one_line(tmp_path, label, change):
    wheels = write(tmp_path / label)
    (wheels / TVM).write_bytes(change((wheels / TVM).read_bytes()))
    with pytest.raises(PackageError, match="not a wheel") as caught:
        unpack_wheels("aarch64", VERSIONS, [wheels], tmp_path / f"{label}.out")
    assert "\n" not in str(caught.value)
