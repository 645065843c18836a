"""The module classes of `jit`: scripted modules hold their own tensors and attributes and run compiled methods."""

from __future__ import annotations

import copy
import sys
from typing import Any

from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._functions import BoundMethod, Function
from flambeau.nn.modules.module import Module

__all__ = ["RecursiveScriptModule", "ScriptModule", "TopLevelTracedModule", "TracedModule", "script_module"]


class _Forward:
    """`forward` of scripted modules: the compiled method of the instance."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        kind = instance.__dict__.get("_script_type")
        method = None if kind is None else kind.methods.get("forward")
        if method is None:
            raise AttributeError(f"'{type(instance).__name__}' object has no attribute 'forward'")
        return BoundMethod(instance, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("forward")


class ScriptMethodStub:
    """What `jit.script_method` leaves in a class: the function, compiled for each instance's type."""

    def __init__(self, function: Any) -> None:
        self._script_method_source = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        kind = instance.__dict__.get("_script_type")
        if kind is None or self.__name__ not in kind.methods:
            raise RuntimeError(
                f"[jit] expected an initialised module, got a call of '{self.__name__}' before the end of __init__"
            )
        return BoundMethod(instance, kind.methods[self.__name__])


class _ScriptMeta(type):
    """Compiles the methods of a ScriptModule's subclass when an instance has been made."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = super().__call__(*args, **kwargs)
        if "_script_type" not in instance.__dict__ and type(instance) is cls and not issubclass(cls, _Compiled):
            compile_in_place(instance)
        return instance


class ScriptModule(Module, metaclass=_ScriptMeta):
    """Base of modules with `script_method`s, and of what scripting returns."""

    forward = _Forward()
    __call__ = _C._call_scripted  # by `_script_front` once there is one, else:
    _call_in_python = _C.ModuleBase.__call__

    def save(self, f: Any, _extra_files: Any = None) -> None:
        from flambeau.jit._archive import save

        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        import io

        stream = io.BytesIO()
        self.save(stream, _extra_files)
        return stream.getvalue()

    def _save_for_lite_interpreter(self, f: Any, _extra_files: Any = None, **options: Any) -> None:
        from flambeau.jit._mobile import save_for_lite_interpreter

        save_for_lite_interpreter(self, f, _extra_files)

    def _save_to_buffer_for_lite_interpreter(self, _extra_files: Any = None, **options: Any) -> bytes:
        import io

        stream = io.BytesIO()
        self._save_for_lite_interpreter(stream, _extra_files)
        return stream.getvalue()

    def define(self, src: str) -> None:
        """Add methods written in the language of scripts; in `__init__` they are compiled at its end."""
        from flambeau.jit._frontend.units import define_methods, names_of_frame

        kind = self.__dict__.get("_script_type")
        lookup = names_of_frame(sys._getframe(1))
        if kind is None:
            self.__dict__.setdefault("_script_definitions", []).append((src, lookup))
            return
        define_methods(kind, src, lookup)

    def _method(self, name: str) -> BoundMethod:
        kind = self.__dict__.get("_script_type")
        method = None if kind is None else kind.methods.get(name)
        if method is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return BoundMethod(self, method)

    @property
    def graph(self) -> Any:
        return self._method("forward").graph

    @property
    def inlined_graph(self) -> Any:
        return self._method("forward").inlined_graph

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("forward").graph_for(*args, **kwargs)

    @property
    def code(self) -> str:
        return self._method("forward").code

    @property
    def code_with_constants(self) -> Any:
        return self._method("forward").code_with_constants

    @property
    def original_name(self) -> str:
        kind = self.__dict__.get("_script_type")
        return "" if kind is None else kind.name.rpartition(".")[2]

    @property
    def _c(self) -> Any:
        return ModuleView(self)

    @property
    def _type(self) -> Any:
        kind = self.__dict__["_script_type"]
        return lambda: kind

    def get_debug_state(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("forward").get_debug_state()

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def _get_name(self) -> str:
        return type(self).__name__

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            kind = self.__dict__.get("_script_type")
            if kind is None:
                raise
            if name in kind.methods:
                return BoundMethod(self, kind.methods[name])
            if name in kind.properties:
                return kind.properties[name][0].run()(self)
            if name in kind.constants:
                return kind.constants[name]
            original = self.__dict__.get("_script_original")
            if original is not None:
                return _from_original(self, original, name)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self.__dict__.get("_script_type")
        if kind is not None:
            if name in kind.constants and name not in kind.attributes:
                raise AttributeError(f"Cannot mutate TorchScript constant value: '{name}'. Value: '{value}'")
            if name in kind.properties and kind.properties[name][1] is not None:
                kind.properties[name][1].run()(self, value)
                return
            wanted = kind.attributes.get(name)
            if (
                wanted is not None
                and name not in self._parameters
                and name not in self._buffers
                and name not in self._modules
            ):
                if not isinstance(value, _C.Tensor):
                    value = _values.to_script(value, wanted, name)
                elif not isinstance(wanted, T.NoneType):
                    object.__setattr__(self, name, value)
                    return
        super().__setattr__(name, value)

    def __reduce_package__(self, *args: Any) -> Any:
        raise NotImplementedError("[jit] scripted modules cannot be packaged")


def _from_original(module: Any, original: Any, name: str) -> Any:
    """Attributes of the Python module that have no type in the script: its Python methods and functions."""
    for cls in type(original).__mro__:
        if cls in (Module, object):
            break
        if name in cls.__dict__:
            member = cls.__dict__[name]
            if isinstance(member, (staticmethod, classmethod, property)):
                return member.__get__(module, type(original))
            if callable(member) and not isinstance(member, type):
                import types

                function = getattr(member, "__func__", member)
                return types.MethodType(function, module) if isinstance(function, types.FunctionType) else function
            return member
    if name in original.__dict__ and not isinstance(original.__dict__[name], _C.Tensor):
        return original.__dict__[name]
    raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")


class _Compiled(ScriptModule):
    """Modules whose methods are given, not compiled from their class."""

    def __init__(self, kind: T.ClassType | None = None) -> None:
        super().__init__()
        if kind is not None:
            self.__dict__["_script_type"] = kind

    def __copy__(self) -> Any:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__.pop("_script_front", None)
        for table in ("_parameters", "_buffers", "_modules"):
            twin.__dict__[table] = copy.copy(self.__dict__[table])
        return twin

    def __deepcopy__(self, memo: Any) -> Any:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            if name == "_script_front":
                continue
            shared = name in ("_script_type", "_script_original")
            twin.__dict__[name] = value if shared else copy.deepcopy(value, memo)
        return twin

    def copy(self) -> Any:
        return copy.copy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "ScriptModules cannot be deepcopied using copy.deepcopy or saved using torch.save. Mixed serialization of script and non-script modules is not supported. For purely script modules use my_script_module.save(<filename>) instead."
        )

    def __dir__(self) -> Any:
        return [*super().__dir__(), *self.__dict__["_script_type"].methods]

    def __len__(self) -> int:
        return self._container("__len__", lambda: len(self._modules))

    def __iter__(self) -> Any:
        return self._container("__iter__", lambda: iter(self._modules if self._is_dict() else self._modules.values()))

    def __getitem__(self, index: Any) -> Any:
        def find() -> Any:
            if isinstance(index, str):
                return self._modules[index]
            return list(self._modules.values())[index]

        return self._container("__getitem__", find, index)

    def __contains__(self, key: Any) -> bool:
        return self._container("__contains__", lambda: key in self._modules, key)

    def _is_dict(self) -> bool:
        return self.original_name in ("ModuleDict", "ParameterDict")

    def _container(self, name: str, plain: Any, *args: Any) -> Any:
        kind = self.__dict__.get("_script_type")
        if (
            kind is not None
            and name in kind.methods
            and self.original_name not in ("ModuleList", "Sequential", "ModuleDict")
        ):
            return BoundMethod(self, kind.methods[name])(*args)
        if self.original_name.partition(".")[0] in (
            "ModuleList",
            "Sequential",
            "ModuleDict",
            "ParameterList",
            "ParameterDict",
        ):
            return plain()
        raise NotImplementedError(f"'{self.original_name}' has no {name}")

    def __bool__(self) -> bool:
        kind = self.__dict__.get("_script_type")
        return (
            BoundMethod(self, kind.methods["__bool__"])() if kind is not None and "__bool__" in kind.methods else True
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("items", "keys", "values"):  # not methods: a buffer may have the name
                return getattr(self._modules, name)
            raise


class RecursiveScriptModule(_Compiled):
    """What `jit.script` returns for a module, and what `jit.load` returns."""

    def __init__(self, kind: Any = None) -> None:
        super().__init__(kind if isinstance(kind, T.ClassType) else None)

    @staticmethod
    def _construct(cpp_module: Any, init_fn: Any = None) -> Any:
        return getattr(cpp_module, "module", cpp_module)

    def __repr__(self) -> str:
        return super().__repr__()

    def forward_magic_method(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        return self._method(method_name)(*args, **kwargs)


class TracedModule(RecursiveScriptModule):
    """A traced submodule."""

    def _get_name(self) -> str:
        return self.original_name


class TopLevelTracedModule(TracedModule):
    """What `trace` returns for a module."""


class ModuleView:
    """The names that programs use on `module._c`."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def _get_method(self, name: str) -> Any:
        return self.module._method(name)

    def _has_method(self, name: str) -> bool:
        return name in self.module.__dict__["_script_type"].methods

    def _method_names(self) -> list[str]:
        return list(self.module.__dict__["_script_type"].methods)

    def _get_methods(self) -> list[Any]:
        return [self.module._method(n) for n in self._method_names()]

    def _type(self) -> Any:
        return self.module.__dict__["_script_type"]

    def hasattr(self, name: str) -> bool:
        return name in self._type().attributes

    def getattr(self, name: str) -> Any:
        value = getattr(self.module, name)
        return value._c if isinstance(value, ScriptModule) else value

    def setattr(self, name: str, value: Any) -> None:
        setattr(self.module, name, value)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        self.module.save(f, _extra_files)

    def qualified_name(self) -> str:
        return self._type().name

    @property
    def name(self) -> str:
        return self._type().name.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.module, name)
        return value._c if isinstance(value, ScriptModule) else value


