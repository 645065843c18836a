"""The package's layering: imports point downward, PyTorch is never imported, native code keeps Python out."""

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "flambeau"
COMPAT = PACKAGE / "_compat" / "torch"  # modules that only programs written for PyTorch import

# From the bottom up. A module belongs to the layer with the longest matching name and may import, when it is
# loaded, only from its own layer and those below. Imports inside functions run later and are not restricted.
LAYERS = (
    ("_C", "version", "__future__", "_compat", "_libraries", "_logging"),
    ("backends",),
    ("ops",),
    (
        "types",
        "accelerator",
        "overrides",
        "utils",
        "_tensor",
        "_utils",
        "library",
        "_ops",
        "futures",
        "random",
        "storage",
    ),
    ("autograd",),
    (
        "testing",
        "serialization",
        "linalg",
        "fft",
        "sparse",
        "masked",
        "nested",
        "signal",
        "func",
        "ao.quantized_tensor",
        "utils.checkpoint",
    ),
    ("nn", "optim", "amp", "distributions", "_higher_order_ops"),
    ("_subclasses",),
    ("fx",),
    ("_functorch",),
    ("_inductor",),
    ("_dynamo",),
    (
        "utils.data",
        "multiprocessing",
        "utils.model_zoo",
        "hub",
        "jit",
        "export",
        "onnx",
        "ao",
        "vision",
        "audio",
        "text",
        "distributed",
        "cuda",
        "profiler",
        "lazy",
        "xla",
    ),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
PUBLIC_FILES = 22  # of the package root, most of them modules that programs import


def module_name(path: pathlib.Path) -> str:
    """Dotted name inside the package; empty for the package itself."""
    parts = path.relative_to(COMPAT if path.is_relative_to(COMPAT) else PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def compat_modules() -> frozenset[str]:
    return frozenset(module_name(path) for path in COMPAT.rglob("*.py"))


def level(module: str) -> int:
    """Index of the module's layer; the package itself and unlisted modules sit on top."""
    parts = module.split(".")
    if module in compat_modules():
        return len(LAYERS)
    for end in range(len(parts), 0, -1):
        if (name := ".".join(parts[:end])) in LEVEL:
            return LEVEL[name]
    return len(LAYERS)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def load_time_nodes(tree: ast.AST):
    """Nodes executed when the module is loaded: not those inside functions or `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or is_type_checking(child):
            continue
        yield child
        yield from load_time_nodes(child)


def imported(path: pathlib.Path, nodes):
    """Absolute names of the modules that the given nodes import."""
    package = ["flambeau", *module_name(path.parent / "__init__.py").split(".")]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            known = PACKAGE.parent / base.replace(".", "/")
            for alias in node.names:
                is_module = (known / alias.name).is_dir() or (known / f"{alias.name}.py").is_file()
                is_module |= f"{base}.{alias.name}".removeprefix("flambeau.") in compat_modules()
                yield f"{base}.{alias.name}" if is_module or alias.name == "_C" else base


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    own = module_name(path)
    for name in imported(path, load_time_nodes(ast.parse(path.read_text()))):
        # `import flambeau` names the facade, whose contents are looked up when they are used.
        if name.startswith("flambeau."):
            target = name.removeprefix("flambeau.")
            assert level(target) <= level(own), f"{own or 'flambeau'} imports {target}, which is above it"


def test_a_module_is_in_the_engine_or_for_compatibility():
    engine = {module_name(path) for path in FILES if not path.is_relative_to(COMPAT)}
    assert not engine & compat_modules()


def test_the_package_root_stays_small():
    assert len(list(PACKAGE.glob("*.py"))) <= PUBLIC_FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pytorch_is_never_imported(path):
    names = set(imported(path, ast.walk(ast.parse(path.read_text()))))
    assert not {name for name in names if name.split(".")[0] == "torch"}


def test_only_the_bindings_include_python_headers():
    native = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cpp", ".cu")]
    include = re.compile(r'^\s*#\s*include\s*[<"](Python\.h|nanobind/|python/)', re.MULTILINE)
    outside = [path for path in native if path.relative_to(ROOT / "csrc").parts[0] != "python"]
    assert not [str(path) for path in outside if include.search(path.read_text())]
