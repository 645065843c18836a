"""Modules that the program makes while it is captured.

Such a module is an object of its class whose tables of members hold stand-ins for tensors. What `Module` does to itself runs
natively; constructors, hooks' absence and `forward` are the program's, and the artifact makes the module again.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import Restart, Unsupported, UserError
from flambeau._dynamo.kinds import fl_module, is_parameter_class
from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.traced import NULL, TracedTensor
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

_MEMBERS = ("_parameters", "_buffers", "_modules")


def _initialize(tracer: Tracer, module: Any, *args: Any, **kwargs: Any) -> None:
    """Module.__init__"""
    from flambeau.nn.modules.registry import TABLES

    if args or kwargs or id(module) not in tracer.outside.fresh or type(module).call_super_init:
        raise Unsupported(breaks.UNKNOWN_CALL, f"construction of the module {type(module).__name__}")
    fl_module().__init__(module)
    for table in TABLES:
        tracer.outside.make_fresh(module.__dict__[table])


def _change(name: str) -> Callable[..., Any]:
    """A method of a table of members or hooks."""
    method = getattr(collections.OrderedDict, name)

    def run(tracer: Tracer, table: Any, *args: Any) -> Any:
        from flambeau._dynamo.values import native

        if id(table) not in tracer.outside.fresh:
            raise Unsupported(breaks.STORE, "members of a module")
        return native(method, table, *args)

    return run


def handlers() -> list[tuple[Any, Callable[..., Any]]]:
    """Functions of modules with what stands for them during capture."""
    from flambeau.nn.modules.registry import Registry

    changes = ("__setitem__", "__delitem__", "pop", "popitem", "clear", "move_to_end")
    return [(fl_module().__init__, _initialize), *((getattr(Registry, name), _change(name)) for name in changes)]


def store(tracer: Tracer, module: Any, name: str, new: Any) -> None:
    """What Module.__setattr__ and __delattr__ do to a new module."""
    state = module.__dict__
    if id(module) not in tracer.outside.fresh:
        raise Unsupported(breaks.STORE, f"{type(module).__name__}.{name}")
    tables = {table: state[table] for table in _MEMBERS if table in state}
    holder = next((table for table in tables if name in tables[table]), None)
    kind = _kind_of(new)
    if new is NULL:
        owner = state if holder is None else tables[holder]
        if name not in owner:
            raise UserError(AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'"))
        dict.__delitem__(owner, name) if owner is state else collections.OrderedDict.__delitem__(owner, name)
        return
    if kind is None and holder is None:
        object.__setattr__(module, name, new)
        return
    if not tables:
        raise UserError(AttributeError(f"cannot assign '{name}' before Module.__init__() call"))
    target = holder if kind is None else kind
    if target is None or (kind is None and new is not None and not (target == "_buffers" and _is_tensor(new))):
        raise Unsupported(breaks.STORE, f"{type(module).__name__}.{name}")
    state.pop(name, None)
    if holder is not None and holder != target:
        collections.OrderedDict.__delitem__(tables[holder], name)
    collections.OrderedDict.__setitem__(tables[target], name, new)


def _kind_of(value: Any) -> str | None:
    """The table that a value goes to by what it is."""
    if isinstance(value, fl_module()):
        return "_modules"
    if type(value) is TracedTensor and is_parameter_class(value.cls):
        return "_parameters" if value.cls.__name__ == "Parameter" else "_buffers"
    return None


def _is_tensor(value: Any) -> bool:
    return type(value) is TracedTensor


def call_forward(tracer: Tracer, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """module(...) of a new module, which has no hooks."""
    from flambeau._dynamo import attributes
    from flambeau.nn.modules.registry import TABLES

    if any(module.__dict__.get(table) for table in TABLES if table not in _MEMBERS):
        raise Unsupported(breaks.UNKNOWN_CALL, f"a new module {type(module).__name__} with hooks")
    return tracer.call(attributes.load(tracer, module, "forward"), args, kwargs)


def initialize_lazy(tracer: Tracer, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Gives a lazy module its parameters, as its first call would, and starts the capture again: they are facts from then on."""
    from flambeau.nn.modules.lazy import LazyModuleMixin

    first = next(iter(module._forward_pre_hooks.values()), None)
    if (
        not isinstance(module, LazyModuleMixin)
        or getattr(first, "__func__", None) is not LazyModuleMixin._infer_parameters
    ):
        return
    examples = pytree.tree_map(_example, (args, kwargs))
    if first(module, *examples) is not None or "_initialize_hook" in module.__dict__:  # type: ignore[misc]
        raise Unsupported(breaks.UNKNOWN_CALL, f"the lazy module {type(module).__name__}")
    raise Restart("a module was initialised")


def _example(value: Any) -> Any:
    """A tensor of the sizes that a stand-in has now."""
    if type(value) is not TracedTensor:
        return _hint(value)
    if value.real is not None:
        return value.real
    sizes = [_hint(size) for size in value.fake.shape]
    return fl.zeros(sizes, dtype=value.fake.dtype, device=value.fake.fake_device)


def _hint(value: Any) -> Any:
    """A number for a symbol, without assuming it."""
    return value.hint if type(value) is SymInt else value
