"""Hooks of scripted modules: compiled into the module's type; who calls the module calls them around `forward`."""

from __future__ import annotations

from typing import Any

from flambeau.jit._functions import Function


def compile_hooks(concrete: Any) -> None:
    """Compile the forward hooks and pre-hooks of the Python module into its type."""
    from flambeau.jit._frontend.source import read_function

    instance, kind = concrete.instance, concrete.kind
    for table, target in (("_forward_pre_hooks", kind.pre_hooks), ("_forward_hooks", kind.hooks)):
        for hook in getattr(instance, table, {}).values():
            name = getattr(hook, "__name__", "hook")
            function = Function(f"{kind.name}.{name}", lambda hook=hook: read_function(hook, kind), hook)  # type: ignore[misc]
            function.owner = kind
            function.ensure()
            target.append(function)
            kind.methods[name] = function


def restore_hooks(module: Any, kind: Any) -> None:
    """Let calls from Python run the hooks that an archive lists; compiled callers have calls of them in their code."""
    kind.pre_hooks = [kind.methods[name] for name in kind.hook_names.get("__forward_pre_hooks__", ())]
    kind.hooks = [kind.methods[name] for name in kind.hook_names.get("__forward_hooks__", ())]
    for hook in kind.pre_hooks:
        module.register_forward_pre_hook(lambda owner, args, hook=hook: hook.run()(owner, args))
    for hook in kind.hooks:
        module.register_forward_hook(lambda owner, args, result, hook=hook: hook.run()(owner, args, result))
