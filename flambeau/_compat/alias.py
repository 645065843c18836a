"""`import torch` as another name for flambeau, in this process and in the Python processes it starts.

A finder in front of `sys.meta_path` answers for `torch`, `torchvision`, `torchaudio`, `functorch` and `torch_xla` with the very module objects of
flambeau, so nothing is imported twice and `torch.nn is flambeau.nn`. Where torchvision itself is installed, its own source is
imported, on flambeau's operators in place of its compiled ones. The same finder tells `importlib.metadata` about a
distribution called torch. Child processes inherit two environment variables: PYTHONPATH, which leads to
`bootstrap/sitecustomize.py`, and FLAMBEAU_AS_TORCH, which names the Python installation that it holds for.

This file must not import flambeau when it is loaded: every Python child process loads it, most never import torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# The release whose API is followed; the local part tells programs and people what they are running.
TORCH_VERSION = "2.13.0+flambeau"
TORCHVISION_VERSION = "0.28.0+flambeau"
TORCHAUDIO_VERSION = "2.11.0+flambeau"

TARGETS = {
    "torch": "flambeau", "torchvision": "flambeau.vision", "torchaudio": "flambeau.audio", "functorch": "flambeau.functorch",
    "torch_xla": "flambeau.xla", "torchao": "flambeau.ao.torchao",
}  # fmt: skip
# Distributions beside PyTorch that libraries look for, to compute otherwise where they are: programs choose them.
_CHOSEN = frozenset(("torch_xla", "torchao"))
VERSIONS = {"torch": TORCH_VERSION, "torchvision": TORCHVISION_VERSION, "torchaudio": TORCHAUDIO_VERSION}
ENVIRONMENT = "FLAMBEAU_AS_TORCH"
_COMPAT = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_COMPAT)
BOOTSTRAP = os.path.join(_COMPAT, "bootstrap")


def own_name(name: str) -> str:
    """The module of flambeau behind a module name of torch."""
    head, dot, rest = name.partition(".")
    if head == "torch" and rest.split(".")[0] == "torch":  # torch.torch is torch
        return own_name(rest)
    return TARGETS[head] + dot + rest


def shown_name(own: str) -> str:
    """The name under which programs know a module of flambeau."""
    for alias, target in (("torchvision", "flambeau.vision"), ("torchaudio", "flambeau.audio"), ("torch", "flambeau")):
        if own == target or own.startswith(f"{target}."):
            return alias + own[len(target) :]
    return own


class _Module(ModuleType):
    """The class given to aliased modules: a name that is lacking is reported as the program wrote it.

    The import system sets a submodule on its parent when it is loaded, which is how submodules get the class too. It does
    so once more when the module is imported by its name of torch; a function that has taken the name by then, such as
    `autograd.gradcheck`, stays.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and value.__name__.startswith("flambeau."):
            if not isinstance(self.__dict__.get(name, value), ModuleType):
                return
            if type(value) is ModuleType:
                value.__class__ = _Module
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        shown = shown_name(self.__dict__.get("__name__", "?"))
        # Not imported here: an import asks modules for names that they may lack.
        absent = sys.modules.get("flambeau._compat.absent")
        message = f"flambeau has no {shown}.{name}"
        raise (
            AttributeError(message, name=name, obj=self) if absent is None else absent.UnknownName(message, name, self)
        )


class Loader:
    """Hands out the module of flambeau; there is nothing to execute."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has just put the alias's there
        if type(module) is ModuleType:
            module.__class__ = _Module

    def _origin(self) -> Any:
        from importlib.util import find_spec

        return find_spec(self.target).loader  # type: ignore[union-attr]

    def get_code(self, fullname: str) -> Any:
        """For `python -m torch.something`."""
        return self._origin().get_code(self.target)

    def get_source(self, fullname: str) -> Any:
        return self._origin().get_source(self.target)

    def get_filename(self, fullname: str) -> str:
        return self._origin().get_filename(self.target)

    def is_package(self, fullname: str) -> bool:
        return hasattr(import_module(self.target), "__path__")


class Finder:
    """Finds modules of torch in flambeau, and a distribution called torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        head = name.partition(".")[0]
        if head == "torchvision" and _torchvision_is_installed():
            if name != "torchvision.extension":
                return None
            own = "flambeau._compat.torchvision_extension"
        elif head not in TARGETS or (head in _CHOSEN and (_is_installed(head) or not _program_asks(head))):
            return None
        else:
            own = own_name(name)
        _ensure_importable()
        try:
            module = import_module(own)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{own}.".startswith(f"{error.name}."):
                raise
            return None
        if own == "flambeau":
            _take_over(module)
        spec = ModuleSpec(name, Loader(own), origin=getattr(module, "__file__", None))  # type: ignore[arg-type]
        if hasattr(module, "__path__"):
            spec.submodule_search_locations = list(module.__path__)
        return spec

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        name = getattr(context, "name", None)
        for alias, version in VERSIONS.items():
            if alias == "torchvision" and _torchvision_is_installed():
                continue
            if name is None or name.lower().replace("-", "_") == alias:
                yield _distribution(alias, version)

    def invalidate_caches(self) -> None: ...


