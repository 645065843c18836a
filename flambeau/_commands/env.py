"""`flambeau env`: what a bug report should say about the machine and the settings."""

from __future__ import annotations

import argparse
import os


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau env",
        description="Print versions, processor and settings, for bug reports.",
        epilog="example: flambeau env > env.txt",
    )
    parser.parse_args(arguments)
    from flambeau._compat.alias import TORCH_VERSION
    from flambeau._inductor import build
    from flambeau.utils.collect_env import get_env_info, pretty_str

    print(pretty_str(get_env_info()._replace(torch_version=TORCH_VERSION)).rstrip())
    print(f"\nKernel compiler: {build.compiler() or 'none: compile() runs operators one by one'}")
    print(f"Kernel cache: {build.cache_dir()}")
    settings = {
        n: v for n, v in os.environ.items() if n.startswith(("FLAMBEAU_", "TORCH", "OMP_", "MKL_", "OPENBLAS_"))
    }
    print("Settings from the environment:" + ("" if settings else " none"))
    for name, value in sorted(settings.items()):
        print(f"  {name}={value}")
    return 0
