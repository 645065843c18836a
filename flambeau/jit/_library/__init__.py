"""What scripts call besides operators: `nn.functional` and the layers of `nn`, written in the language of scripts.

A function that is one of ATen's operators needs nothing here. `derived.py` writes those that differ from an operator in the names or
order of their arguments, `pooling.py` pools of one to three dimensions; the others, which are native or use what TorchScript lacks, are written here in terms of ATen's operators. Functions are found by the name a program uses, forward methods by the class of the layer.
"""

from __future__ import annotations

import functools
from typing import Any

from flambeau.jit import _types as T


@functools.cache
def library_function(key: str) -> Any:
    """The compiled function for `functional.relu`, `init.zeros_` or `torch.norm`; None if there is none."""
    from flambeau.jit._frontend.callables import compile_function

    space, _, name = key.partition(".")
    if space == "functional":
        from flambeau.jit._library import attention, derived, functional, pooling, resizing

        modules = (functional, attention, resizing)
        written = next((vars(m)[name] for m in modules if name in m.__all__), None)
        function = written or pooling.pooling_function(name) or derived.derived_function(name)
        prefix = "__torch__.torch.nn.functional"
    elif space == "torch":
        from flambeau.jit._library import tensors as module

        function = getattr(module, name) if name in module.__all__ else None
        prefix = "__torch__.torch.functional"
    elif space == "upgraders":
        from flambeau.jit._library import upgraders

        function = getattr(upgraders, name) if name in upgraders.__all__ else None
        prefix = "__torch__.torch.jit.upgraders"
    else:
        return None
    if function is None:
        return None
    function._jit_override_qualname = f"{prefix}.{name}"
    return compile_function(function)


def library_functions(key: str) -> list[Any]:
    """A function and its other overloads, which are numbered."""
    functions = [library_function(key)]
    while functions[-1] is not None:
        functions.append(library_function(f"{key}__{len(functions)}"))
    return functions[:-1] or [f for f in (library_function(f"{key}__1"),) if f is not None]


def library_forward(cls: type, name: str) -> Any:
    """The method of one of our own layers as a script can be compiled from; None to take the layer's own."""
    if not cls.__module__.startswith("flambeau.nn."):
        return None
    from flambeau.jit._library import layers, recurrent

    for module in (layers, recurrent):
        holder = getattr(module, cls.__name__, None)
        if isinstance(holder, type) and holder.__module__ == module.__name__:
            method = getattr(holder, name, None)
            if method is not None and name in {n for base in holder.__mro__[:-1] for n in vars(base)}:
                return method
    return None


@functools.cache
def library_class(name: str) -> T.ClassType:
    """`no_grad` and other context managers as compiled classes."""
    from flambeau.jit._frontend.classes import script_class
    from flambeau.jit._library import contexts

    return script_class(getattr(contexts, name))
