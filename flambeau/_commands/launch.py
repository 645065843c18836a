"""`flambeau launch`: start a PyTorch program in several processes, with torchrun's options; in it `import torch` means
flambeau."""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    from flambeau.distributed.run import main as run

    run(arguments)
    return 0
