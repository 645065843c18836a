"""Tracing: run a function or a module's forward on proxies, and what happens to them is the graph.

While a trace runs, calls of modules and lookups of their parameters are seen by the tracer of the thread; other threads
notice nothing. Submodules of the library are leaves, recorded as one call; the user's are traced through.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Union

import flambeau
from flambeau.fx._user_frames import describe_user_line
from flambeau.fx.graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Argument, Node
from flambeau.fx.proxy import (
    _CONSTANTS,
    ParameterProxy,
    Proxy,
    Scope,
    ScopeContextManager,
    TraceError,
    TracerBase,
    _first_proxy,
    base_types,
)
from flambeau.nn.modules.container import Sequential
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.utils import _pytree as pytree

_VARARGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

# Functions declared by `wrap`, by the globals they are found in and their name.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []


class PHBase:
    """The type of PH, whose instances mark inputs that stay inputs in concrete_args."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A placeholder in concrete_args that carries notes for the node."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key

    def transfer_attrs(self, node: Node) -> None:
        for name, value in self.__dict__.items():
            setattr(node, name, value)


# ---------------------------------------------------------------------------------------------- what a trace sees


class _Active(threading.local):
    tracer: Tracer | None = None


_active = _Active()
_lock = threading.RLock()
_tracing = 0  # how many traces are running, in all threads
_undo: list[Callable[[], None]] = []


def is_fx_tracing() -> bool:
    """Whether this thread is tracing."""
    return _active.tracer is not None


is_fx_symbolic_tracing = is_fx_tracing


def _original_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    return super(Module, module).__call__(*args, **kwargs)


