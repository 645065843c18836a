"""Servers with dynamic batching under load: a package served from C++ and from Python, and onnxruntime from Python.

    python benchmarks/serving.py [--seconds 5] [--connections 1 16] [--record benchmarks/results/serving.txt]

The servers are those of examples/serving, one after the other on one machine with the generator of the load.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVING = ROOT / "examples" / "serving"


def built_server(folder: Path) -> Path | None:
    """The server in C++, where there are a compiler and cpp-httplib."""
    import flambeau

    package = Path(flambeau.__file__ or "").parent
    compiler, target = shutil.which("g++"), folder / "server"
    if compiler is None:
        return None
    flags = [f"-I{package / 'include'}", f"-L{package}", "-lflambeau", f"-Wl,-rpath,{package}", "-pthread"]
    for library in (["-lcpp-httplib"], []):  # a distribution's library, or the one header
        command = [compiler, "-std=c++17", "-O2", str(SERVING / "server.cpp"), "-o", str(target), *flags, *library]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return target
    return None


def make_models(folder: Path) -> None:
    """The same model as a package and as ONNX."""
    import flambeau
    import flambeau.as_torch

    sys.path.insert(0, str(SERVING))
    from model import make

    model, example, shapes = make()
    program = flambeau.export.export(model, example, dynamic_shapes=shapes)
    flambeau._inductor.aoti_compile_and_package(program, package_path=folder / "model.pt2")
    flambeau.onnx.export(model, example, folder / "model.onnx", dynamic_shapes=shapes, dynamo=True)


def measured(command: list[str], port: int, connections: int, seconds: float) -> str:
    """What the generator prints of a server that is started for it."""
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        load = [sys.executable, str(SERVING / "load.py"), "--port", str(port)]
        load += ["--connections", str(connections), "--seconds", str(seconds)]
        return subprocess.run(load, capture_output=True, text=True, check=True).stdout.strip()
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--delay", type=int, default=500)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    lines = [f"{os.cpu_count()} processors, batches of up to 32, {arguments.delay} us to wait"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_models(folder)
        server, options = built_server(folder), ["--delay", str(arguments.delay)]
        python = [sys.executable, str(SERVING / "server.py")]
        servers = {
            "package, C++": [str(server), str(folder / "model.pt2")] if server else None,
            "package, Python": [*python, str(folder / "model.pt2")],
            "onnxruntime, Python": [*python, str(folder / "model.onnx")],
        }
        port = 8200
        for connections in arguments.connections:
            for title, command in servers.items():
                if command is None:
                    lines.append(f"{title:20} not measured: no compiler, or no cpp-httplib")
                    continue
                port += 1
                figures = measured([*command, *options], port, connections, arguments.seconds)
                lines.append(f"{title:20} {connections:3} connections  {figures}")
                print(lines[-1], flush=True)
    if arguments.record:
        arguments.record.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
