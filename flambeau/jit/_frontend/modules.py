"""Modules in scripts: the type of a module, found from an instance, and what its attributes mean to the compiler.

Modules of the same class whose attributes have the same types, constants and submodules share a type. A `Concrete` keeps, beside the type, the Python instance that it was
found from: its methods are compiled when a script uses them, its Python functions and constants are looked up there.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
import weakref
from typing import Any

from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._frontend.annotations import qualified_name, type_of
from flambeau.jit._frontend.callables import (
    DROP,
    EXPORT,
    IGNORE,
    UNUSED,
    declared_signature,
    modifier,
    overload_declarations,
    overloaded,
    python_signature,
    unique_name,
)
from flambeau.jit._frontend.sugar import (
    FunctionRef,
    MethodRef,
    PythonCall,
    Raises,
    Several,
    Sugared,
    python_value,
)
from flambeau.jit._functions import Function
from flambeau.jit._ir import Value
from flambeau.nn import Module

_SIMPLE = (bool, int, float, complex, str)


class Concrete:
    """The type of a module and the instance it was found from."""

    def __init__(self, instance: Module, kind: T.ClassType) -> None:
        self.instance, self.kind = instance, kind
        self.children: dict[str, Concrete] = {}
        self.functions: dict[str, Any] = {}
        self.overloads: dict[str, list[str]] = {}
        self.ready = False


_types: dict[type, list[tuple[Any, Concrete]]] = {}
_concretes: weakref.WeakValueDictionary[int, Concrete] = weakref.WeakValueDictionary()
_kept: dict[int, Concrete] = {}


def concrete_of(kind: T.ClassType) -> Concrete | None:
    return _kept.get(id(kind))


def _class_annotations(instance: Module) -> dict[str, Any]:
    annotations: dict[str, Any] = {}
    for cls in reversed(type(instance).__mro__):
        if cls.__module__.startswith("flambeau.nn."):
            continue
        own = inspect.get_annotations(cls)
        if any(isinstance(a, str) for a in own.values()):
            try:
                import sys

                scope = vars(sys.modules.get(cls.__module__, types))
                own = {k: eval(a, dict(scope), dict(vars(typing))) if isinstance(a, str) else a for k, a in own.items()}
            except Exception:  # names local to a function
                own = {k: a for k, a in own.items() if not isinstance(a, str)}
        annotations.update(own)
    return annotations


def _is_final(annotation: Any) -> bool:
    return annotation is typing.Final or typing.get_origin(annotation) is typing.Final


def _constant_names(instance: Module, annotations: dict[str, Any]) -> set[str]:
    names = set()
    for cls in type(instance).__mro__:
        names |= set(cls.__dict__.get("__constants__", ()))
    names |= {name for name, annotation in annotations.items() if _is_final(annotation)}
    return names


def _own_layer(instance: Module) -> bool:
    return type(instance).__module__.startswith("flambeau.nn.")


_INTERNAL: set[str] = set()


def _internal() -> set[str]:
    if not _INTERNAL:
        _INTERNAL.update(
            set(Module().__dict__)
            | {"_is_full_backward_hook", "_torchdynamo_inline", "_forward_hooks", "call_super_init"}
        )
    return _INTERNAL


def has_script_form(instance: Module) -> bool:
    """Whether the class of a module says what is compiled in its place."""
    return hasattr(type(instance), "_script_form")


def script_form(instance: Module) -> Module:
    """The module that is compiled: the instance, or what its class makes for scripts."""
    if not has_script_form(instance):
        return instance
    form = instance._script_form()
    form.train(instance.training)
    for table in ("_forward_pre_hooks", "_forward_hooks"):
        form.__dict__[table].update(instance.__dict__[table])
    return form


def infer(instance: Module) -> Concrete:
    """The concrete type of a module; the same for modules that cannot be told apart."""
    instance = script_form(instance)
    existing = getattr(instance, "_script_type", None)
    if isinstance(existing, T.ClassType):
        known = concrete_of(existing)
        if known is not None:
            return known
        return _loaded(instance, existing)
    draft = _Draft(instance)
    draft.read()
    key = draft.key()
    for other, concrete in _types.setdefault(type(instance), []):
        if other == key and _same_children(concrete, draft):
            return concrete
    kind = draft.make_type()
    concrete = Concrete(instance, kind)
    concrete.children = draft.children
    concrete.functions = draft.functions
    _types[type(instance)].append((key, concrete))
    _kept[id(kind)] = concrete
    return concrete


def _loaded(instance: Module, kind: T.ClassType) -> Concrete:
    """A scripted module, for example one from an archive, inside another."""
    concrete = Concrete(instance, kind)
    concrete.ready = True
    for name, child in instance._modules.items():
        if child is not None:
            concrete.children[name] = infer(child)
    _kept[id(kind)] = concrete
    return concrete


def _same_children(concrete: Concrete, draft: _Draft) -> bool:
    return {k: id(v) for k, v in concrete.children.items()} == {k: id(v) for k, v in draft.children.items()}


class _Draft:
    """The parts of a type that is being found."""

    def __init__(self, instance: Module) -> None:
        self.instance = instance
        self.attributes: dict[str, T.JitType] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.functions: dict[str, Any] = {}
        self.unsupported: dict[str, str] = {}
        self.children: dict[str, Concrete] = {}
        self.module_attributes: dict[str, T.JitType] = {}

    def read(self) -> None:
        instance = self.instance
        annotations = _class_annotations(instance)
        constants = _constant_names(instance, annotations)
        for name, value in instance._parameters.items():
            self._tensor(name, value, annotations, self.parameters)
        for name, value in instance._buffers.items():
            self._tensor(name, value, annotations, self.buffers)
        self.attributes["training"] = T.BOOL
        self.attributes["_is_full_backward_hook"] = T.OptionalType(T.BOOL)
        ignored = set(getattr(type(instance), "__jit_ignored_attributes__", ()))
        for name, value in instance.__dict__.items():
            if name in _internal() or name in ignored:
                continue
            self._attribute(name, value, annotations, constants)
        for name in constants:
            if name not in self.constants and hasattr(type(instance), name):
                self.constants[name] = getattr(type(instance), name)
        for name, child in instance._modules.items():
            if child is None:
                self.module_attributes[name] = T.NONE
                continue
            interface = annotations.get(name)
            interface_type = getattr(interface, "__torch_script_interface__", None)
            self.children[name] = infer(child)
            self.module_attributes[name] = interface_type or self.children[name].kind
        for name, annotation in annotations.items():
            self._flagged(name, annotation)

    def _flagged(self, name: str, annotation: Any) -> None:
        """Class attributes with Final annotations that instances did not set."""
        if _is_final(annotation) and name not in self.constants and hasattr(self.instance, name):
            self.constants[name] = getattr(self.instance, name)

    def _tensor(self, name: str, value: Any, annotations: dict[str, Any], names: set[str]) -> None:
        if name in annotations and not _is_final(annotations[name]):
            try:
                self.attributes[name] = type_of(annotations[name])
                if value is not None:
                    names.add(name)
                return
            except TypeError:
                pass
        self.attributes[name] = T.NONE if value is None else T.TENSOR
        if value is not None:
            names.add(name)

    def _attribute(self, name: str, value: Any, annotations: dict[str, Any], constants: set[str]) -> None:
        from flambeau.jit import Attribute

        if isinstance(value, Attribute):
            self.attributes[name] = type_of(value.type)
            return
        chosen = name in constants or (_own_layer(self.instance) and _is_simple(value))
        if chosen and _may_be_constant(value):
            self.constants[name] = value
            return
        annotation = annotations.get(name)
        if annotation is not None and not _is_final(annotation):
            try:
                self.attributes[name] = type_of(annotation)
                return
            except TypeError as error:
                self.unsupported[name] = f"({error})"
                return
        if (
            callable(value)
            and not isinstance(value, (type, _values.ScriptObject, _C.device))
            and not hasattr(value, "_script_type")
        ):
            self.functions[name] = value
            return
        try:
            self.attributes[name] = _values.infer_type(value, element_of_empty=_own_layer(self.instance))
        except Exception as error:
            self.functions[name] = value
            self.unsupported[name] = (
                f"(This attribute exists on the Python module, but we failed to convert Python type: '{type(value).__name__}' to a TorchScript type. {error}.)"
            )

    def key(self) -> Any:
        constants = tuple(sorted((k, type(v).__name__, repr(v)) for k, v in self.constants.items()))
        functions = tuple(sorted((k, id(getattr(v, "__func__", v))) for k, v in self.functions.items()))
        kinds = tuple((k, v) for k, v in {**self.attributes, **self.module_attributes}.items())
        hooks = (
            tuple(map(id, self.instance._forward_pre_hooks.values())),
            tuple(map(id, self.instance._forward_hooks.values())),
        )
        own = tuple(
            (k, id(v))
            for k, v in self.instance.__dict__.items()
            if isinstance(v, types.MethodType) and k not in _internal()
        )
        return (kinds, frozenset(self.parameters), frozenset(self.buffers), constants, functions, hooks, own)

    def make_type(self) -> T.ClassType:
        kind = T.ClassType(unique_name(qualified_name(type(self.instance))), is_module=True)
        kind.attributes = {**self.attributes, **self.module_attributes}
        kind.parameters, kind.buffers = self.parameters, self.buffers
        kind.constants, kind.unsupported = self.constants, self.unsupported
        kind.python = type(self.instance)
        return kind


def _may_be_constant(value: Any) -> bool:
    constant = (*_SIMPLE, tuple, list, type(None), enum.Enum, *_values.ENUMERATED, _C.device)
    return isinstance(value, constant)


def _is_simple(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_simple(v) for v in value)
    return value is None or isinstance(value, _SIMPLE)


# ---------------------------------------------------------------------------------------------- methods


def method_of(concrete: Concrete, name: str) -> list[str]:
    """Compile a method of the module's class on demand; the names of its overloads."""
    kind = concrete.kind
    if name in kind.methods:
        return concrete.overloads.get(name, [name])
    if name in concrete.overloads:
        return concrete.overloads[name]
    body = _method_source(concrete.instance, name)
    extra = _class_cell(concrete.instance)
    declarations = [] if not hasattr(body, "__qualname__") else overload_declarations(body)
    if declarations:
        names = []
        for index, one in enumerate(declarations):
            full = name if index == 0 else f"{name}__{index}"
            kind.methods[full] = overloaded(body, one, kind, extra, f"{kind.name}.{full}")
            names.append(full)
        concrete.overloads[name] = names
        return names

    def declare() -> Any:
        from flambeau.jit._frontend.source import read_function

        declaration = read_function(body, kind, extra)
        if name == "__setstate__" and declaration.parameters[-1].kind is None:
            declaration.parameters[-1].kind = _state_type(concrete)
        if declaration.result is not None:
            function.schema = declared_signature(declaration)
        return declaration

    function = Function(f"{kind.name}.{name}", declare, body)
    kind.methods[name] = function
    return [name]


