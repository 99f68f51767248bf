import pytest

from autopipe.host.control_groups import read_cpu_quota


@pytest.fixture
def limits(tmp_path):
    """Make control groups, and return what this process may take by them."""

    def made(groups, **files):
        for name, text in files.items():
            path = tmp_path / "root" / name.replace("__", "/").replace("_of_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "groups").write_text(groups)
        return read_cpu_quota(tmp_path / "groups", tmp_path / "root")

    return made


OLD = "4:memory:/\n1:cpu,cpuacct:/pod\n"


@pytest.mark.fault("N1")
@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/\n", {"cpu_of_max": "max 100000\n"}, None),
        ("0::/\n", {"cpu_of_max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"a__cpu_of_max": "400000 100000\n", "a__b__cpu_of_max": "max 100000"}, 4.0),
        ("0::/a/b\n", {"a__cpu_of_max": "1 1\n", "a__b__cpu_of_max": "3 1"}, 1.0),
        ("0::/not/seen/from/here\n", {"cpu_of_max": "200000 100000"}, 2.0),
        (OLD, {"cpu__pod__cpu_of_cfs_quota_us": "-1", "cpu__pod__cpu_of_cfs_period_us": "9"}, None),
        (OLD, {"cpu__pod__cpu_of_cfs_quota_us": "6", "cpu__pod__cpu_of_cfs_period_us": "4"}, 1.5),
        ("0::/\n", {"cpu_of_max": "many 0"}, None),
        ("0::/\n", {"cpu_of_max": "1 0"}, None),
        ("0::/\n", {"cpu_of_max": ""}, None),
        ("nonsense\n:\n\n", {}, None),
    ],
)
def test_the_smallest_limit_counts(limits, groups, files, found):
    assert limits(groups, **files) == found


def test_where_there_are_no_groups_there_is_no_limit(tmp_path):
    assert read_cpu_quota(tmp_path / "nothing", tmp_path) is None
