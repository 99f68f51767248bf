"""Certificates of a farm: made once, read by nobody else."""

import pytest

from autopipe.errors import SetupError
from autopipe.farm import certificates


@pytest.fixture
def keys(tmp_path):
    certificates.make_certificates(tmp_path / "keys")
    return tmp_path / "keys"


def test_they_are_made_once(keys):
    assert certificates.check_folder(keys) == keys
    assert certificates.count_days_left(keys) in {certificates.DAYS - 1, certificates.DAYS}
    with pytest.raises(SetupError, match="is there already"):
        certificates.make_certificates(keys)


@pytest.mark.fault("O8")
def test_a_key_that_others_may_read_is_refused(keys):
    (keys / "farm.key").chmod(0o640)
    with pytest.raises(SetupError, match=r"others may read it .* chmod 600"):
        certificates.check_folder(keys)


@pytest.mark.fault("O11")
def test_a_missing_one_is_named_with_what_makes_it(keys):
    (keys / "ca.pem").unlink()
    with pytest.raises(SetupError, match=r"ca.pem: there is no .* --make-certificates DIR"):
        certificates.check_folder(keys)