def _state_type(concrete: Concrete) -> T.JitType:
    """The type of a module's state: what `__getstate__` returns."""
    if getattr(type(concrete.instance), "__getstate__", None) in (None, getattr(object, "__getstate__", None)):
        raise RuntimeError("[jit.script] expected __getstate__ beside __setstate__, got a class without it")
    getter = concrete.kind.methods[method_of(concrete, "__getstate__")[0]]
    return getter.ensure().schema.result_type()


def _class_cell(instance: Module) -> Any:
    def extra(name: str) -> Any:
        return type(instance) if name == "__class__" else None

    return extra


def _method_source(instance: Module, name: str) -> Any:
    from flambeau.jit._library import library_forward

    own = instance.__dict__.get(name)
    if own is not None:
        return getattr(own, "__func__", own)
    for cls in type(instance).__mro__:
        library = library_forward(cls, name)
        if library is not None:
            return library
        if name in cls.__dict__:
            member = cls.__dict__[name]
            stub = getattr(member, "_script_method_source", None)
            return stub if stub is not None else getattr(member, "__func__", member)
    raise AttributeError(name)


class ModuleRef(Sugared):
    """A module in a script: `self`, or a submodule."""

    what = "module"

    def __init__(self, place: Value, concrete: Concrete) -> None:
        self.place, self.concrete = place, concrete
        self.kind = concrete.kind

    def value(self, e: Any, node: Any) -> Value:
        return self.place

    def owner_value(self, e: Any, node: Any) -> Value:
        return self.place

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        forward = self.attr(e, "forward", node)
        if not self.kind.pre_hooks and not self.kind.hooks:
            return forward.call(e, args, kwargs, node)
        return self._call_with_hooks(e, forward, [e.as_value(a, node) for a in args], kwargs, node)

    def _call_with_hooks(self, e: Any, forward: Any, args: list[Value], kwargs: dict[str, Any], node: Any) -> Any:
        """`forward` between the calls of the hooks, each of which may replace what it is given."""
        inputs = Several(list(args)).value(e, node)
        for hook in self.kind.pre_hooks:
            result = e.call_function([hook], [self.place, inputs], {}, node)
            if result.type() != T.NONE:
                inputs = result if isinstance(result.type(), T.TupleType) else Several([result]).value(e, node)
        output = e.as_value(forward.call(e, e.unpack(inputs), kwargs, node), node)
        for hook in self.kind.hooks:
            result = e.call_function([hook], [self.place, inputs, output], {}, node)
            output = output if result.type() == T.NONE else result
        return output

    def has_attr(self, e: Any, name: str) -> bool:
        kind = self.kind
        if name in kind.attributes or name in kind.methods or name in kind.constants or name in self.concrete.functions:
            return True
        return hasattr(self.concrete.instance, name)

    def child(self, e: Any, name: str) -> Any:
        kind = self.kind.attributes[name]
        place = e.graph.insert("prim::GetAttr", [self.place], [kind])
        place.attributes["name"] = ("s", name)
        place._outputs[0].setDebugName(name if name.isidentifier() else f"_{name}")
        if isinstance(kind, T.InterfaceType):
            return place._outputs[0]
        return ModuleRef(place._outputs[0], self.concrete.children[name])

    def attr(self, e: Any, name: str, node: Any) -> Any:
        concrete, kind = self.concrete, self.kind
        if name in concrete.children:
            return self.child(e, name)
        if name == "_flat_weights" and self._is("RNNBase"):
            weights = [e.object_attribute(self.place, kind, n, node) for n in concrete.instance._flat_weights_names]
            return e.make_list(weights, T.TENSOR, node)
        if name in kind.attributes:
            if kind.attributes[name] == T.NONE:
                return e.graph.insertConstant(None, T.NONE)
            return e.object_attribute(self.place, kind, name, node)
        if name in kind.constants:
            return python_value(e, _as_constant(kind.constants[name]), node, constant=True)
        if name in kind.methods:
            return MethodRef(self.place, concrete.overloads.get(name, [name]))
        if name in concrete.functions:
            value = self._function(e, name, concrete.functions[name], node)
            if value is not None:
                return value
        return self._from_class(e, name, node)

    def _function(self, e: Any, name: str, value: Any, node: Any) -> Any:
        kind = modifier(value) if isinstance(value, (types.FunctionType, types.MethodType)) else ""
        if isinstance(value, types.MethodType) and value.__self__ is self.concrete.instance:
            return None
        if kind == IGNORE:
            return PythonCall(value)
        try:
            return python_value(e, value, node, constant=True, name=name)
        except RuntimeError as error:
            hint = self.kind.unsupported.get(name, "")
            raise e.error(
                node, f"Module '{type(self.concrete.instance).__name__}' has no attribute '{name}' {hint or error}"
            ) from None

    def _from_class(self, e: Any, name: str, node: Any) -> Any:
        from flambeau.jit._library import library_forward

        instance = self.concrete.instance
        member = None
        for cls in type(instance).__mro__:
            member = library_forward(cls, name)
            if member is not None:
                break
            if name in cls.__dict__:
                member = cls.__dict__[name]
                break
        if isinstance(member, staticmethod):
            return python_value(e, member.__func__, node)
        if isinstance(member, property):
            if name in getattr(type(instance), "__jit_unused_properties__", ()) or modifier(member.fget) in (
                UNUSED,
                DROP,
            ):
                raise e.error(node, f"property '{name}' is marked as unused")
            return self._property(e, name, member, node)
        container = self._container(e, name)
        if container is not None:
            return container
        function = getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType) or hasattr(function, "_script_method_source"):
            kind = modifier(function)
            if kind == IGNORE:
                return PythonCall(function, instance)
            if kind in (UNUSED, DROP):
                signature = python_signature(function, instance)
                return Raises(
                    f"This Python function is annotated to be ignored and cannot be run: {name}",
                    signature.result_type(),
                )
            names = method_of(self.concrete, name)
            return MethodRef(self.place, names)
        if name in self.kind.unsupported or name in self.concrete.functions:
            raise e.error(
                node,
                f"Module '{type(instance).__name__}' has no attribute '{name}' {self.kind.unsupported.get(name, '')}",
            )
        if member is not None:
            raise e.error(
                node,
                f"Module '{type(instance).__name__}' has no attribute '{name}' (This attribute exists on the Python class, but TorchScript needs it as an instance attribute, or in __constants__)",
            )
        raise e.error(node, f"Module '{type(instance).__name__}' has no attribute '{name}'")

    def _property(self, e: Any, name: str, member: property, node: Any) -> Any:
        kind = self.kind
        if name not in kind.properties:
            getter = self._accessor(f"__{name}_getter", member.fget)
            setter = None if member.fset is None else self._accessor(f"__{name}_setter", member.fset)
            kind.properties[name] = (getter, setter)
        return e.call_compiled_method(self.place, kind.properties[name][0], [], {}, node)

    def set_property(self, e: Any, name: str, value: Any, node: Any) -> bool:
        """Assign to a property of the module's class; False if there is none of that name."""
        member = getattr(type(self.concrete.instance), name, None)
        if not isinstance(member, property) or name in self.kind.attributes:
            return False
        if member.fset is None:
            raise e.error(node, f"Tried to set read-only attribute: {name}")
        if name not in self.kind.properties:
            getter = self._accessor(f"__{name}_getter", member.fget)
            self.kind.properties[name] = (getter, self._accessor(f"__{name}_setter", member.fset))
        e.call_compiled_method(self.place, self.kind.properties[name][1], [value], {}, node)
        return True

    def _accessor(self, name: str, function: Any) -> Function:
        from flambeau.jit._frontend.source import read_function

        kind = self.kind
        accessor = Function(f"{kind.name}.{name}", lambda: read_function(function, kind), function)
        kind.methods[name] = accessor
        return accessor

    # ------------------------------------------------------------------ containers

    def _names(self) -> list[str]:
        return list(self.concrete.children)

    def _is(self, *names: str) -> bool:
        return any(
            cls.__name__ in names and cls.__module__.startswith("flambeau.nn")
            for cls in type(self.concrete.instance).__mro__
        )

    def items(self, e: Any, node: Any) -> list[Any] | None:
        if self._is("ModuleList", "Sequential"):
            return [self.child(e, n) for n in self._names()]
        if self._is("ModuleDict"):
            return [e.graph.insertConstant(n) for n in self._names()]
        if self._is("ParameterList"):
            return [e.object_attribute(self.place, self.kind, n, node) for n in self.concrete.instance._parameters]
        if self._is("ParameterDict"):
            return [e.graph.insertConstant(n) for n in self.concrete.instance._parameters]
        raise e.error(
            node,
            f"Only constant Sequential, ModuleList, ModuleDict, or ParameterList can be used as an iterable, got {type(self.concrete.instance).__name__}",
        )

    def length(self, e: Any, node: Any) -> Value:
        return e.graph.insertConstant(len(self.items(e, node) or ()))

    def contains(self, e: Any, item: Value, node: Any) -> Value | None:
        if not self._is("ModuleDict", "ParameterDict"):
            return None
        keys = self.items(e, node) or []
        if isinstance(item.toIValue(), str):
            return e.graph.insertConstant(item.toIValue() in [key.toIValue() for key in keys])
        return e.operator("aten::__contains__", [e.make_list(keys, T.STRING, node), item], node)

    def _container(self, e: Any, name: str) -> Any:
        if self._is("ModuleDict", "ParameterDict") and name in ("items", "keys", "values"):
            return _DictView(self, name)
        if name in (
            "named_modules",
            "modules",
            "children",
            "named_children",
            "parameters",
            "named_parameters",
            "buffers",
            "named_buffers",
        ):
            return _ModuleView(self, name)
        return None

    def getitem(self, e: Any, index: Any, node: Any) -> Any:
        if self._is("ModuleDict", "ParameterDict"):
            key = index.toIValue() if isinstance(index, Value) else None
            if isinstance(key, str) and key in self._names():
                return self.child(e, key)
            if isinstance(key, str) and key in self.concrete.instance._parameters:
                return e.object_attribute(self.place, self.kind, key, node)
            if isinstance(key, str):
                raise e.error(node, f"Key Error, {key}")
            return self._dynamic(e, index, node)
        number = e.static_int(index)
        if number is None:
            return self._dynamic(e, index, node)
        elements = self.items(e, node) or []
        if not -len(elements) <= number < len(elements):
            raise e.error(node, f"Index out of range: index {number} is out of range of length {len(elements)}")
        return elements[number]

    def _dynamic(self, e: Any, index: Any, node: Any) -> Any:
        """An index that is not known while compiling: the interface that annotates the result says what is found."""
        hint = e.container_hint
        if hint is None:
            raise e.error(
                node,
                "Unable to extract string literal index. ModuleDict indexing is only supported with string literals. For example, 'i = \"a\"; self.layers[i](x)' will fail because i is not a literal. Enumeration of ModuleDict is supported, e.g. 'for k, v in self.items(): out = v(inp)'; ModuleList indexing is only supported with integer literals",
            )
        member = e.operator("prim::ModuleContainerIndex", [self.place, e.as_value(index, node)], node)
        return e.graph.insert("prim::unchecked_cast", [member], [hint])._outputs[0]


