"""Storages as they are: a server that speaks S3, and one that only serves files over HTTP."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from autopipe.remote.depot import open_depot
from autopipe.remote.transfer import pull_entries
from autopipe.store.store import open_store
from tests.remote.conftest import Machine
from tests.remote.test_shared import ALONE, CACHED, RUN

pytestmark = pytest.mark.usefixtures("no_leaks")

BUCKET = "s3://shared/cache"

Make = Callable[[str], Machine]


class Bucket:
    """A bucket of the server, seen from outside."""

    def __init__(self, endpoint: str) -> None:
        import boto3

        self.client = boto3.client("s3", endpoint_url=endpoint)
        self.client.create_bucket(Bucket="shared")

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket="shared").get("Contents", [])
        return [each["Key"] for each in found]

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket="shared", Key=key, Body=data)

    def read(self, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket="shared", Key=key)["Body"].read()
        return data


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    import urllib.request

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "dummy-id",
        "AWS_SECRET_ACCESS_KEY": "dummy-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    request = urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")
    urllib.request.urlopen(request).close()
    return Bucket(endpoint)


def test_two_machines_share_a_bucket(bucket: Bucket, machine: Make) -> None:
    first, second = machine("first"), machine("second")
    assert (first.run("readwrite", url=BUCKET), first.warnings) == (RUN, [])
    assert (second.run(url=BUCKET), second.warnings) == (CACHED, [])
    assert second.fetched == ["import", "lower", "tune"]
    folders = sorted(key.split("/")[1] for key in bucket.names())
    assert folders == ["actions"] * 3 + ["autopipe.json"] + ["objects"] * 3


@pytest.mark.fault("C3", "C5", "G3")
def test_a_damaged_bucket_is_a_miss_and_is_repaired(bucket: Bucket, machine: Make) -> None:
    machine("first").run("readwrite", url=BUCKET)
    for key in bucket.names():
        if "/objects/" in key:
            bucket.write(key, bytes(len(bucket.read(key))))
    second = machine("second")
    assert second.run("readwrite", url=BUCKET) == RUN
    assert len(second.warnings) == 1
    third = machine("third")
    assert (third.run(url=BUCKET), third.warnings) == (CACHED, [])


def test_a_bucket_that_is_not_there_is_one_warning_and_is_not_made(
    bucket: Bucket, machine: Make
) -> None:
    first = machine("first")
    assert first.run("readwrite", url="s3://typo/cache") == RUN
    assert len(first.warnings) == 1
    assert f"there is no such bucket or folder; {ALONE}" in first.warnings[0]
    assert [each["Name"] for each in bucket.client.list_buckets()["Buckets"]] == ["shared"]


def test_a_server_that_is_down_is_one_warning(
    bucket: Bucket, machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    first = machine("first")
    assert first.run("readwrite", url=BUCKET, timeout=5.0) == RUN
    (warning,) = first.warnings
    assert warning.startswith(f"{BUCKET}: ")
    assert "dummy-secret" not in warning


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def url(remote: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(remote)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_http_serves_a_folder_that_somebody_else_writes(
    farm: Machine, machine: Make, url: str
) -> None:
    other = machine("other")
    assert (other.run(url=f"{url}/"), other.warnings) == (CACHED, [])
    assert other.fetched == ["import", "lower", "tune"]


def test_a_listing_over_http_can_be_pulled(farm: Machine, url: str, tmp_path: Path) -> None:
    with open_store(tmp_path / "other") as store, open_depot(url, store.tmp) as depot:
        assert pull_entries(store, depot, (), pytest.fail).entries == 3


@pytest.mark.fault("C3", "G3")
def test_what_http_cuts_or_does_not_have_is_a_miss(farm: Machine, machine: Make, url: str) -> None:
    for path in (farm.remote / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    other = machine("other")
    assert (other.run(url=url), len(other.warnings)) == (RUN, 1)
    assert machine("third").run(url=f"{url}/nowhere") == RUN
