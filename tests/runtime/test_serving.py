"""The servers of examples/serving: results, batches of requests that come together, errors."""

import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import aoti_compile_and_package
from flambeau.export import Dim, export

SERVING = pathlib.Path(__file__).resolve().parents[2] / "examples" / "serving"
PACKAGE = pathlib.Path(fl.__file__).parent
PORTS = {"python": 8351, "cpp": 8352}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    fl.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    path = tmp_path_factory.mktemp("serving") / "model.pt2"
    program = export(module, (fl.randn(4, 6),), dynamic_shapes=({0: Dim("batch", min=1, max=8)},))
    aoti_compile_and_package(program, package_path=path)
    return module, path


def server_command(kind, folder):
    if kind == "python":
        return [sys.executable, SERVING / "server.py"]
    compiler = shutil.which("g++")
    if compiler is None or not pathlib.Path("/usr/include/httplib.h").exists():
        pytest.skip("the server in C++ needs a compiler and cpp-httplib (libcpp-httplib-dev)")
    target = folder / "server"
    command = [compiler, "-std=c++17", "-O0", SERVING / "server.cpp", "-o", target, f"-I{PACKAGE / 'include'}"]
    command += [f"-L{PACKAGE}", "-lflambeau", f"-Wl,-rpath,{PACKAGE}", "-pthread"]
    for library in (["-lcpp-httplib"], []):
        done = subprocess.run([*command, *library], capture_output=True, text=True)
        if done.returncode == 0:
            return [target]
    raise AssertionError(done.stderr)


def sent(port, path, body=None):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=60) as answer:
        return answer.read()


@pytest.mark.parametrize("kind", ["python", "cpp"])
def test_server(kind, model, tmp_path):
    module, path = model
    port = PORTS[kind]
    command = [
        *server_command(kind, tmp_path),
        path,
        "--row",
        "6",
        "--port",
        str(port),
        "--batch",
        "8",
        "--delay",
        "200000",
    ]
    server = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                assert sent(port, "/health") == b"ok\n"
                break
            except OSError:
                time.sleep(0.1)
        rows = fl.randn(8, 6)
        answers = [None] * 8

        def ask(i):
            answer = sent(port, "/predict", struct.pack("6f", *rows[i].tolist()))
            answers[i] = struct.unpack("3f", answer)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with fl.no_grad():
            fl.testing.assert_close(fl.tensor(answers), module(rows), rtol=1e-4, atol=1e-5)
        counts = dict(line.split() for line in sent(port, "/metrics").decode().splitlines())
        assert int(counts["requests"]) == 8
        assert int(counts["batches"]) < 8
        with pytest.raises(urllib.error.HTTPError) as error:
            sent(port, "/predict", b"abc")
        assert error.value.code == 400
        assert b"expected 1 to 8 rows of 24 bytes, got 3 bytes" in error.value.read()
    finally:
        server.kill()
        server.wait()
