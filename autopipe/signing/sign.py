"""Sign files."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from autopipe.errors import ConfigError
from autopipe.signing import keygen
from autopipe.signing.signature import LARGEST, SignedKind, find_signature_path, read_bounded
from autopipe.store import files

_OPEN: Final = "are too open"
"""Part of ssh-keygen's message for a private key that others can read."""
_ABOVE: Final = "ssh-keygen did not sign; its message is above"


def sign_file(content: BinaryIO, path: Path, kind: SignedKind, key: Path) -> Path:
    """Sign the content of `path`, write the signature atomically, and return its path.

    `key` is a private key, or a public one with its private key in an agent. Raises ConfigError
    for an unusable key, SetupError, StoreError.
    """
    if not key.is_file():
        raise ConfigError(f"--key {key}: not a file")
    with files.wrap_os_errors(path), TemporaryDirectory(prefix="autopipe-") as folder:
        message = Path(folder, "message")
        content.seek(0)
        with message.open("wb") as out:
            shutil.copyfileobj(content, out)
        completed = keygen.make_signature(
            ["-q", "-Y", "sign", "-f", str(key.absolute()), "-n", str(kind), str(message)]
        )
        if completed.code:
            lines = [line for line in completed.errors.splitlines() if line.strip()]
            telling = [line for line in lines if _OPEN in line] or lines or [_ABOVE]
            raise ConfigError(f"--key {key}: {telling[-1]}")
        data = read_bounded(find_signature_path(message), LARGEST)
        signature = find_signature_path(path)
        files.replace(signature, data, path.parent, mode=0o644)
    return signature
