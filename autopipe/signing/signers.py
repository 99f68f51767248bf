"""Trusted signers, and the verification of their signatures."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple, Self

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
"""Maximum bytes of a file of signers, or of revoked keys."""

_MOST: Final = 32
"""Maximum number of identities of one key that are tried."""

_GOOD: Final = re.compile(r" with (\S+ key \S+)\s*$")
_NOBODY: Final = "No principal matched."


class UnsignedError(GateError):
    """A file has no signature of a trusted signer."""


class Signer(NamedTuple):
    """The signer of a file."""

    identity: str
    """Name in the file of signers."""
    key: str
    """Kind and fingerprint of the key."""

    def __str__(self) -> str:
        """Format it for messages."""
        return f"{self.identity} with {self.key}"


class Signers(NamedTuple):
    """The trusted signers."""

    file: Path
    """File of signers, in the format ALLOWED SIGNERS of ssh-keygen(1)."""
    identity: str | None = None
    """The only trusted identity; None trusts all of the file."""
    revoked: Path | None = None
    """Revoked keys: a key revocation list, or public keys."""

    def document(self) -> dict[str, str | None]:
        """Serialize it for JSON."""
        revoked_path = None if self.revoked is None else str(self.revoked)
        return {"file": str(self.file), "identity": self.identity, "revoked": revoked_path}

    @classmethod
    def of(cls, document: Mapping[str, str | None]) -> Self:
        """Parse the output of `document`."""
        revoked_path = document["revoked"]
        return cls(
            Path(document["file"] or ""),
            document["identity"],
            None if revoked_path is None else Path(revoked_path),
        )

    def check(self, content: BinaryIO, path: Path, kind: SignedKind) -> Signer:
        """Verify the signature beside `path` for its content, and return the signer.

        Raises UnsignedError, ConfigError for files of signers that cannot be read, SetupError.
        """
        signature = find_signature_path(path)
        with files.wrap_os_errors(path), TemporaryDirectory(prefix="autopipe-") as folder:
            private_folder = Path(folder)  # copies cannot change between two reads
            (private_folder / "signers").write_bytes(_read_option_file(self.file, "--signers"))
            if self.revoked is not None:
                (private_folder / "revoked").write_bytes(
                    _read_option_file(self.revoked, "--revoked")
                )
            (private_folder / "signature").write_bytes(_read_signature(path, signature))
            try:
                return self._find_signer(private_folder, content, kind)
            except _NoneError as error:
                why = str(error).replace(str(private_folder / "signers"), str(self.file))
                raise UnsignedError(f"{path}: {signature.name} does not count: {why}") from None

    @contextmanager
    def checked(
        self, content: BinaryIO, path: Path, kind: SignedKind
    ) -> Iterator[tuple[BinaryIO, Signer]]:
        """Verify a private copy of a file; yield the copy and the signer.

        Raises UnsignedError, ConfigError, SetupError, StoreError.
        """
        with copy_of(content) as copy:
            signer = self.check(copy, path, kind)
            copy.seek(0)
            yield copy, signer

    def _find_signer(self, private_folder: Path, content: BinaryIO, kind: SignedKind) -> Signer:
        common = [
            "-f",
            str(private_folder / "signers"),
            "-s",
            str(private_folder / "signature"),
            "-n",
            str(kind),
        ]
        revocation_options = [] if self.revoked is None else ["-r", str(private_folder / "revoked")]
        whys = []
        for identity in self._list_identities(private_folder):
            completed = keygen.check_signature(
                ["-Y", "verify", "-I", identity, *common, *revocation_options], content
            )
            if completed.code == 0:
                key = _GOOD.search(completed.output)
                return Signer(identity, key[1] if key else "a key")
            silent = f"its key is not one that {self.file} names for {identity}"
            whys.append(
                _extract_reason(
                    completed, f"{silent}, or is revoked" if revocation_options else silent
                )
            )
        raise _NoneError(whys[0])

    def _list_identities(self, private_folder: Path) -> list[str]:
        """Return the identities of the key of a signature, before verification."""
        if self.identity is not None:
            return [self.identity]
        names = ["-f", str(private_folder / "signers"), "-s", str(private_folder / "signature")]
        completed = keygen.check_signature(["-Y", "find-principals", *names])
        identities = [line for line in completed.output.splitlines() if line][:_MOST]
        if completed.code or not identities:
            raise _NoneError(
                _extract_reason(completed, f"its key is not one that {self.file} names")
            )
        return identities


class _NoneError(Exception):
    """No signer, and why."""


def _extract_reason(completed: keygen.KeygenResult, otherwise: str) -> str:
    lines = (line.strip() for line in completed.errors.splitlines())
    return next((line for line in lines if line and line != _NOBODY), otherwise)


def _read_signature(path: Path, signature: Path) -> bytes:
    if signature.exists() and not signature.is_file():  # a pipe may never end
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
