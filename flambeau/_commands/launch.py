"""`flambeau launch`: start a PyTorch program in several processes, with torchrun's options; in it `import torch` means
flambeau."""

from __future__ import annotations

import os


def main(arguments: list[str]) -> int:
    from flambeau._compat.alias import environment
    from flambeau.distributed.run import main as run

    os.environ.update(environment(os.environ))
    run(arguments)
    return 0
