"""Lite-interpreter files as programs open them: `_load_for_lite_interpreter` and questions about a file."""

from __future__ import annotations

from typing import Any

from flambeau.jit._archive import load
from flambeau.jit._mobile import load_bytecode


class LiteScriptModule:
    """A module read from a lite-interpreter file."""

    def __init__(self, module: Any) -> None:
        self._c = module

    def __call__(self, *args: Any) -> Any:
        return self._c(*args)

    def forward(self, *args: Any) -> Any:
        return self._c(*args)

    def find_method(self, method_name: str) -> bool:
        return method_name in self._c.__dict__["_script_type"].methods

    def run_method(self, method_name: str, *args: Any) -> Any:
        return getattr(self._c, method_name)(*args)


def _load_for_lite_interpreter(f: Any, map_location: Any = None) -> LiteScriptModule:
    load_bytecode(f)
    if hasattr(f, "seek"):
        f.seek(0)
    return LiteScriptModule(load(f, map_location))


def _get_model_bytecode_version(f_input: Any) -> int:
    return load_bytecode(f_input)[0]


def _get_model_ops_and_info(f_input: Any) -> dict[str, Any]:
    """The operators of a file, with the number of arguments that its instructions give them."""
    from flambeau.jit._schemas import signatures

    infos = {}
    for _, table, _ in load_bytecode(f_input)[1:]:
        for name, overload, *_ in dict(table)["operators"]:
            count = next((len(s.arguments) for s in signatures(name) if s.overload_name == overload), None)
            infos[f"{name}.{overload}" if overload else name] = OperatorInfo(count)
    return infos


class OperatorInfo:
    def __init__(self, count: int | None) -> None:
        self.num_schema_args = count
