"""Commands that sign, and those that ask for a signature."""

import json
import subprocess
import sys
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from autopipe.cli.app import main
from tests.packaging import packages
from tests.signing import keys
from tests.signing.keys import NEEDED

pytestmark = pytest.mark.usefixtures("no_leaks")

GOOD = "version: 1\nname: demo\nmodel: {path: model.txt}\n"


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run our command line, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autopipe", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        told, code = capsys.readouterr(), end.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return run


@pytest.fixture
def folder(tmp_path):
    """A package and a lock, keys of alice and bob, and a file of signers with alice alone."""
    alice, _ = (keys.key(tmp_path, name) for name in ("alice", "bob"))
    keys.signers(tmp_path, f"alice {keys.public(alice)}")
    package = packages.make(tmp_path / "made").rename(tmp_path / "demo.tar")
    assert package.exists()
    keys.lock(tmp_path)
    (tmp_path / "demo.yaml").write_text(GOOD)
    (tmp_path / "model.txt").write_text("abc")
    return tmp_path


SIGNERS = ("--signers", "signers")


@NEEDED
@pytest.mark.fault("N6")
@pytest.mark.parametrize("name", ["demo.tar", "demo.lock"])
def test_what_is_signed_is_verified_and_stays_the_same_bytes(cli, folder, name):
    before = (folder / name).read_bytes()
    done = cli("sign", name, "--key", "alice")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wrote {name}.sig\n", "")
    assert (folder / name).read_bytes() == before
    assert not list(folder.glob(".*"))
    done = cli("verify", name, *SIGNERS)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{name} is signed by alice with ED25519 key SHA256:" in done.stdout.splitlines()[-1]
    found = json.loads(cli("verify", name, *SIGNERS, "--json").stdout)
    assert found["signer"]["identity"] == "alice"
    assert json.loads(cli("verify", name, "--json").stdout)["signer"] is None
    kind = "autopipe-package" if name.endswith(".tar") else "autopipe-lock"
    by_hand = ("ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "alice", "-n", kind, "-s")
    with (folder / name).open("rb") as content:
        subprocess.run([*by_hand, f"{name}.sig"], cwd=folder, stdin=content, check=True)


@NEEDED
@pytest.mark.fault("N7", "N8")
@pytest.mark.parametrize("name", ["demo.tar", "demo.lock"])
def test_verify_says_no_and_says_why(cli, folder, name):
    done = cli("verify", name, *SIGNERS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {name}: not signed: {name}.sig is not beside it\n"
    cli("sign", name, "--key", "bob")
    done = cli("verify", name, *SIGNERS)
    assert (done.returncode, done.stdout) == (1, "")
    assert "its key is not one that signers names" in done.stderr
    cli("sign", name, "--key", "alice")
    assert cli("verify", name, *SIGNERS, "--identity", "alice").returncode == 0
    assert cli("verify", name, *SIGNERS, "--identity", "bob").returncode == 1
    assert cli("verify", name, *SIGNERS, "--revoked", "alice.pub").returncode == 1
    other = {"demo.tar": "demo.lock", "demo.lock": "demo.tar"}[name]
    (folder / f"{name}.sig").rename(folder / f"{other}.sig")
    assert cli("verify", other, *SIGNERS).returncode == 1
    assert cli("verify", name, "--signers", "nowhere").returncode == 2
    assert cli("verify", name, "--identity", "alice").returncode == 2


@NEEDED
@pytest.mark.fault("N10")
def test_a_signed_lock_vouches_for_its_records_and_for_a_package(cli, folder):
    whole = cli("verify", "demo.tar", "--json")
    digest = json.loads(whole.stdout)["sha256"]
    keys.lock(folder, artifacts={"demo.tar": digest})
    cli("sign", "demo.lock", "--key", "alice")
    both = ("verify", "demo.tar", "--lock", "demo.lock", *SIGNERS)
    done = cli(*both)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("demo.lock is signed by alice with ")
    records = folder / "demo.records.jsonl"
    records.write_text(records.read_text() + "{}\n")
    assert cli(*both).returncode == 0, "a package needs no records"
    done = cli("verify", "demo.lock", *SIGNERS)
    assert (done.returncode, "not the records that demo.lock names" in done.stderr) == (6, True)
    assert cli("sign", "demo.lock", "--key", "alice").returncode == 6
    keys.lock(folder, artifacts={})
    assert cli(*both).returncode == 1, "the lock is another one now"
    cli("sign", "demo.lock", "--key", "alice")
    done = cli(*both)
    assert (done.returncode, "demo.tar: locked nothing" in done.stderr) == (1, True)


@NEEDED
@pytest.mark.fault("N6")
def test_only_what_is_sound_is_signed(cli, folder):
    package = folder / "demo.tar"
    package.write_bytes(package.read_bytes().replace(b"machine c", b"Machine c", 1))
    done = cli("sign", "demo.tar", "--key", "alice")
    assert (done.returncode, "'lib.so' is damaged" in done.stderr) == (3, True)
    (folder / "demo.lock").write_text((folder / "demo.lock").read_text().replace("31", "32"))
    done = cli("sign", "demo.lock", "--key", "alice")
    assert (done.returncode, "edited or merged by hand" in done.stderr) == (6, True)
    (folder / "lock").write_text("neither\n")
    assert cli("sign", "lock", "--key", "alice").returncode == 3
    assert cli("sign", "nowhere.tar", "--key", "alice").returncode == 3
    assert cli("sign", "nowhere.lock", "--key", "alice").returncode == 6
    assert not list(folder.glob("*.sig"))
    assert cli("verify", "demo.lock", "--lock", "demo.lock").returncode == 2


@pytest.mark.fault("N9")
def test_without_openssh_it_is_said_in_a_line(cli, tmp_path, monkeypatch):
    keys.lock(tmp_path)
    (tmp_path / "demo.lock.sig").write_text("signature")
    (tmp_path / "key").touch()
    keys.signers(tmp_path, "alice")
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in (("sign", "demo.lock", "--key", "key"), ("verify", "demo.lock", *SIGNERS)):
        done = cli(*command)
        assert done.returncode == 5
        assert done.stderr == (
            "error: ssh-keygen is not on the PATH; install OpenSSH 8.9 or later\n"
        )


@NEEDED
@pytest.mark.fault("N6")
@pytest.mark.parametrize("limit", [0, 100, 5000])
def test_a_disk_that_is_full_is_said_in_a_line(cli, folder, limit):
    cli("sign", "demo.tar", "--key", "alice")
    cli("sign", "demo.lock", "--key", "alice")
    before = {path.name: path.read_bytes() for path in folder.glob("demo.*")}
    for name in ("demo.tar", "demo.lock"):
        for arguments in (("verify", name, *SIGNERS), ("sign", name, "--key", "alice")):
            held = getrlimit(RLIMIT_FSIZE)
            setrlimit(RLIMIT_FSIZE, (limit, held[1]))
            try:
                done = cli(*arguments)
            finally:
                setrlimit(RLIMIT_FSIZE, held)
            assert done.returncode in ({0, 5} if limit == 5000 else {5}), done.stderr
            assert done.stderr.count("\n") == (done.returncode != 0)
    assert {path.name: path.read_bytes() for path in folder.glob("demo.*")} == before


@NEEDED
@pytest.mark.fault("N11")
@pytest.mark.parametrize("mode", ["--frozen", "--locked"])
def test_a_run_refuses_a_lock_that_nobody_signed(cli, folder, mode):
    run = ("run", "demo.yaml", mode, *SIGNERS)
    done = cli(*run)
    assert (done.returncode, done.stdout[:8]) == (6, "failed a")
    assert "error: " in done.stderr
    assert "demo.lock: not signed: demo.lock.sig is not beside it" in done.stderr
    cli("sign", "demo.lock", "--key", "bob")
    done = cli(*run)
    assert (done.returncode, "does not count" in done.stderr) == (6, True)
    (folder / "demo.lock").write_text("<<<<<<< what comes first is the signature\n")
    done = cli(*run)
    assert (done.returncode, "does not count" in done.stderr) == (6, True)
    (folder / "demo.lock").unlink()
    assert cli(*run).returncode == 6


@NEEDED
@pytest.mark.fault("N11")
def test_signers_are_for_runs_that_follow_the_lock(cli, folder):
    for modes in ((), ("--update",), ("--no-lock",)):
        done = cli("run", "demo.yaml", *SIGNERS, *modes)
        assert (done.returncode, "add --frozen or --locked" in done.stderr) == (2, True)
    assert not (folder / ".autopipe").exists()


@NEEDED
@pytest.mark.fault("N12")
def test_a_package_that_nobody_signed_is_not_opened(cli, folder):
    """It is for a processor that nobody has: being asked for that would be opening it."""
    run = ("infer", "demo.tar", "--input", "x.npy")
    anybodys = cli(*run)
    assert "apache-tvm" in anybodys.stderr
    done = cli(*run, *SIGNERS)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: demo.tar: not signed: demo.tar.sig is not beside it\n"
    cli("sign", "demo.tar", "--key", "alice")
    signed = cli(*run, *SIGNERS)
    assert (signed.returncode, signed.stderr) == (anybodys.returncode, anybodys.stderr)
    assert cli(*run, *SIGNERS, "--identity", "bob").returncode == 3
