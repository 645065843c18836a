"""Stage the pages of the site, and build it with Zensical.

    python tools/site.py [--stage-only] [--into FOLDER]

`docs/`, the README, the notebooks and a reference of the API become Markdown under build/site/pages; `mkdocs.yml` says how they
are ordered. The reference is written from the docstrings that `help()` shows, which for operators stand beside their records.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flambeau
from flambeau import _C
from flambeau.ops import rules

ROOT = Path(__file__).resolve().parent.parent

# Modules that have a page each, by heading.
MODULES = {
    "Layers": "nn nn.functional nn.init nn.utils nn.parallel nn.attention",
    "Optimization": "optim optim.lr_scheduler optim.swa_utils amp",
    "Derivatives": "autograd func utils.checkpoint",
    "Mathematics": "linalg fft special sparse nested masked distributions random",
    "Data and files": "utils.data serialization hub",
    "Compile": "compiler fx profiler",
    "Leaving Python": "export onnx jit",
    "Many processes": "distributed distributed.tensor distributed.tensor.parallel distributed.fsdp distributed.checkpoint "
    "distributed.pipelining distributed.device_mesh",
    "Devices": "cuda backends lazy xla library",
    "Quantization": "ao.quantization",
    "Vision": "vision.models vision.transforms vision.datasets vision.ops vision.utils",
}  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stage-only", action="store_true", help="write the pages, build nothing")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site", help="the folder (default build/site)")
    options = parser.parse_args(arguments)
    pages = options.into / "pages"
    stage(pages)
    settings = (ROOT / "mkdocs.yml").read_text().replace("_dir: build/site/", "_dir: ")
    settings_file = options.into / "mkdocs.yml"
    settings_file.write_text(settings.replace("REFERENCE", json.dumps(reference(pages / "reference"))))
    if options.stage_only:
        return 0
    return subprocess.call([sys.executable, "-m", "zensical", "build", "--strict", "-f", str(settings_file)])


RENAMED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def stage(pages: Path) -> None:
    """Copies what is written by hand."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.ipynb"))
    for source, target in RENAMED.items():
        (pages / target).write_text(from_root((ROOT / source).read_text()))
    for page in pages.rglob("*.md"):
        page.write_text(with_links(page, pages))
    (pages / "notebooks").mkdir(exist_ok=True)
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        (pages / "notebooks" / f"{notebook.stem}.md").write_text(notebook_page(notebook))


def from_root(text: str) -> str:
    """A page of the repository's root, with links as they are from the folder of documents."""
    text = text.replace("](docs/", "](")
    return re.sub(r"\]\((\w+\.md)\)", lambda match: f"]({RENAMED.get(match[1], match[1])})", text)


def with_links(page: Path, pages: Path) -> str:
    """The text of a page in which links to files of the repository that are no pages are plain text."""
    here = page.parent.relative_to(pages)

    def link(match: re.Match[str]) -> str:
        text, target = match[1], match[2].partition("#")[0]
        if not target or "://" in target or (page.parent / target).exists():
            return match[0]
        place = (ROOT / "docs" / here / target).resolve()
        if not place.exists():
            place = (ROOT / here / target).resolve()
        if place.suffix == ".ipynb":
            return f"[{text}]({target.removesuffix('.ipynb')}.md)"
        if place.parent == ROOT and place.name in RENAMED:
            return f"[{text}]({'../' * len(here.parts)}{RENAMED[place.name]})"
        return text

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, page.read_text())


# ---------------------------------------------------------------- notebooks


