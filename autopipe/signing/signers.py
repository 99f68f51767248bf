"""Whose signatures count, and whether one of them is on a file."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, Self

from autopipe.errors import ConfigError, GateError
from autopipe.signing import keygen
from autopipe.signing.signature import (
    LARGEST,
    SignedKind,
    copy_of,
    find_signature_path,
    read_bounded,
)
from autopipe.store import files

_LONGEST: Final = 16 << 20
"""Bytes of a file of signers, or of revoked keys."""

_MOST: Final = 32
"""Identities of one key that are tried."""

_GOOD: Final = re.compile(r" with (\S+ key \S+)\s*$")
_NOBODY: Final = "No principal matched."


class UnsignedError(GateError):
    """A file has no signature, or none that counts."""


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed."""

    identity: str
    """As the file of signers names it."""
    key: str
    """Kind and fingerprint of the key."""

    def __str__(self) -> str:
        """Write it for people."""
        return f"{self.identity} with {self.key}"


@dataclass(frozen=True, slots=True)
class Signers:
    """Those whose signatures count."""

    file: Path
    """Who they are, in the form of ALLOWED SIGNERS in ssh-keygen(1)."""
    identity: str | None = None
    """The only one of them who counts; None for each of them."""
    revoked: Path | None = None
    """Keys that count no more: a key revocation list, or public keys."""

    def document(self) -> dict[str, str | None]:
        """Return it as JSON takes it."""
        revoked = None if self.revoked is None else str(self.revoked)
        return {"file": str(self.file), "identity": self.identity, "revoked": revoked}

    @classmethod
    def of(cls, document: Mapping[str, str | None]) -> Self:
        """Read what `document` returned."""
        revoked = document["revoked"]
        return cls(
            Path(document["file"] or ""),
            document["identity"],
            None if revoked is None else Path(revoked),
        )

    def check(self, content: BinaryIO, path: Path, kind: SignedKind) -> Signer:
        """Return who signed the content of `path`, by the signature beside it.

        Raises UnsignedError, ConfigError for files of signers that cannot be read, SetupError.
        """
        signature = find_signature_path(path)
        with files.wrap_os_errors(path), TemporaryDirectory(prefix="autopipe-") as folder:
            own = Path(folder)  # what is looked at twice is looked at in a copy
            (own / "signers").write_bytes(_read_option_file(self.file, "--signers"))
            if self.revoked is not None:
                (own / "revoked").write_bytes(_read_option_file(self.revoked, "--revoked"))
            (own / "signature").write_bytes(_read_signature(path, signature))
            try:
                return self._find_signer(own, content, kind)
            except _NoneError as error:
                why = str(error).replace(str(own / "signers"), str(self.file))
                raise UnsignedError(f"{path}: {signature.name} does not count: {why}") from None

    @contextmanager
    def checked(
        self, content: BinaryIO, path: Path, kind: SignedKind
    ) -> Iterator[tuple[BinaryIO, Signer]]:
        """Yield a copy that nobody can change of a file that is signed, and who signed it.

        Raises UnsignedError, ConfigError, SetupError, StoreError.
        """
        with copy_of(content) as copy:
            signer = self.check(copy, path, kind)
            copy.seek(0)
            yield copy, signer

    def _find_signer(self, own: Path, content: BinaryIO, kind: SignedKind) -> Signer:
        common = ["-f", str(own / "signers"), "-s", str(own / "signature"), "-n", str(kind)]
        revoked = [] if self.revoked is None else ["-r", str(own / "revoked")]
        whys = []
        for identity in self._list_identities(own):
            done = keygen.check_signature(
                ["-Y", "verify", "-I", identity, *common, *revoked], content
            )
            if done.code == 0:
                key = _GOOD.search(done.said)
                return Signer(identity, key[1] if key else "a key")
            silent = f"its key is not one that {self.file} names for {identity}"
            whys.append(_extract_reason(done, f"{silent}, or is revoked" if revoked else silent))
        raise _NoneError(whys[0])

    def _list_identities(self, own: Path) -> list[str]:
        """Return whom the key of a signature belongs to: nothing says so far that it fits."""
        if self.identity is not None:
            return [self.identity]
        names = ["-f", str(own / "signers"), "-s", str(own / "signature")]
        done = keygen.check_signature(["-Y", "find-principals", *names])
        identities = [line for line in done.said.splitlines() if line][:_MOST]
        if done.code or not identities:
            raise _NoneError(_extract_reason(done, f"its key is not one that {self.file} names"))
        return identities


class _NoneError(Exception):
    """No signer, and why."""


def _extract_reason(done: keygen.Done, otherwise: str) -> str:
    lines = (line.strip() for line in done.why.splitlines())
    return next((line for line in lines if line and line != _NOBODY), otherwise)


def _read_signature(path: Path, signature: Path) -> bytes:
    if signature.exists() and not signature.is_file():  # whoever holds a pipe could end it never
        raise UnsignedError(f"{signature}: not a regular file")
    try:
        return read_bounded(signature, LARGEST)
    except FileNotFoundError:
        raise UnsignedError(f"{path}: not signed: {signature.name} is not beside it") from None
    except OSError as error:
        raise UnsignedError(f"{signature}: {error.strerror}") from error
    except ConfigError as error:
        raise UnsignedError(f"{error}, which no signature is") from None


def _read_option_file(path: Path, option: str) -> bytes:
    try:
        return read_bounded(path, _LONGEST)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{option} {error}") from None
