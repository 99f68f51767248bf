"""Section `cache`: where results are shared, which changes none of them."""

from pathlib import Path

from autopipe.config.cache import Cache, resolve_remote_url
from autopipe.stages import stages_of
from tests.config.conftest import GOOD
from tests.support.table import each_row


@each_row(
    "setting, says",
    [
        ("cache.remote=s3://key:xyzzy@bucket", "leave out what follows a `?` or stands"),
        ("cache.remote=https://xyzzy@host/a", "users, passwords and tokens come from the storage"),
        ("cache.remote=https://host/a?token=xyzzy", "the storage's own environment"),
        ("cache.remote=simplecache::s3://bucket", "should be one URL, such as s3://bucket/folder"),
        ("cache.remote=s3:bucket", "or a folder"),
        ('cache.remote="a\\nb"', "should be one line of text"),
        ("cache.remote=''", "at least 1 character"),
        ("cache.mode=write", "'write' is not known; did you mean `readwrite`?"),
        ("cache.mode=off", "put it in quotes"),
        ("cache.timeout=5", "5 has no unit"),
        ("cache={remote: https://a/b, mode: readwrite}", "is not possible over HTTP"),
    ],
)
def test_a_mistake_is_told_and_a_secret_is_not(refused, setting, says):
    (line,) = refused(GOOD, setting)
    assert says in line
    assert "xyzzy" not in line


def test_nothing_is_shared_unless_a_remote_is_named(read):
    assert read(GOOD).cache == Cache()
    assert Cache().remote is None
    assert read(GOOD, "cache.remote=s3://bucket/a").cache.mode == "read"
    assert read(GOOD, 'cache.mode="off"').cache.mode == "off"


def test_a_folder_is_relative_to_the_file():
    base = Path("/project")
    assert resolve_remote_url("../shared", base) == "file:///project/../shared"
    assert resolve_remote_url("/mnt/shared", base) == "file:///mnt/shared"
    assert resolve_remote_url("s3://bucket/a", base) == "s3://bucket/a"


def test_it_is_in_no_key(read, file):
    there = read(GOOD, "cache={remote: /mnt/shared, mode: readwrite, timeout: 3s, time: 5m}")
    assert there.cache.time == 300.0
    base = file.parent
    (base / "resnet.onnx").touch()
    assert stages_of(there, base) == stages_of(read(GOOD), base)