def notebook_page(path: Path) -> str:
    """A notebook as a page: text, code, and what the code printed when it was last run."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", ())) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    parts.append(f"This page is the notebook `docs/notebooks/{path.name}`.")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- reference


def reference(folder: Path) -> list[Any]:
    """Writes a page for each family of functions, for Tensor and for each module; returns them as the settings order them."""
    folder.mkdir()
    nav: list[Any] = ["reference/index.md"]
    families = [write_page(folder, name, title, entries) for name, title, entries in root_pages()]
    nav.append({"Functions": families})
    nav.append({"Tensor": write_page(folder, "Tensor", "flambeau.Tensor", methods())})
    for heading, modules in MODULES.items():
        pages = [write_module(folder, module) for module in modules.split()]
        nav.append({heading: [page for page in pages if page]})
    lines = [
        "# Reference",
        "",
        "Every public function, method, layer and class, with an example where one says more than words.",
        "",
    ]
    for entry in nav[1:]:
        for heading, pages in entry.items():
            links = [
                f"[{Path(page).stem}]({Path(page).name})" for page in ([pages] if isinstance(pages, str) else pages)
            ]
            lines.append(f"- **{heading}**: {', '.join(links)}")
    (folder / "index.md").write_text("\n".join(lines) + "\n")
    return nav


def public_names(module: Any) -> list[str]:
    return sorted(getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")])


def root_pages() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The functions of the package itself by family of operators, then the others."""
    families: dict[str, dict[str, Any]] = {}
    for name in public_names(flambeau):
        value = getattr(flambeau, name, None)
        if not callable(value) or not described(value) or isinstance(value, type):
            continue
        place = next((p for p in map(_C._record_place, overloads(name)) if p), None)
        family = place[0].split(".")[2] if place else "other"
        families.setdefault(family, {})[f"flambeau.{name}"] = value
    for package in rules.families():
        family = package.rpartition(".")[2]
        if family in families:
            yield family, heading_of(family), families[family]
    yield "other", "Other functions", families.get("other", {})


def overloads(name: str) -> list[str]:
    return [name, *(f"{name}.{suffix}" for suffix in ("Tensor", "Scalar", "int", "dim", "self", "default", "Number"))]


def heading_of(family: str) -> str:
    path = Path(flambeau.__file__).parent / "ops" / family / "documentation.md"
    first = path.read_text().partition("\n")[0] if path.exists() else ""
    return first.removeprefix("# ") or family.capitalize()


def methods() -> dict[str, Any]:
    names = [name for name in dir(flambeau.Tensor) if not name.startswith("_")]
    members = {f"Tensor.{name}": inspect.getattr_static(flambeau.Tensor, name) for name in names}
    return {name: value for name, value in members.items() if described(value)}


def write_module(folder: Path, name: str) -> str | None:
    try:
        module = importlib.import_module(f"flambeau.{name}")
    except ImportError:
        return None
    values = {f"{name}.{entry}": getattr(module, entry, None) for entry in public_names(module)}
    entries = {key: value for key, value in values.items() if callable(value) and described(value)}
    return write_page(folder, name, f"flambeau.{name}", entries, inspect.getdoc(module) or "")


def described(value: Any) -> bool:
    text = inspect.getdoc(value)
    inherited = isinstance(value, type) and "__doc__" not in vars(value)
    return bool(text and text.strip()) and not inherited


def write_page(folder: Path, name: str, title: str, entries: dict[str, Any], introduction: str = "") -> str:
    parts = [f"# {title}", "", *([paragraphs(introduction), ""] if introduction else [])]
    for key, value in entries.items():
        short = key.rpartition(".")[2]
        parts += [
            f"### {short} {{ #{anchor(short)} }}",
            "",
            f"```python\n{signature(key, value)}\n```",
            "",
            paragraphs(body(value)),
            "",
        ]
    (folder / f"{name}.md").write_text("\n".join(parts) + "\n")
    return f"reference/{name}.md"


def anchor(name: str) -> str:
    return name.strip("_") or name


def signature(name: str, value: Any) -> str:
    """Signatures as the docstring has them, else from the function."""
    lines = (inspect.getdoc(value) or "").splitlines()
    short = name.rpartition(".")[2]
    own = []
    for line in lines:
        if not re.match(rf"{re.escape(short)}\(.*\)", line):
            break
        own.append(line)
    if own:
        return "\n".join(own)
    try:
        shown = str(inspect.signature(value))
    except (TypeError, ValueError):
        shown = "(...)"
    shown = re.sub(r" at 0x[0-9a-f]+", "", shown)
    return f"{'class ' if isinstance(value, type) else ''}{name}{shown}"


def body(value: Any) -> str:
    """The docstring below its signatures."""
    lines = (inspect.getdoc(value) or "").splitlines()
    while lines and re.match(r"\w+\(.*\)( -> .*)?$", lines[0]):
        lines.pop(0)
    return "\n".join(lines).strip()


def paragraphs(text: str) -> str:
    """A docstring as Markdown: examples become blocks of code, what is indented stays as it is."""
    result: list[str] = []
    inside = False
    for line in text.splitlines():
        example = line.lstrip().startswith(">>>")
        if example and not inside:
            result += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            result += ["```"]
            inside = False
        result.append(line.strip() if inside and example else line)
    return "\n".join([*result, "```"] if inside else result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
