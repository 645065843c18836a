"""Packs libflambeau_cuda.so into a wheel of its own, flambeau-cuda, which an installed flambeau finds at run time.

python tools/cuda_wheel.py [library] [--into dist] [--platform manylinux_2_28_x86_64]

Without a library: the one that `make cuda` has built in the tree. The wheel holds no Python code, so that one serves every
Python; it requires the flambeau of the same version, and the packages of NVIDIA that have CUDA's own libraries.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LIBRARIES = ("cublas", "cusolver", "cudnn", "cufft")  # opened at first use, see docs/cuda.md


def metadata(version: str) -> str:
    needs = [f"flambeau=={version}"] + [f"nvidia-{name}-cu12" for name in LIBRARIES]
    lines = [
        "Metadata-Version: 2.4", "Name: flambeau-cuda", f"Version: {version}",
        "Summary: The CUDA library of flambeau", "License-Expression: Apache-2.0", "License-File: LICENSE",
        *(f"Requires-Dist: {need}" for need in needs),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def pack(library: Path, folder: Path, platform: str) -> Path:
    """Writes the wheel and gives its path."""
    from flambeau._commands.wheel_file import write_wheel

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    release = f"flambeau_cuda-{version}"
    files = {
        "flambeau_cuda/libflambeau_cuda.so": library.read_bytes(),
        f"{release}.dist-info/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return write_wheel(folder, release, f"py3-none-{platform}", metadata(version), files)


def main() -> int:
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", type=Path, default=ROOT / "flambeau" / "libflambeau_cuda.so")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--platform", default=here)
    options = parser.parse_args()
    if not options.library.exists():
        print(f"[cuda_wheel] expected a library, got none at {options.library}: make cuda builds it", file=sys.stderr)
        return 1
    wheel = pack(options.library, options.into, options.platform)
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