# ---------------------------------------------------------------------------------------------- from Python modules


def script_module(instance: Module, kind_of: type = RecursiveScriptModule) -> Any:
    """The scripted form of a module: types found, methods compiled, tensors shared."""
    from flambeau.jit._frontend.modules import exported_methods, infer, script_form

    if isinstance(instance, ScriptModule) and "_script_type" in instance.__dict__:
        return instance
    instance = script_form(instance)
    concrete = infer(instance)
    module = _instantiate(instance, concrete, {}, kind_of)
    if not concrete.ready:
        compile_methods(concrete, exported_methods(instance))
    return module


def compile_methods(concrete: Any, names: list[str]) -> None:
    from flambeau.jit._frontend.modules import exported_methods, method_of
    from flambeau.jit._hooks import compile_hooks

    if concrete.ready:
        return
    concrete.ready = True
    try:
        for child in concrete.children.values():
            if not child.ready:
                compile_methods(child, exported_methods(child.instance))
        compile_hooks(concrete)
        for name in names:
            for one in method_of(concrete, name):
                concrete.kind.methods[one].ensure()
        _compile_properties(concrete)
        if (
            type(concrete.instance).__name__ in ("ModuleList", "Sequential", "ModuleDict")
            and "__len__" not in concrete.kind.methods
        ):
            concrete.kind.methods["__len__"] = _length_method(concrete.kind, len(concrete.children))
    except BaseException:
        concrete.ready = False
        _forget(concrete)
        raise


