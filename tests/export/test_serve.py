"""The server of an exported folder: the protocol, its bounds, and its end."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from urllib.error import HTTPError, URLError

import numpy as np
import pytest

LENGTH = "Inference-Header-Content-Length"
X = np.arange(32, dtype="float32").reshape(4, 8) / 7
IDS = np.arange(4)


@pytest.fixture
def limits():
    return ["--limit-mib", "1"]


@pytest.fixture
def server(folder, limits):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, folder / "python" / "serve.py", folder, "--port", str(port)]
    with subprocess.Popen([*command, *limits], stderr=subprocess.PIPE) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until_ready(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed) in {(0, b""), (-signal.SIGTERM, b"")}


def wait_until_ready(url, process):
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/v2/health/ready").read()
            break
        except URLError:
            assert process.poll() is None, "the server ended"
            time.sleep(0.1)


def post(url, data, **headers):
    request = urllib.request.Request(f"{url}/v2/models/small/infer", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


def tensor(name, array, **more):
    datatype = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
    return {"name": name, "datatype": datatype, "shape": array.shape, **more}


def test_json_and_binary_requests_get_the_same_answer(server):
    inputs = [tensor("data/x", X, data=X.tolist()), tensor("ids", IDS, data=IDS.tolist())]
    status, _, body = post(server, json.dumps({"inputs": inputs, "id": "7"}).encode())
    answer = json.loads(body)
    assert (status, answer["id"], answer["model_name"]) == (200, "7", "small")
    scores = next(one for one in answer["outputs"] if one["name"] == "scores")
    sizes = [{"parameters": {"binary_data_size": array.nbytes}} for array in (X, IDS)]
    header = json.dumps({
        "inputs": [tensor("data/x", X, **sizes[0]), tensor("ids", IDS, **sizes[1])],
        "outputs": [{"name": "scores", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    length = {LENGTH: str(len(header))}
    status, headers, body = post(server, header + X.tobytes() + IDS.tobytes(), **length)
    end = int(headers[LENGTH])
    assert (status, scores["shape"]) == (200, [4, 8])
    assert "id" not in json.loads(body[:end])
    np.testing.assert_array_equal(np.frombuffer(body[end:], "float32"), np.float32(scores["data"]))
    with urllib.request.urlopen(f"{server}/metrics") as metrics:
        assert b'autopipe_requests_total{status="200"} 2.0' in metrics.read()
    with urllib.request.urlopen(f"{server}/v2/models/small") as metadata:
        assert json.loads(metadata.read())["inputs"][0]["datatype"] == "FP32"
    with urllib.request.urlopen(f"{server}/v2") as metadata:
        assert json.loads(metadata.read())["extensions"] == ["binary_tensor_data"]


def test_a_folder_that_cannot_be_opened_is_one_line_and_a_code(folder):
    command = [sys.executable, folder / "python" / "serve.py"]
    (folder / "weights.safetensors").unlink()
    for words, code in (([folder], 3), ([folder, "--threads", "0"], 2), (["/nowhere"], 3)):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"[1", 400, "JSON"),
        (b"[" * 100000, 400, ""),
        (b"{}", 400, "inputs"),
        (b'{"inputs": [{"name": "data/x"}]}', 400, "datatype"),
        (b'{"inputs": [{"name": "data/x", "datatype": "O", "shape": [1], "data": [1]}]}', 400, ""),
        (b'{"inputs": []}', 400, "is missing"),
        (b" " * (2 << 20), 413, "1 MiB"),
    ],
)
def test_a_wrong_request_is_refused_in_a_line(server, body, status, reason):
    answered, _, text = post(server, body)
    assert answered == status
    assert reason in json.loads(text)["error"]


@pytest.mark.parametrize("limits", [["--limit-ms", "200"]])
def test_a_body_that_does_not_end_is_answered_in_time(server, limits):
    host, port = server.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.putrequest("POST", "/v2/models/small/infer")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    answer = connection.getresponse()
    reason = json.loads(answer.read())["error"]
    connection.close()
    assert (answer.status, reason) == (504, "no answer within 0.2 seconds")


@pytest.mark.parametrize("limits", [["--limit-ms", "0"]])
def test_a_request_that_is_late_is_refused_and_counted(server, limits):
    inputs = [tensor("data/x", X, data=X.tolist()), tensor("ids", IDS, data=IDS.tolist())]
    status, _, body = post(server, json.dumps({"inputs": inputs}).encode())
    assert (status, json.loads(body)["error"]) == (504, "no answer within 0 seconds")
    with urllib.request.urlopen(f"{server}/metrics") as metrics:
        assert b'autopipe_requests_total{status="504"} 1.0' in metrics.read()
