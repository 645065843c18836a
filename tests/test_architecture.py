"""The page on the architecture is true: its files exist, and each of a walk is visited once."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PLACES = ("", "flambeau", "flambeau/_inductor", "csrc/compiled", "flambeau/ops/pooling")
GENERATED = {"pointwise_elementwise_arithmetic_*.cpp"}


def files(text: str) -> list[str]:
    return re.findall(r"`([\w./*]+\.(?:py|cpp))`", text)


@pytest.mark.parametrize("name", sorted(set(files(TEXT)) - GENERATED))
def test_files_that_it_names_exist(name):
    assert any((ROOT / place / name).exists() for place in PLACES)


@pytest.mark.parametrize("walk", ["`a + b`", "`compile(model)(x)`"])
def test_a_walk_visits_each_file_once(walk):
    section = TEXT.split(f"## The walk of {walk}")[1].split("\n## ")[0]
    visited = files(section)
    assert len(visited) >= 8 and len(visited) == len(set(visited))


def test_every_folder_of_native_code_is_described():
    folders = {path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()}
    assert folders == set(re.findall(r"^    csrc/(\w+) ", TEXT, re.MULTILINE))


def test_pages_that_it_links_to_exist():
    links = re.findall(r"\]\(([\w./-]+\.md)\)", TEXT)
    assert links and [link for link in links if not (ROOT / "docs" / link).exists()] == []
