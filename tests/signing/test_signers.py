"""Signatures as ssh-keygen makes and checks them: what counts, and what does not."""

import os
import shutil
from io import BytesIO
from itertools import permutations
from pathlib import Path

import pytest

from autopipe.errors import ConfigError, LockError, SetupError, StoreError
from autopipe.lock import file
from autopipe.lock.recognize import find_records_path
from autopipe.signing import keygen, signature
from autopipe.signing.sign import sign_file
from autopipe.signing.signature import SignedKind, copy_of, find_signature_path, read_bounded
from autopipe.signing.signers import Signers, UnsignedError
from tests.signing import keys
from tests.signing.keys import NEEDED

CONTENT = b"what is signed"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Keys are made once."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "bob", "ca"):
        keys.key(folder, name)
    keys.key(folder, "secret", "passphrase")
    return folder


@pytest.fixture
def keyring(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def signed(folder, by="alice", kind=SignedKind.LOCK, content=CONTENT):
    path = folder / "file"
    path.write_bytes(content)
    sign_file(BytesIO(content), path, kind, folder / by)
    return path


def check(path, file, kind=SignedKind.LOCK, content=CONTENT, **more):
    with copy_of(BytesIO(content)) as copy:
        return Signers(file, **more).check(copy, path, kind)


@NEEDED
@pytest.mark.fault("N6")
def test_who_signed_is_told(keyring):
    path = signed(keyring)
    file = keys.signers(keyring, f"al@x,*@y {keys.public(keyring / 'alice')}")
    found = check(path, file)
    assert found.identity == "al@x"
    assert found.key.startswith("ED25519 key SHA256:")
    assert check(path, file, identity="anyone@y").identity == "anyone@y"
    assert not list(keyring.glob(".*")), "a temporary file was left"


def lines(keyring):
    alice, bob = (keys.public(keyring / name) for name in ("alice", "bob"))
    return {
        "nobody": [],
        "another": [f"bob {bob}"],
        "elsewhere": [f'alice namespaces="git,autopipe-package" {alice}'],
        "expired": [f'alice valid-before="20200101" {alice}'],
        "early": [f'alice valid-after="20990101" {alice}'],
        "nonsense": ["alice"],
    }


@NEEDED
@pytest.mark.fault("N7")
@pytest.mark.parametrize(
    ("which", "why"),
    [
        ("nobody", "its key is not one that {} names"),
        ("another", "its key is not one that {} names"),
        ("elsewhere", '{}:1: key is not permitted for use in signature namespace "autopipe-lock"'),
        ("expired", "{}:1: key has expired"),
        ("early", "{}:1: key is not yet valid"),
        ("nonsense", "{}:1: missing key"),
    ],
)
def test_whom_the_file_does_not_name_for_this_does_not_count(keyring, which, why):
    path, file = signed(keyring), keys.signers(keyring, *lines(keyring)[which])
    with pytest.raises(UnsignedError) as error:
        check(path, file)
    assert str(error.value).startswith(f"{path}: file.sig does not count: {why.format(file)}")
    assert error.value.exit_code == 1


@NEEDED
@pytest.mark.fault("N7")
def test_one_identity_alone_may_be_asked_for(keyring):
    file = keys.signers(
        keyring, f"alice {keys.public(keyring / 'alice')}", f"bob {keys.public(keyring / 'bob')}"
    )
    assert check(signed(keyring, by="bob"), file).identity == "bob"
    with pytest.raises(UnsignedError, match="names for alice"):
        check(signed(keyring, by="bob"), file, identity="alice")


@NEEDED
@pytest.mark.fault("N7")
def test_a_key_with_several_names_counts_if_one_of_them_may(keyring):
    """The first name that a key has is not always the one that a line below gives rights to."""
    alice = keys.public(keyring / "alice")
    file = keys.signers(keyring, f"!git,al,alice {alice}")
    assert check(signed(keyring), file).identity == "al"


@NEEDED
@pytest.mark.fault("N7")
def test_a_revoked_key_counts_no_more(keyring):
    path = signed(keyring)
    file = keys.signers(keyring, f"alice {keys.public(keyring / 'alice')}")
    others = keyring / "others.krl"
    keys.keygen("-k", "-f", others, keyring / "bob.pub")
    assert check(path, file, revoked=others).identity == "alice"
    krl = keyring / "krl"
    keys.keygen("-k", "-f", krl, keyring / "alice.pub")
    for revoked in (krl, keyring / "alice.pub"):
        with pytest.raises(UnsignedError, match="or is revoked"):
            check(path, file, revoked=revoked)
    (keyring / "damaged").write_bytes(krl.read_bytes()[:-20])
    with pytest.raises(UnsignedError):
        check(path, file, revoked=keyring / "damaged")
    with pytest.raises(ConfigError, match=r"--revoked .*nowhere: No such file"):
        check(path, file, revoked=keyring / "nowhere")


@NEEDED
@pytest.mark.fault("N6")
def test_a_certificate_counts_by_its_authority(keyring):
    certified = ("-s", keyring / "ca", "-I", "id", "-n", "alice")
    keys.keygen(*certified, keyring / "alice.pub")
    path = signed(keyring, by="alice-cert.pub")
    ca = keys.public(keyring / "ca")
    assert check(path, keys.signers(keyring, f"al*,!eve cert-authority {ca}")).identity == "alice"
    with pytest.raises(UnsignedError):
        check(path, keys.signers(keyring, f"bob cert-authority {ca}"))
    with pytest.raises(UnsignedError):
        check(path, keys.signers(keyring, f"alice {ca}"))


@NEEDED
@pytest.mark.fault("N8")
@pytest.mark.parametrize(("kind", "other"), [*permutations(SignedKind, 2)])
def test_a_signature_of_one_kind_does_not_serve_as_the_other(keyring, kind, other):
    path = signed(keyring, kind=kind)
    file = keys.signers(keyring, f"alice {keys.public(keyring / 'alice')}")
    assert check(path, file, kind).identity == "alice"
    with pytest.raises(UnsignedError, match="namespace does not match"):
        check(path, file, other)


@NEEDED
@pytest.mark.fault("N8")
def test_no_byte_may_differ(keyring):
    path = signed(keyring)
    file = keys.signers(keyring, f"alice {keys.public(keyring / 'alice')}")
    for content in (CONTENT + b"\n", CONTENT[:-1], b"", CONTENT.upper()):
        with pytest.raises(UnsignedError, match="incorrect signature"):
            check(path, file, content=content)


@NEEDED
@pytest.mark.fault("N8")
def test_what_is_no_signature_does_not_count(keyring):
    path = signed(keyring)
    file = keys.signers(keyring, f"alice {keys.public(keyring / 'alice')}")
    beside = find_signature_path(path)
    whole = beside.read_bytes()
    for damaged in (
        b"",
        b"nonsense\n",
        whole[:-40],
        whole.replace(b"U1NIU0", b"U1NIU1"),
        b"\0" * 9,
    ):
        beside.write_bytes(damaged)
        with pytest.raises(UnsignedError):
            check(path, file)
    beside.write_bytes(whole + b"\n" * signature.LARGEST)
    with pytest.raises(UnsignedError, match="larger than 65536 bytes, which no signature is"):
        check(path, file)
    beside.unlink()
    with pytest.raises(UnsignedError, match=r"not signed: file\.sig is not beside it"):
        check(path, file)
    beside.mkdir()
    with pytest.raises(UnsignedError, match="not a regular file"):
        check(path, file)


@NEEDED
@pytest.mark.fault("N9")
def test_a_name_is_never_an_option(keyring, monkeypatch):
    monkeypatch.chdir(keyring)
    for name in ("alice", "alice.pub"):
        shutil.copy(name, f"-r{name}")
    Path("-f").write_bytes(CONTENT)
    sign_file(BytesIO(CONTENT), Path("-f"), SignedKind.LOCK, Path("-ralice"))
    Path("-s").write_text(f"-I {keys.public(keyring / 'alice')}\n")
    assert check(Path("-f"), Path("-s")).identity == "-I"
    with pytest.raises(UnsignedError):
        check(Path("-f"), Path("-s"), identity="-Overify-time=19990101")


@NEEDED
@pytest.mark.fault("N9")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "not a file"),
        ("signers", "Couldn't load public key"),
        ("open", "are too open"),
        ("secret", "incorrect passphrase supplied"),
    ],
)
def test_a_key_that_does_not_sign_is_said_in_a_line(keyring, name, said, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "never")
    keys.signers(keyring, "no key")
    shutil.copy(keyring / "alice", keyring / "open")
    (keyring / "open").chmod(0o644)
    with pytest.raises(ConfigError, match=said) as error:
        signed(keyring, by=name)
    assert "\n" not in str(error.value)
    assert not find_signature_path(keyring / "file").exists()


