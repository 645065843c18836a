"""Writes docs/graph-breaks.md from the numbered records of capture."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def text() -> str:
    """The page. The records import nothing, so that no native code is needed."""
    spec = importlib.util.spec_from_file_location("breaks", ROOT / "flambeau" / "_dynamo" / "breaks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["breaks"] = module
    spec.loader.exec_module(module)
    return str(module.document())


if __name__ == "__main__":
    (ROOT / "docs" / "graph-breaks.md").write_text(text())
