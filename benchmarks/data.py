"""Data loading and checkpoints beside PyTorch's: python benchmarks/data.py [--quick]

Each case runs in both libraries in turn, several times; the best times and their ratio are printed.
"""

import argparse
import os
import tempfile
import time

import torch

import flambeau


def samples(lib, count):
    """A dataset of small samples, each a row and its number."""

    class Rows(lib.utils.data.Dataset):
        def __init__(self):
            self.rows = lib.randn(count, 3)

        def __len__(self):
            return count

        def __getitem__(self, i):
            return self.rows[i], i

    return Rows()


def epoch(lib, dataset, **options):
    loader = lib.utils.data.DataLoader(dataset, batch_size=64, **options)
    for _ in loader:
        pass


def cases(lib, count, folder):
    """Name and function of each case."""
    data = lib.utils.data
    small = samples(lib, count)
    rows = data.TensorDataset(lib.randn(count, 3), lib.arange(count))
    pictures = data.TensorDataset(lib.randn(1024, 3, 96, 96), lib.arange(1024))
    yield f"{count} samples, 2 workers", lambda: epoch(lib, small, num_workers=2, shuffle=True)
    yield f"{count} samples, no workers", lambda: epoch(lib, small, shuffle=True)
    yield f"TensorDataset of {count} rows", lambda: epoch(lib, rows, shuffle=True)
    yield f"TensorDataset of {count} rows, 2 workers", lambda: epoch(lib, rows, num_workers=2)
    yield "1024 pictures, 2 workers", lambda: epoch(lib, pictures, num_workers=2)
    state = {f"layer{i}.weight": lib.randn(1024, 1024) for i in range(50)}
    many = {f"layer{i}.weight": lib.randn(4) for i in range(2000)}
    path = os.path.join(folder, f"{lib.__name__}.pt")
    yield "save 200 MB", lambda: lib.save(state, path)
    yield "load 200 MB", lambda: lib.load(path)
    yield "load 200 MB mapped", lambda: lib.load(path, mmap=True)
    yield "save 2000 small tensors", lambda: lib.save(many, path + ".many")
    yield "load 2000 small tensors", lambda: lib.load(path + ".many")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples and repetitions")
    quick = parser.parse_args().quick
    count, repeat = (10_000, 2) if quick else (100_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'case':42} {'flambeau':>10} {'PyTorch':>10} {'ratio':>6}")
        for (name, ours), (_, theirs) in zip(cases(flambeau, count, folder), cases(torch, count, folder), strict=True):
            best = [float("inf"), float("inf")]
            for _ in range(repeat):
                for i, function in enumerate((ours, theirs)):
                    os.sync()  # so that one does not wait for the other's writes
                    start = time.perf_counter()
                    function()
                    best[i] = min(best[i], time.perf_counter() - start)
            print(f"{name:42} {best[0] * 1e3:8.1f}ms {best[1] * 1e3:8.1f}ms {best[0] / best[1]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
