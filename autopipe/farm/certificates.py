"""Certificates of a farm: they authorize their holder to run code on all of its machines."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from autopipe.config.tuning import CERTIFY
from autopipe.errors import SetupError

AUTHORITY: Final = "ca.pem"
CERTIFICATE: Final = "farm.pem"
KEY: Final = "farm.key"

NAMES: Final = (AUTHORITY, CERTIFICATE, KEY)

VARIABLE: Final = "AUTOPIPE_CERTIFICATES"

INSTALL: Final = "pip install 'autopipe[cluster]'"

DAYS: Final = 730
"""Validity of a certificate."""


def find_default_directory() -> Path:
    """Return the default folder of certificates."""
    configured_path = os.environ.get(VARIABLE)
    return (
        Path(configured_path)
        if configured_path
        else Path.home() / ".config" / "autopipe" / "certificates"
    )


def check_folder(folder: Path) -> Path:
    """Return the folder. Raises SetupError if a file is missing, or others can read the key."""
    for name in NAMES:
        if not (folder / name).is_file():
            raise SetupError(
                f"{folder / name}: there is no such certificate; copy the farm's folder of"
                f" certificates to here, or make one for a new farm by `{CERTIFY}`"
            )
    status = (folder / KEY).stat()
    mode = status.st_mode & 0o777
    is_group_secret = (
        status.st_uid == 0 and os.geteuid() != 0
    )  # by root to a group: a secret of Kubernetes
    if mode & (0o037 if is_group_secret else 0o077):
        raise SetupError(f"{folder / KEY}: others may read it (mode {mode:o}); chmod 600 it")
    return folder


def make_certificates(folder: Path) -> list[Path]:
    """Write an authority and a certificate signed by it; return their paths.

    The authority's key is discarded, so that no other certificate can be signed. Raises SetupError
    if certificates exist already, or cryptography is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise SetupError(f"certificates are made by cryptography; {INSTALL}") from None
    paths = [folder / name for name in NAMES]
    for path in paths:
        if path.exists():
            raise SetupError(f"{path}: is there already; a farm's certificates are made once")
    authority, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        for name in ("autopipe farm authority", "autopipe farm")
    )
    root = _sign_certificate(issuer, authority, issuer, authority, authority=True)
    leaf = _sign_certificate(subject, leaf_key, issuer, authority, authority=False)
    pem = serialization.Encoding.PEM
    secret = leaf_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, data in zip(paths, (root.public_bytes(pem), leaf.public_bytes(pem), secret),
                          strict=True):  # fmt: skip
        mode = 0o600 if path.name == KEY else 0o644
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return paths


def count_days_left(folder: Path) -> int:
    """Return the days until the certificate expires; negative if it has expired."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    return (certificate.not_valid_after_utc - datetime.now(UTC)).days


def _sign_certificate(subject: Any, key: Any, issuer: Any, signer: Any, *, authority: bool) -> Any:  # noqa: ANN401 -- as below
    """Return a certificate of a key. The types of cryptography load only where it is used."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks of machines differ
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
