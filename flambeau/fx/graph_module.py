"""A module whose forward is a graph.

`recompile` prints the graph as Python and makes that the forward method, so running it costs what the printed code
costs. Each graph module has a class of its own, because forward is an attribute of the class.
"""

from __future__ import annotations

import itertools
import linecache
import os
from pathlib import Path
from typing import Any, Union

import flambeau
from flambeau.fx._codegen import _custom_builtins, _PyTreeCodeGen
from flambeau.fx.graph import Graph, PythonCode
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

_numbers = itertools.count()


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: Any = None) -> str:
    """Execute printed code; tracebacks show its lines. The name of its file."""
    name = f"<eval_with_key>.{next(_numbers)}"
    exec(compile(src, name, "exec"), globals)
    linecache.cache[name] = (len(src), None, src.splitlines(True), name)
    return name


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: Any = None) -> Any:
    return _method_from_src("forward", src, globals)


def _method_from_src(method_name: str, src: str, globals: dict[str, Any], co_fields: Any = None) -> Any:
    scope = dict(globals)
    _exec_with_source(src, scope)
    return scope[method_name]


def _import_statement(name: str, obj: Any) -> str:
    """How a file makes a global of printed code available."""
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    module = getattr(obj, "__module__", None) or type(obj).__module__
    short = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", name)
    if module == "typing" or repr(obj).startswith("typing."):
        return f"from typing import {repr(obj).removeprefix('typing.')} as {name}"
    if module == "torch" or module.startswith("torch."):
        module = "flambeau" + module[len("torch") :]
    return f"from {module} import {short}" + (f" as {name}" if name != short else "")


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Put the attribute at a dotted path into another module at the same path."""
    *prefix, field = target.split(".")
    for item in prefix:
        source, place = getattr(from_module, item), getattr(to_module, item, None)
        if source is place:
            return  # the same module in both: all below is shared
        if place is None:
            place = Module()
            setattr(to_module, item, place)
        from_module, to_module = source, place
    _set(to_module, field, getattr(from_module, field), from_module)


def _assign_attr(value: Any, to_module: Any, target: str) -> None:
    """Put a value into a module at a dotted path, making modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        if getattr(to_module, item, None) is None:
            setattr(to_module, item, Module())
        to_module = getattr(to_module, item)
    _set(to_module, field, value)


def _set(module: Any, name: str, value: Any, source: Any = None) -> None:
    if isinstance(value, flambeau.Tensor) and not isinstance(value, Parameter):
        hidden = source is not None and name in getattr(source, "_non_persistent_buffers_set", ())
        if hasattr(module, name) and name not in module._buffers:
            delattr(module, name)
        module.register_buffer(name, value, persistent=not hidden)
    else:
        setattr(module, name, value)