def _program_asks(name: str) -> bool:
    """Whether the program imports a name, now or before, rather than a library that would use it where it is."""
    if name in sys.modules or (name == "torch_xla" and "PJRT_DEVICE" in os.environ):
        return True
    frame = sys._getframe(2)
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return not any(
        f"{os.sep}{folder}{os.sep}" in frame.f_code.co_filename for folder in ("site-packages", "dist-packages")
    )


def _torchvision_is_installed() -> bool:
    return _is_installed("torchvision")


def _is_installed(name: str) -> bool:
    """Whether importing a name finds the package of that name on the path. A companion is a single file."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded.__name__ == name
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name)
    return spec is not None and spec.origin is not None and spec.submodule_search_locations is not None


def _distribution(name: str, version: str) -> Any:
    from importlib.metadata import Distribution

    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Summary: flambeau under the name of the library whose API it follows\n",
        "top_level.txt": f"{name}\n",
        "RECORD": "",
        "INSTALLER": "flambeau\n",
    }

    class Alias(Distribution):
        def read_text(self, filename: str) -> str | None:
            return texts.get(filename)

        def locate_file(self, path: Any) -> Any:
            import pathlib

            return pathlib.Path(_PACKAGE).parent / path

    return Alias()


def _take_over(module: Any) -> None:
    """Programs choose their code by `torch.__version__`; flambeau's own stays in `version.flambeau`."""
    import_module("flambeau._compat.absent")
    from flambeau.torch_version import TorchVersion

    for name, loaded in list(sys.modules.items()):
        if name.startswith("flambeau") and type(loaded) is ModuleType:
            loaded.__class__ = _Module

    module.Tensor.__module__ = "torch"  # libraries ask the class of a value whose it is
    parameters = sys.modules.get("flambeau.nn.parameter")
    if parameters is not None:
        parameters.Parameter.__module__ = "torch.nn.parameter"
    module.__name__ = "torch"  # some libraries look at it; the spec and __package__ keep the real one
    module.__version__ = TorchVersion(TORCH_VERSION)
    module.version.__version__ = TorchVersion(TORCH_VERSION)


def _ensure_importable() -> None:
    """In a child process the folder of flambeau may not be on the path."""
    folder = os.path.dirname(_PACKAGE)
    if "flambeau" not in sys.modules and folder not in sys.path:
        from importlib.util import find_spec

        if find_spec("flambeau") is None:
            sys.path.append(folder)


def installed() -> bool:
    return any(type(finder).__module__.endswith("alias") and hasattr(finder, "find_spec") for finder in sys.meta_path)


def install(children: bool = True) -> None:
    """Let `import torch` mean flambeau from now on; with children, in Python processes started from here too."""
    loaded = sys.modules.get("torch")
    if loaded is not None and loaded is not sys.modules.get("flambeau"):
        raise ImportError("[as_torch] expected to come before PyTorch is imported, got it after `import torch`")
    if not installed():
        sys.meta_path.insert(0, Finder())
    if children:
        os.environ.update(environment(os.environ))


def environment(base: Any) -> dict[str, str]:
    """The variables a Python process needs to be started with the alias."""
    path = [part for part in base.get("PYTHONPATH", "").split(os.pathsep) if part and part != BOOTSTRAP]
    return {ENVIRONMENT: sys.prefix, "PYTHONPATH": os.pathsep.join([BOOTSTRAP, *path])}