class _DictView(Sugared):
    """`self.layers.items()` of a ModuleDict."""

    def __init__(self, owner: ModuleRef, name: str) -> None:
        self.owner, self.name = owner, name
        self.what = f"method {name}"

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        names = self.owner._names() or list(self.owner.concrete.instance._parameters)
        keys = [e.graph.insertConstant(n) for n in names]
        if self.name == "keys":
            return Several(keys)
        children = [self.owner.attr(e, n, node) if n.isidentifier() else self.owner.child(e, n) for n in names]
        if self.name == "values":
            return Several(children)
        return Several([Several([k, c]) for k, c in zip(keys, children)])


class _ModuleView(Sugared):
    """`self.named_modules()` and the like, unrolled."""

    def __init__(self, owner: ModuleRef, name: str) -> None:
        self.owner, self.name = owner, name
        self.what = f"method {name}"

    def _walk(self, e: Any, ref: ModuleRef, prefix: str) -> list[tuple[str, ModuleRef]]:
        modules = [(prefix, ref)]
        for name in ref._names():
            modules += self._walk(e, ref.child(e, name), f"{prefix}.{name}" if prefix else name)
        return modules

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        named = self.name.startswith("named_")
        if self.name.endswith("children"):
            pairs: list[Any] = [(n, self.owner.child(e, n)) for n in self.owner._names()]
        elif self.name.endswith("modules"):
            pairs = self._walk(e, self.owner, "")
        else:
            table = "_parameters" if "parameters" in self.name else "_buffers"
            pairs = []
            for prefix, ref in self._walk(e, self.owner, ""):
                for n, v in getattr(ref.concrete.instance, table).items():
                    if v is not None:
                        pairs.append((f"{prefix}.{n}" if prefix else n, ref.attr(e, n, node)))
        if named:
            return Several([Several([e.graph.insertConstant(n), m]) for n, m in pairs])
        return Several([m for _, m in pairs])


