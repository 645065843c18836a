"""Hooks of scripted modules: compiled with the module, called around `forward`."""

from __future__ import annotations

from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._functions import Function


def compile_hooks(concrete: Any) -> None:
    """Compile the forward hooks and pre-hooks of the Python module into its type."""
    from flambeau.jit._frontend.source import read_function

    instance, kind = concrete.instance, concrete.kind
    for table, target in (("_forward_pre_hooks", kind.pre_hooks), ("_forward_hooks", kind.hooks)):
        for hook in getattr(instance, table, {}).values():
            name = getattr(hook, "__name__", "hook")
            function = Function(f"{kind.name}.{name}", lambda hook=hook: read_function(hook, kind), hook)
            function.ensure()
            target.append(function)
            kind.methods[name] = function


def call_with_hooks(module: Any, *args: Any) -> Any:
    """`forward` between the hooks of the module's type."""
    kind: T.ClassType = module._script_type
    values: Any = args
    for hook in kind.pre_hooks:
        result = hook.run()(module, values)
        if result is not None:
            values = result if isinstance(result, tuple) else (result,)
    output = kind.methods["forward"].run()(module, *values)
    for hook in kind.hooks:
        result = hook.run()(module, values, output)
        if result is not None:
            output = result
    return output
