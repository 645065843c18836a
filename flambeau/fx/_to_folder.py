"""Writing a graph module as a Python package that can be read, edited and imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flambeau
from flambeau.fx.graph_module import _import_statement

_INDENT = " " * 8


def write(gm: Any, folder: Path, module_name: str) -> None:
    """Write `module.py` with the printed forward, `state_dict.pt`, and a file for each submodule without a short form."""
    folder.mkdir(parents=True, exist_ok=True)
    code = gm.graph.python_code(root_module="self")
    flambeau.save(gm.state_dict(), folder / "state_dict.pt")
    lines = [
        f'"""{module_name}, printed from a graph. The state dict lies beside this file."""',
        "",
        "import os",
        "",
        *sorted({_import_statement(name, obj) for name, obj in code.globals.items()} | {"import flambeau as torch"}),
        "",
        "_HERE = os.path.dirname(os.path.abspath(__file__))",
        "",
        "",
        f"class {module_name}(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
    ]  # fmt: skip
    for name, child in gm.named_children():
        text = _constructor(child)
        if text is None:
            flambeau.save(child, folder / f"{name}.pt")
            text = f"torch.load(os.path.join(_HERE, '{name}.pt'), weights_only=False)"
        lines.append(
            f"{_INDENT}self.{name} = {text}" if name.isidentifier() else f"{_INDENT}setattr(self, {name!r}, {text})"
        )
    for name, buffer in gm._buffers.items():
        if buffer is not None:
            keep = name not in gm._non_persistent_buffers_set
            initial = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
            lines.append(f"{_INDENT}self.register_buffer({name!r}, {initial}, persistent={keep})")
    for name, parameter in gm._parameters.items():
        if parameter is not None:
            initial = f"torch.nn.Parameter(torch.empty({list(parameter.shape)}, dtype={parameter.dtype}))"
            lines.append(f"{_INDENT}self.{name} = {initial}")
    for name, value in gm.__dict__.items():
        if isinstance(value, flambeau.Tensor):  # constants that are part of no state dict
            flambeau.save(value, folder / f"{name}.pt")
            lines.append(f"{_INDENT}self.{name} = torch.load(os.path.join(_HERE, '{name}.pt'))")
    lines.append(f"{_INDENT}self.load_state_dict(torch.load(os.path.join(_HERE, 'state_dict.pt')))")
    body = "\n".join(f"    {line}" if line else "" for line in code.src.strip("\n").split("\n"))
    (folder / "module.py").write_text("\n".join([*lines, "", body, ""]))
    (folder / "__init__.py").write_text("from .module import *\n")


def _constructor(module: Any) -> str | None:
    """The expression that makes a layer like a given one, when its repr is one."""
    kind = type(module)
    if not kind.__module__.startswith("flambeau.nn") or module._modules:
        return None
    text = f"torch.nn.{module!r}"
    try:
        rebuilt = eval(text, {"torch": flambeau})
    except Exception:
        return None
    same = {k: tuple(v.shape) for k, v in rebuilt.state_dict().items()} == {
        k: tuple(v.shape) for k, v in module.state_dict().items()
    }
    return text if type(rebuilt) is kind and same else None
