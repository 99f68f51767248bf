"""Makes a signature."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from autopipe.errors import ConfigError
from autopipe.signing import keygen
from autopipe.signing.signature import LARGEST, SignedKind, find_signature_path, read_bounded
from autopipe.store import files

_OPEN: Final = "are too open"
"""What it says, in a large box, of a private key that others may read."""
_ABOVE: Final = "ssh-keygen did not sign, as it says above"


def sign_file(content: BinaryIO, path: Path, kind: SignedKind, key: Path) -> Path:
    """Sign the content of `path`, and return where the signature is: whole or not at all.

    `key` is a private key, or a public one whose private key an agent has. Raises ConfigError for
    a key that does not sign, SetupError, StoreError.
    """
    if not key.is_file():
        raise ConfigError(f"--key {key}: not a file")
    with files.wrap_os_errors(path), TemporaryDirectory(prefix="autopipe-") as folder:
        message = Path(folder, "message")
        content.seek(0)
        with message.open("wb") as out:
            shutil.copyfileobj(content, out)
        done = keygen.make_signature(
            ["-q", "-Y", "sign", "-f", str(key.absolute()), "-n", str(kind), str(message)]
        )
        if done.code:
            lines = [line for line in done.why.splitlines() if line.strip()]
            telling = [line for line in lines if _OPEN in line] or lines or [_ABOVE]
            raise ConfigError(f"--key {key}: {telling[-1]}")
        data = read_bounded(find_signature_path(message), LARGEST)
        signature = find_signature_path(path)
        files.replace(signature, data, path.parent, mode=0o644)
    return signature