def _forget(concrete: Any) -> None:
    """A type whose methods did not compile is not shared with later modules."""
    from flambeau.jit._frontend import modules

    entries = modules._types.get(type(concrete.instance), [])
    entries[:] = [e for e in entries if e[1] is not concrete]


def _compile_properties(concrete: Any) -> None:
    from flambeau.jit._frontend.callables import DROP, IGNORE, UNUSED, modifier
    from flambeau.jit._frontend.source import read_function

    cls = type(concrete.instance)
    if cls.__module__.startswith("flambeau."):
        return
    kind = concrete.kind
    unused = getattr(cls, "__jit_unused_properties__", ())
    for name in dir(cls):
        member = getattr(cls, name, None)
        if (
            not isinstance(member, property)
            or name in unused
            or name in kind.properties
            or hasattr(Module, name)
            or hasattr(ScriptModule, name)
        ):
            continue
        if modifier(member.fget) in (DROP, IGNORE, UNUSED):
            continue
        accessors = []  # type: ignore[var-annotated]
        for suffix, function in (("getter", member.fget), ("setter", member.fset)):
            if function is None:
                accessors.append(None)
                continue
            full = f"__{name}_{suffix}"
            kind.methods[full] = Function(
                f"{kind.name}.{full}",
                lambda function=function: read_function(function, kind),  # type: ignore[misc]
                function,
            )
            accessors.append(kind.methods[full])
        kind.properties[name] = (accessors[0], accessors[1])
        for accessor in accessors:
            if accessor is not None:
                accessor.ensure()