# Where `meta` holds attributes that copies get too.
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """The state of a module without its class, from which libraries that subclass GraphModule make copies."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


class PrintedForward:
    """The forward method of a graph module before anybody looked at it: passes recompile more often than they run."""

    __slots__ = ("owner", "python_code")

    def __init__(self, owner: type, python_code: PythonCode) -> None:
        self.owner = owner
        self.python_code = python_code

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function = _forward_from_src(self.python_code.src, self.python_code.globals)
        if self.owner.__dict__.get("forward") is self:
            setattr(self.owner, "forward", function)  # noqa: B010
        return function if instance is None else function.__get__(instance, owner)


class GraphModule(Module):
    """A module made from a graph. `root` provides the modules and attributes that the graph refers to: a module, from
    which they are taken by path, or a dict from path to value."""

    def __new__(cls: type[GraphModule], *args: Any, **kwargs: Any) -> GraphModule:
        base = next(c for c in cls.__mro__ if not c.__dict__.get("_is_graph_module_impl", False))
        module: GraphModule = super().__new__(type(base.__name__, (base,), {"_is_graph_module_impl": True, "__module__": base.__module__,
                                                             "__qualname__": base.__qualname__}))  # fmt: skip
        return module

    def __init__(self, root: Union[Module, dict[str, Any]], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            copied: set[str] = set()
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    target = str(node.target)
                    if target not in copied:
                        copied.add(target)
                        _copy_attr(root, self, target)
        elif isinstance(root, dict):
            wanted = dict.fromkeys(str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module"))
            for target in sorted(wanted, key=lambda t: t.count(".")):
                if target not in root:
                    raise RuntimeError(
                        f"[GraphModule] expected {target!r}, which the graph refers to, in root, got no such key"
                    )
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"[GraphModule] expected a module or a dict for root, got {type(root).__name__}")
        self.meta: dict[str, Any] = {}
        self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras if graph._tracer_extras is not None else {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph; assigning another recompiles."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"[GraphModule] expected a Graph, got {type(g).__name__}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        if not hasattr(self, "_code"):
            raise RuntimeError("[GraphModule] expected compiled code, got none: call recompile()")
        return self._code

    def recompile(self) -> PythonCode:
        """Make forward do what the graph says now. Call it after changing the graph. The source is printed at once and
        compiled when forward is first asked for."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        python_code = self._graph.python_code(root_module="self")
        self._code = python_code.src
        setattr(type(self), "forward", PrintedForward(type(self), python_code))  # noqa: B010
        return python_code

    # ------------------------------------------------------------------------------------------ module surgery

    def add_submodule(self, target: str, m: Module) -> bool:
        """Install a module at a dotted path, making modules on the way. False when something else is there."""
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            inner = getattr(module, item, None)
            if inner is None:
                inner = Module()
                setattr(module, item, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a dotted path. False when there is none."""
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            module = getattr(module, item, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, field, None), Module):
            return False
        delattr(module, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove modules that the graph neither calls nor fetches anything from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            path = str(node.target).split(".")
            used.update(".".join(path[:end]) for end in range(1, len(path) + 1))
            if node.op == "call_module":
                try:
                    inner = self.get_submodule(str(node.target))
                except AttributeError:
                    continue
                used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ------------------------------------------------------------------------------------------ copies and files

    def _twin(self) -> GraphModule:
        twin = GraphModule.__new__(type(self))
        twin.__class__.__name__ = type(self).__name__
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        import copy

        twin = self._twin()
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        twin._graph.owning_module = twin
        twin.recompile()
        return twin

    def __copy__(self) -> GraphModule:
        twin = self._twin()
        twin.__dict__.update(self.__dict__)
        for table in ("_parameters", "_buffers", "_modules"):
            twin.__dict__[table] = self.__dict__[table].copy()
        twin.graph = __import__("copy").deepcopy(self._graph)
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: v for k, v in self.__dict__.items() if k != "_code"}
        base = next(c for c in type(self).__mro__ if not c.__dict__.get("_is_graph_module_impl", False))
        return _rebuild, (base, type(self).__name__, state)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def to_folder(self, folder: Union[str, os.PathLike[str]], module_name: str = "FxModule") -> None:
        """Write the module as a Python package: printed code, the state dict, and submodules that have no short form."""
        from flambeau.fx._to_folder import write

        write(self, Path(folder), module_name)

    # ------------------------------------------------------------------------------------------ printing

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The module as a class for people to read, with shapes and the user's lines where known, nested graph modules
        included. Printed unless print_output is false."""
        code = self._graph.python_code(
            root_module="self",
            verbose=True,
            include_stride=include_stride,
            include_device=include_device,
            expanded_def=expanded_def,
        ).src.strip("\n ")
        code += "\n"
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + _indented(code)
        for name, child in self.named_children():
            if isinstance(child, GraphModule):
                nested = child.print_readable(False, include_stride, include_device, expanded_def=expanded_def)
                text += "\n" + _indented(nested.replace(f"class {type(child).__name__}(", f"class {name}(", 1))
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return "\n".join([super().__repr__(), self._code, "# To see more debug info, please use `graph_module.print_readable()`"])  # fmt: skip


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def _rebuild(base: type[GraphModule], name: str, state: dict[str, Any]) -> GraphModule:
    module = GraphModule.__new__(base)
    module.__class__.__name__ = name
    Module.__init__(module)
    Module.__setstate__(module, state)
    module._graph.owning_module = module
    module.recompile()
    return module


def reduce_graph_module(body: dict[str, Any], import_block: str = "") -> Module:
    """A graph module from the parts of its `__dict__`."""
    return _rebuild(GraphModule, "GraphModule", body)
