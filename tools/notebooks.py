"""Run the notebooks of the documentation and write what they print into them.

    python tools/notebooks.py [NOTEBOOK ...]

Cells are run one after the other in one scope, as Jupyter would; no Jupyter is needed. The tests run the same cells.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"


def run(path: Path) -> dict[str, Any]:
    """The notebook with the output of its cells."""
    notebook = json.loads(path.read_text())
    scope: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), path.name, "exec"), scope)
        lines = printed.getvalue().splitlines(keepends=True)
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []
    return dict(notebook)


def main(arguments: list[str]) -> int:
    for path in map(Path, arguments) if arguments else sorted(FOLDER.glob("*.ipynb")):
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
