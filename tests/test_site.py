"""The site: every document and every public module has a page; what pages link to is staged."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    into = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "tools" / "site.py"), "--stage-only", "--into", str(into)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return into


@pytest.fixture(scope="module")
def staged(folder):
    pages = folder / "pages"
    return {path.relative_to(pages).as_posix(): path.read_text() for path in pages.rglob("*.md")}


def test_every_page_is_in_the_navigation(folder, staged):
    settings = (folder / "mkdocs.yml").read_text()
    named = set(re.findall(r"[\w./-]+\.md", settings))
    assert named == set(staged)


def test_links_between_pages_lead_somewhere(folder, staged):
    missing = []
    for name, text in staged.items():
        for target in re.findall(r"\]\(([^)#\s]+\.md)", text):
            place = (folder / "pages" / name).parent / target
            if "://" not in target and not place.exists():
                missing.append(f"{name}: {target}")
    assert not missing


def test_the_reference_has_what_users_look_for(staged):
    for page, entry in [("nn", "Linear"), ("normalization", "softmax"), ("Tensor", "reshape"), ("optim", "AdamW")]:
        section = staged[f"reference/{page}.md"].partition(f"### {entry} {{")[2].partition("\n### ")[0]
        assert ">>>" in section, f"{entry} has no example"
    words = " ".join(staged.values())
    for word in ("DDP", "FSDP", "QAT", "mixed precision", "TORCH_LOGS", "graph break"):
        assert word in words
