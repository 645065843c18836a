"""Loads a server: connections that each send one row after the other, and what they measured.

python load.py --port 8000 --connections 16 --seconds 5 --row 64
"""

from __future__ import annotations

import argparse
import asyncio
import math
import struct
import time


async def connection(port: int, body: bytes, until: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    while time.perf_counter() < until:
        begin = time.perf_counter()
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:] if b": " in line)
        content = await reader.readexactly(int(fields[b"content-length"]))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(content.decode())
        times.append(time.perf_counter() - begin)
    writer.close()


async def load(port: int, connections: int, seconds: float, width: int) -> dict[str, float]:
    """Requests a second, and the middle and the slowest hundredth of the times, in milliseconds."""
    body = struct.pack(f"{width}f", *(math.sin(i) for i in range(width)))
    times: list[float] = []
    warm = time.perf_counter() + min(1.0, seconds / 3)
    await asyncio.gather(*(connection(port, body, warm, []) for _ in range(connections)))
    begin = time.perf_counter()
    await asyncio.gather(*(connection(port, body, begin + seconds, times) for _ in range(connections)))
    taken = time.perf_counter() - begin
    times.sort()
    return {
        "requests/s": len(times) / taken,
        "p50, ms": times[len(times) // 2] * 1e3,
        "p99, ms": times[len(times) * 99 // 100] * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--row", default="64", help="sizes of a row, separated by commas")
    arguments = parser.parse_args()
    width = math.prod(int(n) for n in arguments.row.split(","))
    figures = asyncio.run(load(arguments.port, arguments.connections, arguments.seconds, width))
    print("  ".join(f"{name} {value:.2f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
