"""The linker that a pipeline file names: looked for, asked its version, and known by that."""

from pathlib import Path

import pytest

from autopipe.config.target import Target
from autopipe.environment import toolchain
from autopipe.environment.toolchain import Linker, find_architecture, is_foreign
from autopipe.errors import SetupError

FOREIGN = "s390x-linux-gnu"


@pytest.fixture
def cross(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A linker for a sysroot, as far as it is asked anything here."""
    path, sysroot = tmp_path / "cross-gcc", tmp_path / "sysroot"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "cross-gcc 12.2" && echo more && exit\n'
        f'echo "{sysroot}/lib/${{2#-print-file-name=}}"\n'
    )
    path.chmod(0o755)
    (sysroot / "lib").mkdir(parents=True)
    (sysroot / "lib" / "crti.o").write_bytes(b"one")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    toolchain._read_linker_version.cache_clear()
    toolchain._digest_sysroot.cache_clear()
    return path


def test_a_linker_is_known_by_its_version_and_not_by_where_it_lies(cross: Path) -> None:
    by_name = toolchain.describe_toolchain(Target(mtriple=FOREIGN, mcpu="z13", linker=cross.name))
    by_path = toolchain.describe_toolchain(Target(mtriple=FOREIGN, mcpu="z13", linker=str(cross)))
    assert by_name == by_path == {"linker": "cross-gcc 12.2"}
    assert Linker.of(cross.name, None) == Linker(str(cross))
    assert Linker.of(None, None) is None


def test_a_sysroot_is_known_by_what_the_linker_takes_from_it(cross: Path) -> None:
    target = Target(linker=cross.name, sysroot=str(cross.parent / "sysroot"))
    first = toolchain.describe_toolchain(target)
    assert set(first) == {"linker", "sysroot"}
    (cross.parent / "sysroot" / "lib" / "crti.o").write_bytes(b"another")
    toolchain._digest_sysroot.cache_clear()
    assert toolchain.describe_toolchain(target)["sysroot"] != first["sysroot"]
    assert Linker.of(cross.name, "/sdk").options == ["--sysroot=/sdk"]  # type: ignore[union-attr]


def test_a_sysroot_that_the_linker_finds_nothing_in_is_refused(cross: Path, tmp_path: Path) -> None:
    target = Target(linker=cross.name, sysroot=str(tmp_path / "empty"))
    with pytest.raises(SetupError, match="finds no C library in"):
        toolchain.describe_toolchain(target)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nonesuch-gcc", "target.linker: nonesuch-gcc is not on the PATH"),
        ("/nonesuch/gcc", "target.linker: /nonesuch/gcc is no program"),
    ],
)
def test_a_linker_that_is_not_here_is_told(name: str, said: str) -> None:
    with pytest.raises(SetupError) as caught:
        toolchain.describe_toolchain(Target(linker=name))
    assert str(caught.value).startswith(said)


def test_a_program_that_is_no_linker_is_told(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexit 1\n")
    mute.chmod(0o755)
    with pytest.raises(SetupError, match="does not print its version, as linkers do"):
        toolchain.describe_toolchain(Target(linker=str(mute)))


def test_a_machine_is_known_by_the_first_word_of_its_triple() -> None:
    assert find_architecture("arm64-apple-darwin") == "aarch64"
    assert is_foreign(FOREIGN)
    assert not is_foreign(None)
    assert not is_foreign(f"{find_architecture(None)}-linux-gnu")
