"""The documents stay true: their Python blocks run, their links lead somewhere, the table of operators is current."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_BLOCKS = [path for path in DOCUMENTS if BLOCK.search(path.read_text())]


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def program(path: pathlib.Path) -> str:
    """The blocks of a document as one program, each on the line where the document has it."""
    text, lines = path.read_text(), []
    for block in BLOCK.finditer(text):
        lines += [""] * (text.count("\n", 0, block.start(1)) - len(lines))
        lines += block.group(1).splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=name_of)
def test_python_blocks_run(path):
    # In a process of its own, for blocks that register devices or operators.
    run = f"exec(compile({program(path)!r}, {name_of(path)!r}, 'exec'), {{'__name__': '__main__'}})"
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#]+)", BLOCK.sub("", path.read_text()))
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not missing


def test_table_of_operators_is_up_to_date():
    # In a process of its own: records are read without the native module.
    done = subprocess.run([sys.executable, "tools/document.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_have_the_versions_that_make_lint_has():
    wanted = re.findall(r"(?:ruff|clang-format)==[\d.]+", (ROOT / "Makefile").read_text())
    used = re.findall(r"(?:ruff|clang-format)==[\d.]+", (ROOT / ".pre-commit-config.yaml").read_text())
    assert wanted and set(used) == set(wanted)
