"""Print the folder that holds oneDNN's headers (`oneapi/dnnl/dnnl.h`), as installed from PyPI."""

import importlib.metadata
import pathlib
import sys

PACKAGE, HEADER = "onednn-devel-cpu-gomp", "include/oneapi/dnnl/dnnl.h"


def include_dir() -> pathlib.Path:
    """The folder to pass to the compiler; raises when the package is not installed."""
    for entry in importlib.metadata.files(PACKAGE) or []:
        if str(entry).endswith(HEADER):
            return pathlib.Path(str(entry.locate())).resolve().parents[2]
    raise FileNotFoundError(f"{PACKAGE} has no {HEADER}")


if __name__ == "__main__":
    try:
        print(include_dir())
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError) as error:
        sys.exit(f"[build] oneDNN headers not found ({error}); try: pip install {PACKAGE}")
