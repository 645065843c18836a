"""The modules of an exported program again: `unflatten` gives a module with submodules that have graphs of their own.

`_split` divides the graph among the modules.
"""

from __future__ import annotations

import inspect
from typing import Any

import flambeau as fl
from flambeau.export._split import Builder
from flambeau.export._unlift import CallCode, ExportedModule
from flambeau.export.exported_program import ExportedProgram, settle
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.utils import _pytree as pytree

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter:
    """Turns the leaves of a call with another structure into those of the program's. Derive and give it to `unflatten`."""

    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> Any:
        raise NotImplementedError("[unflatten] expected an adapter that defines adapt()")

    def get_flat_arg_paths(self) -> list[str]:
        return []


class InterpreterModule(fl.nn.Module):
    """A submodule with the part of the graph that it made."""

    def __init__(self, path: str, kind: str | None = None) -> None:
        super().__init__()
        self._path = path
        self._kind = kind
        object.__setattr__(self, "graph", None)
        object.__setattr__(self, "_runner", None)

    def finish(self, graph: Graph) -> None:
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "_runner", None)

    def type_name(self) -> str | None:
        """The class of the original module."""
        return self._kind

    @property
    def graph_module(self) -> GraphModule:
        """What runs the graph."""
        if self._runner is None:
            kind = ExportedModule if isinstance(self.graph._codegen, CallCode) else GraphModule
            object.__setattr__(self, "_runner", kind(self, self.graph))
        for name, module in self._modules.items():  # submodules may have been swapped
            if self._runner._modules.get(name) is not module:
                self._runner._modules[name] = module
        return self._runner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph_module(*args, **kwargs)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        return self.graph_module.print_readable(print_output, **options)


class UnflattenedModule(InterpreterModule):
    """The whole program as a module with the submodules of the original."""

    def __init__(self, program: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__("")
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_adapter", flat_args_adapter)
        self.graph_signature = program.graph_signature
        self.module_call_graph = program.module_call_graph
        Builder(program, self, InterpreterModule).build()
        for module in self.modules():  # made now, so that a call of the modules is captured without making any
            if isinstance(module, InterpreterModule) and module.graph is not None:
                assert module.graph_module is not None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self._program
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != program.call_spec.in_spec:
            if self._adapter is None:
                raise TypeError(
                    f"[unflatten] expected arguments of the structure {program.call_spec.in_spec}, got {spec}: There is no "
                    "flat args adapter specified. Are you sure you are calling this with the right arguments?"
                )
            more = {"obj": self} if "obj" in inspect.signature(self._adapter.adapt).parameters else {}
            leaves = self._adapter.adapt(
                target_spec=program.call_spec.in_spec, input_spec=spec, input_args=leaves, metadata={}, **more
            )
        try:
            program._check_inputs(leaves)
        except AssertionError as error:
            raise RuntimeError(f"[unflatten] expected inputs that the program was exported for: {error}") from None
        results = self.graph_module(*leaves)
        state = dict(self.named_parameters(remove_duplicate=False)) | dict(self.named_buffers(remove_duplicate=False))
        outputs = settle(program.graph_signature, results, state, leaves)
        return pytree.tree_unflatten(outputs, program.call_spec.out_spec)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """The modules of a program. Each submodule can be replaced by another that takes and returns the same tensors."""
    if not isinstance(module, ExportedProgram):
        raise TypeError(f"[unflatten] expected an ExportedProgram, got {type(module).__name__}")
    return UnflattenedModule(module, flat_args_adapter)
