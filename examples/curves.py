"""Curves without a plotting library: `draw` for the terminal, `save` for a PNG file, `progress` for waiting."""

import itertools
import struct
import sys
import time
import zlib

INK, GRID, PAPER = (214, 84, 32), (225, 225, 225), (255, 255, 255)


def resample(values, count):
    """`count` values, each the mean of its share of `values`."""
    edges = [i * len(values) // count for i in range(count + 1)]
    return [sum(values[a : max(b, a + 1)]) / max(b - a, 1) for a, b in itertools.pairwise(edges)]


def draw(values, width=64, height=12, label="loss"):
    """The curve as lines of text; half blocks give each line two levels."""
    points = resample(values, min(width, len(values)))
    low, high = min(points), max(points)
    scale = (2 * height - 1) / ((high - low) or 1)
    rows = [[" "] * len(points) for _ in range(height)]
    for x, value in enumerate(points):
        level = round((value - low) * scale)
        rows[height - 1 - level // 2][x] = "▀" if level % 2 else "▄"
    lines = []
    for i, row in enumerate(rows):
        mark = f"{high:7.2f}" if i == 0 else f"{low:7.2f}" if i == height - 1 else " " * 7
        lines.append(f"{mark} ┤{''.join(row)}")
    lines.append(f"{' ' * 8}└{'─' * len(points)}  {label} over {len(values)} steps")
    return "\n".join(lines)


def save(path, values, width=640, height=360, margin=20):
    """The curve as a PNG: rows of red, green and blue behind a filter byte, deflated, in three chunks."""
    pixels = [[PAPER] * width for _ in range(height)]
    inside, tall = width - 2 * margin, height - 2 * margin
    for i in range(5):
        y = margin + i * (tall - 1) // 4
        pixels[y][margin : width - margin] = [GRID] * inside
    points = resample(values, min(inside, len(values)))
    low, high = min(points), max(points)
    place = [margin + round((high - v) / ((high - low) or 1) * (tall - 1)) for v in points]
    for x in range(inside):
        here = place[x * len(place) // inside]
        after = place[min(x + 1, inside - 1) * len(place) // inside]
        for y in range(min(here, after), max(here, after) + 2):
            pixels[min(y, height - 1)][margin + x] = INK
    rows = b"".join(b"\0" + b"".join(bytes(p) for p in row) for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)))
        file.write(chunk(b"IEND", b""))


def progress(steps, text=lambda: "", width=30):
    """Yields 0 to steps - 1 behind a bar on stderr with the time left; silent where stderr is no terminal."""
    start, shown, visible = time.perf_counter(), 0.0, sys.stderr.isatty()
    for step in range(steps):
        yield step
        now = time.perf_counter()
        if visible and (now - shown > 0.1 or step + 1 == steps):
            shown, done = now, (step + 1) / steps
            bar = ("█" * round(done * width)).ljust(width, "░")
            left = (now - start) * (1 - done) / done
            end = "\n" if step + 1 == steps else ""
            sys.stderr.write(f"\r  {bar} {step + 1}/{steps}  {left:4.0f} s left  {text()}\033[K{end}")
            sys.stderr.flush()
