"""Rules whose counts tools/house.py prints: native code includes downward, locals are named after what they hold."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import house  # noqa: E402

FOLDERS = sorted(path.name for path in (ROOT / "csrc").iterdir() if path.is_dir())


def test_every_folder_has_a_layer():
    assert set(FOLDERS) <= set(house.NATIVE_LAYERS)


def test_layers_have_no_cycle():
    seen: set[str] = set()
    for folder, below in house.NATIVE_LAYERS.items():  # from the bottom up
        assert set(below) <= seen
        seen.add(folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_includes_point_downward(folder):
    assert [line for line in house.upward_includes(ROOT) if line.startswith(f"csrc/{folder}/")] == []


def test_generated_kernels_include_no_front():
    """What is generated for each instruction set knows arithmetic and loops, not tensors or operators."""
    text = (ROOT / "tools/generate.py").read_text()
    kernels = text[: text.index("def generate_operators")]
    allowed = {
        "math/record_math.h",
        "math/full_range.h",
        "ops/pointwise_loops.h",
        "cpu/engine/reduce_loops.h",
        "ops/update_loops.h",
    }
    assert set(re.findall(r'#include "([^"]+)"', kernels)) == allowed


def test_functions_are_counted():
    """The reader of C++ behind `long functions` sees heads, bodies and what is not a function."""
    text = """
namespace a {
struct S {
  int f() const { return 1; }  // {
};
const char* text = "{";
template <class T>
void g(T x) {
  auto l = [] { return 2; };
}
}  // namespace a
"""
    found = [(head.split("(")[0].split()[-1], last - first + 1) for head, first, last in house.native_functions(text)]
    assert found == [("f", 1), ("g", 4)]


def test_locals_are_named_after_what_they_hold():
    assert house.vague_names(ROOT) == []


def test_names_are_those_of_the_function_itself(tmp_path, monkeypatch):
    source = tmp_path / "flambeau" / "a.py"
    source.parent.mkdir()
    source.write_text("def f(found):\n    def g():\n        made = 1\n    kept, x = 2, found\n    x.given = 3\n")
    monkeypatch.setattr(house, "tracked", lambda root, *suffixes: [p for p in [source] if p.is_relative_to(root)])
    assert house.vague_names(tmp_path) == ["flambeau/a.py:1 found", "flambeau/a.py:4 kept", "flambeau/a.py:3 made"]
