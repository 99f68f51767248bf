import json
import os
import subprocess
import sys
from hashlib import sha256

import pytest

from autopipe.cli.app import main
from autopipe.lock import text
from autopipe.lock.document import Lock
from tests.lock.examples import TARGET
from tests.packaging import packages
from tests.support import forked

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def package(tmp_path):
    return packages.make(tmp_path / "made")


@pytest.fixture
def cli(tmp_path):
    def run(*arguments):
        return forked.run(main, ("verify", *arguments), tmp_path, os.environ)

    return run


@pytest.fixture
def lock(tmp_path):
    def write(**artifacts):
        value = Lock(
            version=1, pipeline="demo", configuration={}, sources={}, target=TARGET, versions={},
            stages={}, records=None, tasks=(),
            artifacts={name.replace("_", "."): digest for name, digest in artifacts.items()},
        )  # fmt: skip
        path = tmp_path / "demo.lock"
        path.write_text(text.format_lock(value))
        return path.name

    return write


def digest(content):
    return sha256(content).hexdigest()


def test_a_sound_package_is_told(cli, package):
    done = cli(package)
    assert (done.returncode, done.stderr) == (0, "")
    whole = digest(package.read_bytes())
    assert done.stdout.splitlines()[0] == f"demo: format 2, sha256 {whole}"
    assert digest(packages.CONTENTS["lib.so"]) in done.stdout
    assert "compiled for riscv64 sifive-x280" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "sound: 3 files, each as the manifest says",
        "its libraries are programs: only a signature proves their origin, see --signers",
    ]


@pytest.mark.fault("I6")
@pytest.mark.parametrize("stripped", [False, True])
def test_nothing_is_claimed_of_the_code_of_a_library(cli, tmp_path, monkeypatch, stripped):
    """The loader goes by program headers: section headers, which name constructors, may be gone."""
    code, library, mark = (tmp_path / name for name in ("code.c", "lib.so", "mark"))
    code.write_text(
        f"int creat(const char *, int);\n"
        f'__attribute__((constructor)) static void f(void) {{ creat("{mark}", 0600); }}'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True)
    data = bytearray(library.read_bytes())
    if stripped:
        data[0x28:0x30], data[0x3A:0x40] = bytes(8), bytes(6)  # where sections are, and how many
        library.write_bytes(data)
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    subprocess.run([sys.executable, "-c", load, library], check=True)
    assert mark.exists()
    mark.unlink()
    monkeypatch.setitem(packages.CONTENTS, "lib.so", bytes(data))
    done = cli(packages.make(tmp_path / "hostile"))
    assert (done.returncode, mark.exists()) == (0, False)
    assert "only a signature proves their origin" in done.stdout


@pytest.mark.fault("G8")
def test_a_package_is_held_against_its_lock(cli, package, lock):
    lib = digest(packages.CONTENTS["lib.so"])
    good = cli(package, "--lock", lock(demo_tar=digest(package.read_bytes()), lib_so=lib))
    assert (good.returncode, good.stdout.splitlines()[-2]) == (0, "equal to demo.lock")
    bad = cli(package, "--lock", lock(demo_tar="1" * 64, lib_so=lib))
    assert bad.returncode == 1
    assert bad.stderr.splitlines() == [
        f"error: {package} is sound, but not what demo.lock says:",
        f"demo.tar: locked 111111111111, here {digest(package.read_bytes())[:12]}",
    ]


def test_a_lock_that_does_not_name_the_package_is_not_its_lock(cli, package, lock):
    for artifacts in ({}, {"lib_so": digest(packages.CONTENTS["lib.so"])}):
        done = cli(package, "--lock", lock(**artifacts))
        assert (done.returncode, "equal to" in done.stdout) == (1, False)
        whole = digest(package.read_bytes())[:12]
        assert done.stderr.splitlines()[1:] == [f"demo.tar: locked nothing, here {whole}"]


def test_json_has_all_of_it(cli, package, lock):
    done = cli(package, "--json", "--lock", lock(demo_tar="1" * 64))
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert (found["name"], found["format"]) == ("demo", 2)
    assert found["files"]["lib.so"]["size"] == len(packages.CONTENTS["lib.so"])
    assert found["needs"]["runtime"] == {"apache-tvm": "99"}
    assert found["differs"][0].startswith("demo.tar: locked 1111")


def test_a_damaged_package_and_an_unreadable_lock_have_their_own_codes(cli, package, tmp_path):
    (tmp_path / "bad.lock").write_text("<<<<<<< ours\n")
    assert cli(package, "--lock", "bad.lock").returncode == 6
    assert cli(package, "--lock", "nowhere.lock").returncode == 6
    package.write_bytes(package.read_bytes().replace(b"machine c", b"Machine c", 1))
    done = cli(package)
    assert (done.returncode, done.stdout) == (3, "")
    damaged = "'lib.so' is damaged: its sha256 is not the manifest's"
    assert done.stderr == f"error: {package}: {damaged}\n"
    assert cli("nowhere.tar").returncode == 3


def test_a_hostile_name_does_not_reach_the_terminal(cli, package):
    def rename(document):
        definition = document["predicate"]["buildDefinition"]
        definition["externalParameters"]["pipeline"] = "\x1b[31mred"
        definition["internalParameters"]["verification"] = "fine\nsound: 99 files"

    done = cli(packages.changed(package, manifest=rename))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "compared with fine\\nsound: 99 files" in done.stdout


def test_neither_tvm_nor_numpy_nor_the_library_is_loaded(package):
    code = (
        "import sys; from pathlib import Path;"
        "from autopipe.packaging.examine import examine_package;"
        "import autopipe.cli.app; examine_package(Path(sys.argv[1]));"
        "print({'tvm', 'tvm_ffi', 'numpy', 'cyclonedx', 'onnx'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code, str(package)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"