@NEEDED
@pytest.mark.fault("N6")
def test_a_signature_is_replaced_whole_or_not_at_all(keyring):
    path = signed(keyring)
    before = find_signature_path(path).read_bytes()
    assert signed(keyring) == path
    assert find_signature_path(path).read_bytes() == before, "the same bytes, the same signature"
    blocked = keyring / "gone" / "file"
    with pytest.raises(StoreError, match="gone"):
        sign_file(BytesIO(CONTENT), blocked, SignedKind.LOCK, keyring / "alice")


@pytest.mark.fault("N9")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "ssh-keygen is not on the PATH; install OpenSSH"),
        ("echo 'unknown option -- Y' >&2; exit 1", "cannot be used: unknown option -- Y"),
        ("echo 'No user exists for uid 7' >&2; exit 255", "cannot be used: No user exists"),
        ("kill -9 $$", "was killed by signal 9"),
        ("exec /bin/sleep 60", r"did not end within 0\.5 s"),
    ],
)
def test_a_program_that_does_not_work_is_no_wrong_signature(tmp_path, monkeypatch, script, said):
    """Neither to sign nor to check, which may never pass for it."""
    environment = keys.fake(tmp_path, script or "")
    monkeypatch.setenv("PATH", environment["PATH"] if script else str(tmp_path))
    monkeypatch.setattr(keygen, "_SECONDS", 0.5)
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    find_signature_path(path).write_text("signature")
    (tmp_path / "key").touch()
    with pytest.raises(SetupError, match=said):
        sign_file(BytesIO(CONTENT), path, SignedKind.LOCK, tmp_path / "key")
    with pytest.raises(SetupError, match=said):
        check(path, keys.signers(tmp_path, "alice"))