def _as_constant(value: Any) -> Any:
    return tuple(_as_constant(v) for v in value) if isinstance(value, list) else value


def exported_methods(instance: Module) -> list[str]:
    """Methods that are compiled even if nothing calls them: forward, and those with `jit.export`."""
    from flambeau.nn.modules.module import _forward_unimplemented

    names = []
    forward = getattr(type(instance), "forward", None)
    own = instance.__dict__.get("forward")
    if (
        (own is not None or forward is not None)
        and forward is not _forward_unimplemented
        and type(forward).__name__ != "_Forward"
        and modifier(own or forward) != IGNORE
    ):
        names.append("forward")
    for name in dir(type(instance)):
        member = getattr(type(instance), name, None)
        if (isinstance(member, types.FunctionType) and modifier(member) == EXPORT and name not in names) or (
            hasattr(member, "_script_method_source") and name not in names
        ):
            names.append(name)
    return names


def compile_exports(original: Module, traced: Module, kind: T.ClassType) -> None:
    """Add the methods with `jit.export` to a trace, with the attributes that they may use."""
    names = [name for name in exported_methods(original) if name != "forward" and name not in kind.methods]
    if not names:
        return
    draft = _Draft(original)
    draft.read()
    for name, part in draft.attributes.items():
        if name not in kind.attributes:
            kind.attributes[name] = part
            traced.__dict__[name] = getattr(original, name)
    kind.constants = {**draft.constants, **kind.constants}
    concrete = _loaded(traced, kind)
    concrete.instance, concrete.functions = original, draft.functions
    for name in names:
        method_of(concrete, name)
        kind.methods[name].ensure()


__all__ = [
    "Concrete",
    "FunctionRef",
    "ModuleRef",
    "compile_exports",
    "concrete_of",
    "exported_methods",
    "infer",
    "method_of",
]
