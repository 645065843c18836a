"""Write the results of the examples in the documentation of operators.

python tools/examples.py FAMILY...

Lines below `>>>` in `flambeau/ops/FAMILY/documentation.md` become what the examples print now; read the difference before
committing it. The tests run the same examples.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import flambeau

OPS = Path(flambeau.__file__).parent / "ops"


def printed(source: str, scope: dict[str, Any]) -> str:
    """What an example prints at the prompt, the last line of a traceback included."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, "<example>", "single"), scope)
        except Exception as error:
            print(f"Traceback (most recent call last):\n    ...\n{type(error).__name__}: {error}")
    return out.getvalue()


def filled(lines: list[str]) -> list[str]:
    """The lines of a file with the results of its examples."""
    result: list[str] = []
    scope: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        result.append(line)
        if line.startswith("## "):
            scope = {"flambeau": flambeau, "nn": flambeau.nn, "F": flambeau.nn.functional}
        if not line.startswith(">>> "):
            continue
        source = [line[4:]]
        while at < len(lines) and lines[at].startswith("..."):
            source.append(lines[at][4:])
            result.append(lines[at])
            at += 1
        while at < len(lines) and lines[at] and not lines[at].startswith((">>>", "## ", "See also")):
            at += 1  # the result as it was
        result.extend(text if text else "<BLANKLINE>" for text in printed("\n".join(source) + "\n", scope).splitlines())
    return result


def main(families: list[str]) -> int:
    for family in families:
        path = (OPS.parent if family == "_tensor" else OPS) / family / "documentation.md"
        path.write_text("\n".join(filled(path.read_text().splitlines())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