def _traced_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    tracer = _active.tracer
    if tracer is None:
        return _original_call(module, *args, **kwargs)
    tracer._patch_globals_of(module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return _original_call(module, *args, **kwargs)

    return tracer.call_module(module, forward, args, kwargs)


def _traced_getattr(module: Any, name: str) -> Any:
    value = _plain_getattr(module, name)
    if type(value) is Parameter or isinstance(value, flambeau.Tensor):
        tracer = _active.tracer
        if tracer is not None:
            return tracer.getattr(name, value, tracer._parameter_proxies)
    return value


_plain_getattr: Callable[[Any, str], Any] = Module.__getattr__


def _set_global(table: dict[str, Any], name: str, value: Any) -> Callable[[], None]:
    """Replace a global and return how to put it back."""
    before = table.get(name, _set_global)
    table[name] = value

    def restore() -> None:
        if before is _set_global:
            del table[name]
        else:
            table[name] = before

    return restore


@contextmanager
def _watching(tracer: Tracer) -> Iterator[None]:
    """Let a tracer see module calls, parameters, and calls of wrapped functions made by this thread."""
    global _tracing
    outer = _active.tracer
    with _lock:
        if _tracing == 0:
            Module.__call__ = _traced_call  # type: ignore[method-assign]
            Module.__getattr__ = _traced_getattr  # type: ignore[method-assign]
            for (_, name), table in _wrapped_fns_to_patch.items():
                original = table.get(name, getattr(builtins, name, None))
                if original is not None:
                    _undo.append(_set_global(table, name, _recording(original)))
            for cls, name in _wrapped_methods_to_patch:
                original = getattr(cls, name)
                setattr(cls, name, _recording_method(cls, name))
                _undo.append(functools.partial(setattr, cls, name, original))
        _tracing += 1
    _active.tracer = tracer
    try:
        yield
    finally:
        _active.tracer = outer
        with _lock:
            _tracing -= 1
            if _tracing == 0:
                del Module.__call__, Module.__getattr__
                for undo in reversed(_undo):
                    undo()
                _undo.clear()


@contextmanager
def _paused() -> Iterator[None]:
    """Let nobody see what this thread does in a block."""
    tracer, _active.tracer = _active.tracer, None
    try:
        yield
    finally:
        _active.tracer = tracer


def _recording(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is recorded when a proxy is among its arguments."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is None:
            return original(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", original, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    wrapped.__name__ = getattr(original, "__name__", "wrapped")
    wrapped.__fx_wraps__ = original
    return wrapped


def _recording_method(cls: type, name: str) -> Callable[..., Any]:
    original = getattr(cls, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is None:
            return original(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def wrap(fn_or_name: Union[str, Callable[..., Any]]) -> Any:
    """Record calls of a function as one node instead of tracing through it.

    Used at the top of a module: `fx.wrap("len")`, `fx.wrap("my_function")`, or as a decorator.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(f"[wrap] expected a function or the name of one, got {type(fn_or_name).__name__}")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    if callable(fn_or_name) and isinstance(fn_or_name, types.FunctionType) and "." not in fn_or_name.__qualname__:
        table = fn_or_name.__globals__
    else:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is None or caller.f_code.co_name != "<module>":
            raise NotImplementedError(
                f"[wrap] expected to be called at the top level of a module, got a call{describe_user_line()}"
            )
        table = caller.f_globals
    _wrapped_fns_to_patch[(id(table), name)] = table
    return fn_or_name


# ---------------------------------------------------------------------------------------------- the tracer


# Parameters of native functions that say which of several operators runs.
_CHOICES = frozenset("inplace reduction mode training hard align_corners use_input_stats".split())


def _refuse_choices(function: Any) -> None:
    """A native function whose parameters choose among operators cannot be traced alone: the choice would be a proxy."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    choices = sorted(_CHOICES & set(names))
    if choices and not getattr(function, "__name__", "").endswith("_"):
        raise TraceError(
            f"[trace] expected a function whose parameters are values, got {function.__name__}, of which {', '.join(choices)} say what "
            "runs: symbolically traced variables cannot be used as inputs to control flow; trace a function that calls it"
        )


class Tracer(TracerBase):
    """Makes graphs by running code on proxies. Derive and override to decide what is recorded and how.

    autowrap_modules       Python modules whose functions are recorded as calls when given proxies (`math`).
    autowrap_functions     further functions to be recorded as calls.
    param_shapes_constant  whether shapes of parameters are plain numbers during the trace.
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self.root: Any = None
        self._autowrap_modules = autowrap_modules
        self._autowrap_functions = autowrap_functions
        self._patched_globals: set[int] = set()
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name: str = ""
        self.scope = Scope("", None)
        self.module_stack = {}
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self._parameter_proxies: dict[str, Proxy] = {}
        self._attribute_paths: dict[int, str] | None = None
        self._parameter_paths: dict[int, str] | None = None
        self._constants: dict[int, str] = {}

    # ------------------------------------------------------------------------------------------ arguments

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node. Tensors become attributes of the root, which nodes then refer to."""
        cls = type(a)
        if cls is Proxy:
            return a.node
        if cls in _CONSTANTS:
            return a
        if isinstance(a, flambeau.Tensor):
            return self._tensor_node(a)
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _tensor_node(self, a: Any) -> Node:
        if isinstance(a, Parameter):
            if self._parameter_paths is None:
                self._parameter_paths = {id(p): name for name, p in self.root.named_parameters()}
            path = self._parameter_paths.get(id(a))
            if path is None:
                raise NameError(
                    f"[fx] expected parameters that the root module owns, got one it does not{describe_user_line()}; "
                    "assign it to an attribute of the module"
                )
            return self.create_node("get_attr", path, (), {})
        path = self._paths_of_tensors().get(id(a)) or self._constants.get(id(a))
        if path is None:
            path = self.get_fresh_qualname("_tensor_constant")
            self._constants[id(a)] = path
            setattr(self.root, path, a)
        return self.create_node("get_attr", path, (), {})

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for a new attribute of the root: the prefix and a number."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def _paths_of_tensors(self) -> dict[int, str]:
        """Where buffers and other tensors are found in the root module."""
        if self._attribute_paths is None:
            paths: dict[int, str] = {}
            for prefix, module in self.root.named_modules():
                for name, value in (*module.__dict__.items(), *module._buffers.items()):
                    if isinstance(value, flambeau.Tensor):
                        paths.setdefault(id(value), f"{prefix}.{name}" if prefix else name)
            self._attribute_paths = paths
        return self._attribute_paths

    # ------------------------------------------------------------------------------------------ modules

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module's call is one node. By default: the library's own layers."""
        name = type(m).__module__
        return name.startswith(("flambeau.nn", "torch.nn", "flambeau.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a module from the root."""
        if self.submodule_paths is None:
            self.submodule_paths = {m: name for name, m in self.root.named_modules()}
        path = self.submodule_paths.get(mod)
        if path is None:
            raise NameError(
                f"[fx] expected modules that the root module owns, got a {type(mod).__name__} it does not"
                f"{describe_user_line()}; assign it to an attribute of the module"
            )
        return path

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called for every call of a module during the trace: record it, or run forward on the proxies."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            outer = self.module_stack
            count = self.num_calls.get(path, 0)
            self.num_calls[path] = count + 1
            # Nodes share the dict that was current when they were made.
            self.module_stack = {**outer, f"{path}@{count}" if count else path: (path, type(m))}
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack = outer

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Called for every tensor looked up on a module: parameters become nodes that fetch them."""
        if isinstance(attr_val, Parameter):
            if self._parameter_paths is None:
                self._parameter_paths = {id(p): name for name, p in self.root.named_parameters()}
            path = self._parameter_paths.get(id(attr_val))
        elif self.proxy_buffer_attributes and isinstance(attr_val, flambeau.Tensor):
            path = next((name for name, b in self.root.named_buffers() if b is attr_val), None)
        else:
            return attr_val
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            factory = (lambda node: ParameterProxy(self, node, path, attr_val)) if self.param_shapes_constant else None
            # Only where there is one: tracers of other libraries need not take the argument.
            options: dict[str, Any] = {} if factory is None else {"proxy_factory_fn": factory}
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {}, **options)
        return parameter_proxy_cache[path]

    def _patch_globals_of(self, module: Any) -> None:
        forward = getattr(type(module), "forward", None)
        table = getattr(forward, "__globals__", None)
        if table is not None:
            self._autowrap(table)

    def _autowrap(self, table: dict[str, Any]) -> None:
        """Let functions to be recorded that a table of globals names directly (`from math import sqrt`) be seen."""
        if id(table) in self._patched_globals:
            return
        self._patched_globals.add(id(table))
        wanted = self._autowrap_ids
        for name, value in list(table.items()):
            if id(value) in wanted and callable(value) and not name.startswith("_"):
                _undo.append(_set_global(table, name, _recording(value)))

    # ------------------------------------------------------------------------------------------ tracing

    def trace(self, root: Union[Module, Callable[..., Any]], concrete_args: Any = None) -> Graph:
        """The graph of a module's forward or of a function. Inputs in concrete_args are fixed to the given values."""
        if isinstance(root, Module):
            self.root = root
            fn = getattr(type(root), self.traced_func_name, None)
            if fn is None:
                raise AssertionError(
                    f"[trace] expected a module with {self.traced_func_name}(), got {type(root).__name__}"
                )
            self.root_module_name = type(root).__name__
            self.submodule_paths = {m: name for name, m in root.named_modules()}
        else:
            self.root = Module()
            fn = root
        self.graph = Graph(tracer_cls=type(self) if "<locals>" not in type(self).__qualname__ else None)
        if isinstance(root, Module) and hasattr(root, "_tracer_extras"):
            self.graph._tracer_extras = root._tracer_extras
        self._patched_globals.clear()
        self._autowrap_ids = {
            id(value)
            for module in self._autowrap_modules
            for name, value in module.__dict__.items()
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in self._autowrap_functions}
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        self._parameter_proxies = {}
        with _watching(self):
            for module in self._autowrap_modules:
                self._autowrap(module.__dict__)
            self._autowrap(getattr(fn, "__globals__", {}))
            result = fn(*args)
            annotation = getattr(fn, "__annotations__", {}).get("return", None)
            self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=_resolved(fn, annotation))
        self.submodule_paths = None
        return self.graph

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Placeholders for the parameters of a function, and the function to call with them."""
        plain: Any = inspect.unwrap(root_fn)
        bound: Any
        code = getattr(plain, "__code__", None)
        if code is None:
            plain = type(plain).__call__ if not isinstance(plain, types.BuiltinFunctionType) else plain
            code = getattr(plain, "__code__", None)
            if code is None:
                _refuse_choices(root_fn)
                raise AssertionError(
                    f"[trace] expected a Python function, got {root_fn!r}, whose parameters cannot be read"
                )
            is_module, bound = True, root_fn
        else:
            bound = self.root
        if isinstance(root_fn, types.MethodType):
            is_module, bound = True, root_fn.__self__
            root_fn = plain = root_fn.__func__
        count = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:count])
        args: list[Any] = []
        if is_module:
            if not names and not code.co_flags & inspect.CO_VARARGS:
                raise RuntimeError(f"[trace] expected a method with `self`, got {root_fn} without parameters")
            names = names[1:]
            args.append(bound)
        parameters = inspect.signature(plain).parameters
        concrete = self._named(concrete_args, names)
        annotations = getattr(plain, "__annotations__", {})
        for name in names:
            default = () if parameters[name].default is inspect.Parameter.empty else (parameters[name].default,)
            if name in concrete:
                args.append(self._concrete_placeholder(name, concrete[name], default))
            else:
                kind = _resolved(plain, annotations.get(name))
                args.append(self.create_proxy("placeholder", name, default, {}, type_expr=kind))
        if concrete or code.co_kwonlyargcount or code.co_flags & _VARARGS:
            at = count
            for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
                if code.co_flags & flag:
                    args.append(self.create_proxy("placeholder", stars + code.co_varnames[at], (), {}))
                    at += 1
            root_fn = _positional(plain, len(args))
        # Inputs given as containers of placeholders: the graph takes them flat.
        leaves, spec = pytree.tree_flatten(tuple(args[1:] if is_module else args))
        if all(child.is_leaf() for child in spec.children()):
            return root_fn, args
        info = _PyTreeInfo(["self", *names] if is_module else names, spec, None)
        codegen = _PyTreeCodeGen(info)
        self.graph._codegen = codegen
        head = args[:1] if is_module else []

        def flattened(*flat: Any) -> Any:
            nested = pytree.tree_unflatten(list(flat), spec)
            out, out_spec = pytree.tree_flatten(root_fn(*head, *nested))
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out

        return flattened, leaves

    @staticmethod
    def _named(concrete_args: Any, names: list[str]) -> dict[str, Any]:
        if concrete_args is None:
            return {}
        if isinstance(concrete_args, (tuple, list)):
            if len(concrete_args) != len(names):
                raise RuntimeError(
                    f"[trace] expected concrete_args for {len(names)} parameters ({', '.join(names)}), got "
                    f"{len(concrete_args)}"
                )
            return dict(zip(names, concrete_args))
        unknown = [name for name in concrete_args if name not in names]
        if unknown:
            raise RuntimeError(f"[trace] expected concrete_args named {', '.join(names)}, got {', '.join(unknown)}")
        return dict(concrete_args)

    def _concrete_placeholder(self, name: str, value: Any, default: tuple[Any, ...]) -> Any:
        """The value of a fixed input. Its placeholder stays, and the graph checks that it is given this value."""
        leaves, spec = pytree.tree_flatten(value)
        flat = []
        for number, leaf in enumerate(leaves, 1):
            is_input = isinstance(leaf, PHBase)
            constant = default if spec.is_leaf() else ()
            proxy = self.create_proxy("placeholder", f"{name}_{number}", constant if not is_input else (), {})
            if is_input:
                if isinstance(leaf, PHWithMeta):
                    leaf.transfer_attrs(proxy.node)
                flat.append(proxy)
                continue
            if leaf is None:
                message = f"{name} has been specialized to have value None but got another value"
                self.create_proxy("call_function", _assert_is_none, (proxy, message), {})
            elif type(leaf) in base_types:
                message = f"{name} has been specialized to have value {leaf} but got another value"
                self.create_proxy("call_function", flambeau._assert, (proxy == leaf, message), {})
            flat.append(leaf)
        return pytree.tree_unflatten(flat, spec)


def _positional(fn: Any, count: int) -> Callable[..., Any]:
    """A function whose parameters are all positional, so that proxies can be passed for *args and **kwargs."""
    code = fn.__code__.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=fn.__code__.co_flags & ~_VARARGS
    )
    function = types.FunctionType(code, fn.__globals__, fn.__name__, None, fn.__closure__)
    function.__annotations__ = {k: v for k, v in fn.__annotations__.items() if k == "return"}
    return function


def _resolved(fn: Any, annotation: Any) -> Any:
    """An annotation as a type; one that says nothing, or is a string that names nothing known, is left out."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(fn, "__globals__", {}))
        except Exception:
            return None
    return None if annotation is Any else annotation


def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def symbolic_trace(root: Union[Module, Callable[..., Any]], concrete_args: Any = None) -> GraphModule:
    """A module that computes what `root` does, with the graph to be looked at and changed.

    concrete_args fixes inputs to given values, so that branches on them can be decided; `fx.PH` in it marks inputs
    inside containers.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", type(root).__name__)
    return GraphModule(tracer.root, graph, name)


class ProxyableClassMeta(type):
    """A metaclass for classes whose construction from proxies is recorded as one call."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
