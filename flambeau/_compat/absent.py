"""Names of torch that flambeau does not have yet: they import, and fail when they are used.

Libraries import far more than they call. `absent_names.TABLE` says which modules and names that concerns, and why each
is lacking; the finder at the end of `sys.meta_path` makes the modules. A real module that lacks single names hands on to
`attribute`. Names that are in neither raise AttributeError and ImportError, as programs that probe for them expect.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _message(name: str, reason: str) -> str:
    return f"flambeau has no {name} yet: {reason}"


class AbsentType(type):
    """The class of classes that cannot be instantiated yet; they serve in annotations and isinstance."""

    __absent__: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(cls.__absent__)

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}' (not available)>"


class Description:
    """Base of classes that only describe what something lacking would do: they are made, and remember how."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self.__dict__.update(kwargs)

    def __repr__(self) -> str:
        arguments = [*map(repr, self._args), *(f"{k}={v!r}" for k, v in self.__dict__.items() if k != "_args")]
        return f"{type(self).__name__}({', '.join(arguments)})"


class AbsentValue:
    """A constant that something lacking would take; equal to itself only."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = self.__name__ = name.rpartition(".")[2]
        self.__absent__ = _message(name, reason)
        self._shown = name

    def __repr__(self) -> str:
        return self._shown


def absent_class(name: str, reason: str, bases: tuple[type, ...] = ()) -> Any:
    module, _, leaf = name.rpartition(".")
    body = {"__module__": module, "__qualname__": leaf, "__absent__": _message(name, reason), "__slots__": ()}
    return AbsentType(leaf, bases, body)


def absent_function(name: str, reason: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(_message(name, reason))

    call.__module__, _, leaf = name.rpartition(".")
    call.__name__ = call.__qualname__ = leaf
    call.__absent__ = _message(name, reason)  # type: ignore[attr-defined]
    return call


def passing_decorator(name: str) -> Callable[..., Any]:
    """A decorator, used with or without arguments, that leaves what it is given unchanged."""

    def decorate(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return lambda function: function

    decorate.__name__ = decorate.__qualname__ = name
    return decorate


def reason(value: Any) -> str | None:
    """Why something is lacking, None for what works. `flambeau doctor` asks."""
    text = getattr(value, "__absent__", None)
    return text if isinstance(text, str) else None


def answer(name: str, value: Any) -> Callable[..., Any]:
    """A function that always gives the same answer."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return value

    call.__name__ = call.__qualname__ = name
    return call


def _name(token: str) -> str:
    """The name in a word of the table."""
    return token.lstrip("@!:~").partition("{")[0].partition("=")[0].removesuffix("()")


def _make(module: str, token: str, why: str) -> tuple[str, Any]:
    """The name and the object that a word of the table stands for."""
    name, members = _name(token), token.partition("{")[2]
    full = f"{module}.{name}"
    if "=" in token:
        import ast

        head, _, text = token.partition("=")
        value = ast.literal_eval(text)
        return name, answer(name, value) if head.endswith("()") else value
    if token.startswith("@"):
        return name, passing_decorator(name)
    if token.startswith("!"):
        return name, type(name, (RuntimeError,), {"__module__": module})
    if token.startswith("~"):
        return name, type(name, (Description,), {"__module__": module, "__absent__": _message(full, why)})
    if name.isupper() or token.startswith(":"):
        return name, AbsentValue(full, why)
    if not name.lstrip("_")[:1].isupper():
        return name, absent_function(full, why)
    value = absent_class(full, why)
    for member in filter(None, members.rstrip("}").split(",")):
        inner = f"{full}.{member}"
        type.__setattr__(
            value, member, AbsentValue(inner, why) if member.isupper() else staticmethod(absent_function(inner, why))
        )
    return name, value


def _shown(module: str) -> str:
    return "torch" + module.removeprefix("flambeau")


def _entry(module: str) -> tuple[str, str] | None:
    """Reason and words of a module of the table; also for packages that only lead to one."""
    from flambeau._compat.absent_names import TABLE

    name = module.removeprefix("flambeau").lstrip(".")
    if name in TABLE:
        return TABLE[name]
    if any(known.startswith(f"{name}.") for known in TABLE):
        return "", ""
    return None


def attribute(module: str, name: str) -> Any:
    """What `module.name` is when it is in the table: a stand-in or a module of stand-ins. Else AttributeError."""
    if not name.startswith("__"):
        if (entry := _entry(module)) is not None:
            why, words = entry
            for token in words.split():
                if _name(token) == name:
                    value = _make(_shown(module), token, why)[1]
                    setattr(sys.modules[module], name, value)
                    return value
        if _entry(f"{module}.{name}") is not None:
            from importlib import import_module

            return import_module(f"{module}.{name}")
    raise UnknownName(f"module {module!r} has no attribute {name!r}", name, sys.modules[module])


def names_of(module: str, submodules: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of a module that lacks single names: `__getattr__ = absent.names_of(__name__)`.

    Submodules are attributes as well, and imported when they are first asked for.
    """
    if not submodules:
        return partial(attribute, module)
    known = frozenset(submodules.split())

    def get(name: str) -> Any:
        from importlib import import_module

        return import_module(f"{module}.{name}") if name in known else attribute(module, name)

    return get


class UnknownName(AttributeError):
    """A name that is not there. When the message is read, it says which one may have been meant.

    Python does so itself, but not for modules of more than 750 names.
    """

    def __init__(self, message: str, name: str, module: ModuleType) -> None:
        super().__init__(message, name=name)
        self._module = module

    def __str__(self) -> str:
        from difflib import get_close_matches

        near = get_close_matches(self.name, dir(self._module), n=1, cutoff=0.8)
        return super().__str__() + (f". Did you mean: {near[0]!r}?" if near else "")


UnknownName.__module__, UnknownName.__qualname__ = "builtins", "AttributeError"  # as tracebacks show it


def module_spec(name: str) -> ModuleSpec | None:
    """How to load a module of the table; None for other modules."""
    return None if _entry(name) is None else ModuleSpec(name, _Loader(), is_package=True)  # type: ignore[arg-type]


class _Loader:
    """Makes a module whose names are made when they are asked for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "Names that flambeau does not have yet; they fail when they are used."
        module.__getattr__ = names_of(module.__name__)  # type: ignore[method-assign]
        words = _entry(module.__name__)[1].split()  # type: ignore[index]
        module.__all__ = [_name(token) for token in words]  # type: ignore[attr-defined]
