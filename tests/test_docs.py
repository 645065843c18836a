"""The documents stay true: their Python blocks run, what they refer to is there, generated pages are current."""

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


def test_no_block_is_passed_over():
    """Fences are all of the kind that is run; what is indented is text: commands, output, layout, quotations."""
    fences = {
        (name_of(path), fence)
        for path in DOCUMENTS
        for fence in re.findall(r"^[ \t]*(?:```|~~~).*", path.read_text(), re.M)
    }
    assert {fence for _, fence in fences} == {"```python", "```"}, sorted(fences)


def anchors(path: pathlib.Path) -> set[str]:
    """The names under which headings of a document can be reached."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path):
    missing = []
    for target, _, anchor in re.findall(r"\]\(([^)#]*)(#?)([^)]*)\)", BLOCK.sub("", path.read_text())):
        if "://" in target:
            continue
        found = path.parent / target if target else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            missing.append(f"{target}#{anchor}")
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_files_that_are_named_exist(path):
    named = re.findall(r"`((?:flambeau|csrc|tests|tools|docs|examples|benchmarks)/[\w./*-]+)`", path.read_text())
    assert not [name for name in named if not any(ROOT.glob(name.rstrip("/")))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_that_are_named_exist(path):
    from flambeau.__main__ import COMMANDS

    text = path.read_text()
    lines = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^    (.*)$", text, re.MULTILINE)
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in lines:
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            assert {word for word in words[1:] if "=" not in word} <= targets, line
        if words[:1] == ["flambeau"] and len(words) > 1:
            assert words[1] in {*COMMANDS, "run", "doctor", "version", "help"}, line


def test_records_that_are_quoted_are_those_of_the_package():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    quoted = re.findall(r"^    ((?:pointwise\(|@composite)(?:.*\n    )*?.*)\n\n", text, re.MULTILINE)
    records = "\n".join(path.read_text() for path in sorted((ROOT / "flambeau/ops").rglob("*.py")))
    assert len(quoted) == 2 and all(quote.replace("\n    ", "\n") in records for quote in quoted)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_no_path_of_a_machine_stands_in_a_document(path):
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users)/\S*", path.read_text())


@pytest.mark.skipif(not (ROOT / "flambeau").is_dir(), reason="reads the sources of the package")
def test_table_of_operators_is_up_to_date():
    # In a process of its own: records are read without the native module.
    done = subprocess.run([sys.executable, "tools/document.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_have_the_versions_that_make_lint_has():
    wanted = re.findall(r"(?:ruff|clang-format)==[\d.]+", (ROOT / "Makefile").read_text())
    used = re.findall(r"(?:ruff|clang-format)==[\d.]+", (ROOT / ".pre-commit-config.yaml").read_text())
    assert wanted and set(used) == set(wanted)


def test_version_is_said_alike_everywhere():
    from flambeau.version import __version__

    assert (
        re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE).group(1) == __version__
    )
    assert re.search(r"project\(flambeau VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1) == __version__
