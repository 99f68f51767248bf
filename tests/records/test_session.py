import pytest

from autopipe.records.session import Session


def test_a_session_goes_on_with_its_name_and_its_time(tmp_path):
    first = Session.resume(tmp_path)
    first.save()
    (tmp_path / "session.json").write_text(
        (tmp_path / "session.json").read_text().replace('"seconds": ', '"seconds": 40')
    )
    again = Session.resume(tmp_path)
    assert again.name == first.name
    assert 40 <= again.spent <= again.elapsed


def test_another_folder_is_another_session(tmp_path):
    (tmp_path / "a").mkdir()
    assert Session.resume(tmp_path / "a").name != Session.resume(tmp_path).name


@pytest.mark.parametrize("text", ["", "{", "[]", '{"session": 3, "seconds": "x"}', "\0"])
def test_a_torn_journal_begins_a_session(tmp_path, text):
    (tmp_path / "session.json").write_text(text)
    session = Session.resume(tmp_path)
    assert session.name
    assert session.spent == 0


def test_a_session_that_is_forgotten_does_not_come_back(tmp_path):
    first = Session.resume(tmp_path)
    first.forget()
    assert Session.resume(tmp_path).name != first.name