def _length_method(kind: T.ClassType, count: int) -> Function:
    from flambeau.jit._ir import Graph
    from flambeau.jit._schemas import Argument, Signature

    graph = Graph()
    graph.addInput("self").setType(kind)
    graph.registerOutput(graph.insertConstant(count))
    return Function.of_graph(
        f"{kind.name}.__len__", graph, Signature("__len__", "", [Argument("self", kind)], [Argument("", T.INT)])
    )


def _instantiate(instance: Module, concrete: Any, memo: dict[int, Any], kind_of: type) -> Any:
    """A scripted module with the tensors and attributes of a Python module."""
    if id(instance) in memo:
        return memo[id(instance)]
    if isinstance(instance, ScriptModule) and "_script_type" in instance.__dict__:
        return instance
    from flambeau.jit._frontend.modules import script_form

    module = kind_of(concrete.kind)
    memo[id(instance)] = module
    instance = script_form(instance)
    module.__dict__["_script_original"] = instance
    module.__dict__["training"] = instance.training
    module.__dict__["_is_full_backward_hook"] = None
    module._parameters.update(instance._parameters)
    module._buffers.update(instance._buffers)
    module.__dict__["_non_persistent_buffers_set"] = set(instance._non_persistent_buffers_set)
    from flambeau.jit import Attribute

    for name, kind in concrete.kind.attributes.items():
        if (
            name in instance._parameters
            or name in instance._buffers
            or name in instance._modules
            or name in ("training", "_is_full_backward_hook")
        ):
            continue
        value = instance.__dict__[name] if name in instance.__dict__ else getattr(instance, name)
        if isinstance(value, Attribute):
            value = value.value
        module.__dict__[name] = _values.to_script(value, kind, name)
    for name, child in instance._modules.items():
        module._modules[name] = (
            None if child is None else _instantiate(child, concrete.children[name], memo, RecursiveScriptModule)
        )
    for table in ("_forward_pre_hooks", "_forward_hooks"):
        module.__dict__[table].update(instance.__dict__[table])
    return module


def compile_in_place(instance: Any) -> None:
    """Make an instance of a ScriptModule's subclass its own scripted form."""
    from flambeau.jit._frontend.modules import exported_methods, infer
    from flambeau.jit._frontend.units import define_methods

    for name, child in list(instance._modules.items()):
        if child is not None and not isinstance(child, ScriptModule):
            instance._modules[name] = script_module(child)
    definitions = instance.__dict__.pop("_script_definitions", [])
    concrete = infer(instance)
    instance.__dict__["_script_type"] = concrete.kind
    for text, lookup in definitions:
        define_methods(concrete.kind, text, lookup)
    from flambeau.jit import Attribute

    for name, value in list(instance.__dict__.items()):
        if isinstance(value, Attribute):
            instance.__dict__[name] = _values.to_script(value.value, concrete.kind.attributes[name], name)
    names = [
        n for n in exported_methods(instance) if hasattr(getattr(type(instance), n, None), "_script_method_source")
    ]
    compile_methods(concrete, names)