@pytest.mark.fault("N9")
def test_it_gets_the_variables_that_it_needs_and_no_other(tmp_path, monkeypatch):
    environment = keys.fake(tmp_path, f"/usr/bin/env > {tmp_path}/seen; exit 1")
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("SSH_AUTH_SOCK", "socket")
    path = tmp_path / "file"
    find_signature_path(path).write_text("signature")
    (tmp_path / "key").touch()
    known = {"PATH", "TZ", "LC_ALL", "PWD", "_", "SHLVL", "OLDPWD"}

    def seen():
        return {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}

    with pytest.raises(UnsignedError):
        check(path, keys.signers(tmp_path, "alice"))
    assert seen() <= known
    with pytest.raises(ConfigError):
        sign_file(BytesIO(CONTENT), path, SignedKind.LOCK, tmp_path / "key")
    assert "SSH_AUTH_SOCK" in seen()
    assert seen() <= known | set(keygen._SIGNING)


@pytest.mark.fault("N8")
def test_a_program_that_says_yes_to_nobody_convinces_nobody(tmp_path, monkeypatch):
    """Exit status 0 without a single identity is no signer."""
    environment = keys.fake(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", environment["PATH"])
    find_signature_path(tmp_path / "file").write_text("signature")
    with pytest.raises(UnsignedError):
        check(tmp_path / "file", keys.signers(tmp_path, "alice"))


@pytest.mark.fault("N10")
def test_what_is_read_is_bounded(tmp_path):

    os.mkfifo(tmp_path / "pipe")
    assert read_bounded(tmp_path / "pipe", 10) == b"", "nobody waits for a writer"
    (tmp_path / "file").write_bytes(b"x" * 11)
    assert len(read_bounded(tmp_path / "file", 11)) == 11
    for endless in (tmp_path / "file", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="larger than 10 bytes"):
            read_bounded(endless, 10)


@NEEDED
@pytest.mark.fault("N10")
def test_a_lock_is_read_once_and_what_was_signed_is_what_is_parsed(tmp_path, keyring, monkeypatch):
    path = keys.lock(keyring)
    sign_file(BytesIO(path.read_bytes()), path, SignedKind.LOCK, keyring / "alice")
    signers = Signers(keys.signers(keyring, f"alice {keys.public(keyring / 'alice')}"))
    good = file.read_lock(path)
    checked = Signers.check

    def swap(*arguments):
        keys.lock(keyring, pipeline="forged")
        return checked(*arguments)

    monkeypatch.setattr(Signers, "check", swap)
    lock, signer = file.read_signed(path, signers)
    assert (lock, signer.identity) == (good, "alice")
    with pytest.raises(UnsignedError, match="incorrect signature"):
        file.read_signed(path, signers)


@pytest.mark.fault("N10")
def test_records_that_the_lock_does_not_name_are_refused(tmp_path):
    path = keys.lock(tmp_path)
    lock = file.read_lock(path)
    records = find_records_path(path)
    assert file.read_records(path, lock) == records.read_bytes()
    assert file.read_records(path, lock.model_copy(update={"records": None})) is None
    records.write_bytes(records.read_bytes() + b"\n")
    with pytest.raises(LockError, match=r"demo\.records\.jsonl: not the records that demo\.lock"):
        file.read_records(path, lock)
    records.unlink()
    with pytest.raises(LockError, match="No such file"):
        file.read_records(path, lock)
