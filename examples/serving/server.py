"""Serves a model over HTTP from Python, with dynamic batching: what server.cpp does, with the same protocol.

    python server.py model.pt2 [--port 8000] [--batch 32] [--delay 2000] [--row 64]

A model that ends in .onnx is run by onnxruntime, to compare with.
"""

from __future__ import annotations

import argparse
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Runner = Callable[[bytes, int], list[bytes]]  # rows one after the other, how many: the results of each


def package_runner(path: str, row: list[int], threads: int) -> Runner:
    import flambeau as torch

    torch.set_num_threads(threads)
    model = torch._inductor.aoti_load_package(path)

    def run(rows: bytes, count: int) -> list[bytes]:
        x = torch.frombuffer(bytearray(rows), dtype=torch.float32).reshape(count, *row)
        return [bytes(y.contiguous().numpy().tobytes()) for y in model(x)]

    return run


def onnx_runner(path: str, row: list[int], threads: int) -> Runner:
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(rows: bytes, count: int) -> list[bytes]:
        (result,) = session.run(None, {name: numpy.frombuffer(rows, numpy.float32).reshape(count, *row)})
        return [y.tobytes() for y in result]

    return run


class Batcher:
    """Rows that wait at the same time are run as one batch."""

    def __init__(self, run: Runner, row_bytes: int, most_rows: int, delay: float) -> None:
        self.run, self.row_bytes, self.most_rows, self.delay = run, row_bytes, most_rows, delay
        self.requests = self.batches = 0
        self.waiting: queue.SimpleQueue[tuple[bytes, float, Future[bytes]]] = queue.SimpleQueue()
        self.left: tuple[bytes, float, Future[bytes]] | None = None  # it had no room in the last batch
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, rows: bytes) -> Future[bytes]:
        answer: Future[bytes] = Future()
        self.waiting.put((rows, time.monotonic(), answer))
        return answer

    def _next(self) -> list[tuple[bytes, float, Future[bytes]]]:
        batch = [self.left or self.waiting.get()]
        self.left = None
        rows, until = len(batch[0][0]) // self.row_bytes, batch[0][1] + self.delay
        while rows < self.most_rows:
            try:
                item = self.waiting.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                break
            if rows + len(item[0]) // self.row_bytes > self.most_rows:
                self.left = item
                break
            rows += len(item[0]) // self.row_bytes
            batch.append(item)
        return batch

    def _work(self) -> None:
        while True:
            batch = self._next()
            self.batches += 1
            self.requests += len(batch)
            try:
                rows = b"".join(item[0] for item in batch)
                results = iter(self.run(rows, len(rows) // self.row_bytes))
                for given, _, answer in batch:
                    answer.set_result(b"".join(next(results) for _ in range(len(given) // self.row_bytes)))
            except Exception as error:
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)


def handler(batcher: Batcher) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, f"requests {batcher.requests}\nbatches {batcher.batches}\n".encode())
            else:
                self._answer(200 if self.path == "/health" else 404, b"ok\n")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            rows, rest = divmod(len(body), batcher.row_bytes)
            if rest or not 1 <= rows <= batcher.most_rows:
                text = f"expected 1 to {batcher.most_rows} rows of {batcher.row_bytes} bytes, got {len(body)} bytes\n"
                return self._answer(400, text.encode())
            try:
                self._answer(200, batcher.add(body).result())
            except Exception as error:
                self._answer(500, f"{error}\n".encode())

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super().server_bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--row", default="64", help="sizes of a row, separated by commas")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--delay", type=int, default=2000, help="microseconds")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    row = [int(n) for n in arguments.row.split(",")]
    make = onnx_runner if arguments.model.endswith(".onnx") else package_runner
    size = struct.calcsize("f")
    for n in row:
        size *= n
    batcher = Batcher(make(arguments.model, row, arguments.threads), size, arguments.batch, arguments.delay * 1e-6)
    server = Server(("127.0.0.1", arguments.port), handler(batcher))
    print(f"serving {arguments.model} on port {arguments.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
