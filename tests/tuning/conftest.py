"""A journal of trials in a store of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tuning.journal import Journal
from tests.tuning.states import HERE


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        yield Journal(store, HERE, Session.resume(tmp_path))
