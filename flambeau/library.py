"""Operators of users: definitions, kernels written in Python for any dispatch key, fake kernels and derivatives.

    lib = Library("mylib", "DEF")
    lib.define("scale(Tensor x, float factor=2.0) -> Tensor")
    lib.impl("scale", lambda x, factor=2.0: x * factor, "CPU")
    ops.mylib.scale(x)

`custom_op` does the same for a function with annotations. A library undoes what it registered when it is destroyed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import threading
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import flambeau
from flambeau import _C, _ops
from flambeau.types import Number

__all__ = [
    "Library",
    "define",
    "fallthrough_kernel",
    "impl",
    "register_kernel",
    "register_autograd",
    "register_fake",
    "register_vmap",
    "register_torch_dispatch",
    "register_autocast",
    "get_ctx",
    "custom_op",
    "CustomOpDef",
    "infer_schema",
    "impl_abstract",
]

_defined: set[str] = set()  # operators whose library is alive
_gone: set[str] = set()  # operators whose library was destroyed: they may be defined again
_kept: dict[str, Library] = {}  # libraries behind the functions of this module, which live for ever
_dispatch_rules: dict[tuple[str, type], Callable[..., Any]] = {}
_meta_kernels: dict[str, Callable[..., Any]] = {}  # that are written in Python, by full name


def fallthrough_kernel() -> None:
    """Given as a kernel: the dispatch key has nothing to do for the operator."""
    raise NotImplementedError("fallthrough_kernel() should never be called")


class Library:
    """Definitions and kernels of a namespace. kind is "DEF", "FRAGMENT" or "IMPL" (kernels of operators that exist)."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"[Library] expected kind DEF, FRAGMENT or IMPL, got {kind!r}")
        if kind == "DEF" and ns in ("aten", "prim", "prims"):
            raise ValueError(f"[Library] expected a namespace of your own for DEF, got {ns!r}, which is reserved")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._handles: list[int] = []
        self._definitions: list[str] = []
        self._fallbacks: list[int] = []
        self._finalizer = weakref.finalize(self, _destroy, self._handles, self._definitions, self._fallbacks)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by its schema, `name.overload(Tensor x, int n=1) -> Tensor`; returns its name."""
        if self.kind == "IMPL":
            raise RuntimeError("[Library] expected a library of kind DEF or FRAGMENT for define, got IMPL")
        schema = schema.strip()
        name = schema.partition("(")[0].strip()
        if "::" in name:
            if name.partition("::")[0] != self.ns:
                raise ValueError(f"[Library] expected a schema in the namespace {self.ns}, got {name}")
            schema = schema.partition("::")[2]
        letters = itertools.count()  # `Tensor! x` is short for a written tensor that shares memory with nothing else
        schema = re.sub(r"\bTensor!", lambda _: f"Tensor(w{next(letters)}!)", schema)
        read = _ops.read_schema(schema)  # fails early on bad syntax
        text = schema if self.ns == "aten" else f"{self.ns}::{schema}"
        full = text.partition("(")[0].strip()
        _C._define_operator(text, full in _gone)
        _gone.discard(full)
        _defined.add(full)
        self._definitions.append(full)
        _ops.forget(full)
        if tags:
            _C._operator_object(full).tags = list(tags) if isinstance(tags, Iterable) else [tags]
        return read.name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a kernel for a dispatch key or device name."""
        if not callable(fn):
            raise TypeError(f"[Library] expected a callable for the kernel, got {type(fn).__name__}")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = self._resolve(op_name)
        if key == "CompositeExplicitAutograd" or key == "CompositeExplicitAutogradNonFunctional":
            for number in _ops.BACKENDS:
                self._set(name, number, fn, with_keyset, True)
            return
        if key in ("ADInplaceOrView", "BackendSelect"):
            return
        self._set(name, _ops.dispatch_key(key), None if fn is fallthrough_kernel else fn, with_keyset, False)

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register fn(op, *args, **kwargs) for every operator without kernel or decomposition for a key."""
        if self.ns != "_":
            raise RuntimeError(f'[Library] expected the namespace "_" for a fallback, got {self.ns!r}')
        key = _ops.dispatch_key(dispatch_key or self.dispatch_key)
        _C._set_fallback(key, None if fn is fallthrough_kernel else fn, with_keyset)
        self._fallbacks.append(key)

    def _register_fake(
        self, op_name: Any, fn: Callable[..., Any], _stacklevel: int = 1, *, allow_override: bool = False
    ) -> None:
        self._set(self._resolve(op_name), _ops.META, fn, False, False)

    def _register_torch_dispatch_rule(self, op_name: Any, torch_dispatch_class: type, fn: Callable[..., Any]) -> None:
        _dispatch_rules[self._resolve(op_name), torch_dispatch_class] = fn

    def _resolve(self, op: Any) -> str:
        if isinstance(op, str) and "::" not in op:
            op = f"{self.ns}::{op}"
        return _ops.resolve(op)

    def _set(self, name: str, key: int, fn: Callable[..., Any] | None, with_keyset: bool, if_missing: bool) -> None:
        handle = _C._set_kernel(name, key, fn, with_keyset, if_missing)
        if key == _ops.META and fn is not None and not with_keyset and handle is not None:
            _meta_kernels[name] = fn
        if handle is not None:
            self._handles.append(handle)

    def _destroy(self) -> None:
        """Undo everything."""
        self._finalizer()


def _destroy(handles: list[int], definitions: list[str], fallbacks: list[int]) -> None:
    while handles:
        _C._restore_kernel(handles.pop())
    for name in definitions:
        _defined.discard(name)
        _gone.add(name)
        _meta_kernels.pop(name, None)
        _ops.forget(name)
    definitions.clear()
    while fallbacks:
        _C._set_fallback(fallbacks.pop(), None)


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library for the duration of a `with` block."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


def _library_for(ns: str) -> Library:
    """The library that holds what the functions of this module register."""
    if ns not in _kept:
        _kept[ns] = Library(ns, "FRAGMENT")
    return _kept[ns]


def _split(qualname: str) -> tuple[str, str]:
    space, colons, name = qualname.partition("::")
    if not colons or not space or not name:
        raise ValueError(f"[library] expected a qualified name such as 'mylib::op', got {qualname!r}")
    return space, name


def _name_of(op: Any) -> str:
    if isinstance(op, CustomOpDef):
        return op._qualname
    if isinstance(op, _ops.OpOverload):
        return op.name()
    if isinstance(op, str):
        return op
    raise ValueError(f"[library] expected an operator or its qualified name, got {type(op).__name__}")


def _decorated(register: Callable[[Callable[..., Any]], Any], func: Callable[..., Any] | None) -> Any:
    """register(func) now, or a decorator that does it."""
    if func is not None:
        register(func)
        return func

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        register(function)
        return function

    return decorator


# ---------------------------------------------------------------------------------------------- functions


def define(qualname: Any, schema: Any = None, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define an operator: define("mylib::op", "(Tensor x) -> Tensor")."""
    if isinstance(qualname, Library):  # the older form, a decorator that defines and implements
        library, text = qualname, schema

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(library.define(text), function)
            return function

        return wrap
    if not isinstance(qualname, str):
        raise ValueError(f"[define] expected a qualified name, got {type(qualname).__name__}")
    space, name = _split(qualname)
    if "(" in name:
        raise ValueError(f"[define] expected the name and the schema apart, got {qualname!r}")
    (lib or _library_for(space)).define(name + schema, tags=tags)
    return None


def _keys_for(types: str | Sequence[str]) -> list[str]:
    names = [types] if isinstance(types, str) else list(types)
    return ["CompositeExplicitAutograd" if n == "default" else n for n in names]


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel for one or more device types ("cpu", "cuda", ...; "default" for all) or dispatch keys."""
    if isinstance(qualname, Library):  # the older form: impl(library, name, dispatch_key)
        library, name, key = qualname, types, func or ""
        return _decorated(lambda function: library.impl(name, function, key), None)
    name = _name_of(qualname)

    def register(function: Callable[..., Any]) -> None:
        library = lib or _library_for(_split(name)[0])
        for key in _keys_for(types):
            library.impl(name, function, key)

    return _decorated(register, func)


def register_kernel(
    op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register the kernel of an operator for device types; None means all."""
    if isinstance(op, CustomOpDef):
        return op.register_kernel(device_types)(func) if func is not None else op.register_kernel(device_types)
    return impl(op, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(
    op: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = False,
) -> Any:
    """Register what computes shapes and dtypes only: the kernel on the meta device and under fake tensors."""
    if isinstance(op, CustomOpDef):
        return op.register_fake(func) if func is not None else op.register_fake
    name = _name_of(op)
    return _decorated(lambda function: (lib or _library_for(_split(name)[0]))._register_fake(name, function), func)


impl_abstract = register_fake


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """Register how an operator is vectorised: func(info, in_dims, *args) -> (result, out_dims)."""
    name = _name_of(op)

    def register(function: Callable[..., Any]) -> None:
        vmap_rules[_ops.resolve(name)] = function

    return _decorated(register, func)


vmap_rules: dict[str, Callable[..., Any]] = {}  # by operator, for the vectorising transform


def register_torch_dispatch(
    op: Any, torch_dispatch_class: type, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register what a `__torch_dispatch__` class or mode does for an operator."""
    name = _name_of(op)

    def register(function: Callable[..., Any]) -> None:
        (lib or _library_for(_split(name)[0]))._register_torch_dispatch_rule(name, torch_dispatch_class, function)

    return _decorated(register, func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """Cast floating arguments to a dtype when the operator is called under autocast."""
    name = _ops.resolve(_name_of(op))

    def cast(value: Any) -> Any:
        if isinstance(value, flambeau.Tensor) and value.is_floating_point() and value.device.type == device_type:
            return value.to(cast_inputs)
        return [cast(v) for v in value] if isinstance(value, (list, tuple)) else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _ops.ExcludeKeys(_ops.AUTOCAST):
            return _C._operator_object(name)(*map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    (lib or _library_for(_split(_name_of(op))[0]))._set(name, _ops.AUTOCAST, kernel, False, False)


# ---------------------------------------------------------------------------------------------- derivatives


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """Register the derivative: backward(ctx, *grads), after setup_context(ctx, inputs, output) saved its needs."""
    name = _ops.resolve(_name_of(op))
    schema = _C._operator_object(name)._schema
    if schema.is_mutable:
        raise RuntimeError(f"[register_autograd] expected an operator that does not write its arguments, got {schema}")
    kernel = functools.partial(_differentiable_call, name, backward, setup_context)
    (lib or _library_for(_split(_name_of(op))[0]))._set(name, _ops.AUTOGRAD, kernel, False, False)


def _differentiable_call(
    name: str, backward: Callable[..., Any], setup_context: Callable[..., Any] | None, *args: Any, **kwargs: Any
) -> Any:
    """The kernel of the autograd key: a node whose forward is the operator below autograd."""
    op = _C._operator_object(name)
    schema = op._schema
    positional = [a for a in schema.arguments if not a.kwarg_only]
    args = (*args, *(a.default_value for a in positional[len(args) :]))
    keyword_only = {a.name: kwargs.get(a.name, a.default_value) for a in schema.arguments if a.kwarg_only}
    # Tensors inside lists take part in the graph one by one.
    layout = [
        len(a) if isinstance(a, (list, tuple)) and a and isinstance(a[0], flambeau.Tensor) else None for a in args
    ]
    flat = [x for a, n in zip(args, layout) for x in (a if n is not None else [a])]

    def regroup(values: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter(values)
        return tuple(next(rest) if n is None else [next(rest) for _ in range(n)] for n in layout)

    class Body:
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            inputs = regroup(values)
            with _ops.AutoDispatchBelowAutograd():
                result = op(*inputs, **kwargs)
            if setup_context is not None:
                extra = {"keyword_only_inputs": keyword_only} if keyword_only else {}
                setup_context(ctx=ctx, inputs=inputs, output=result, **extra)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            gradients = backward(ctx, *grads)
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            if len(gradients) != len(layout):
                raise RuntimeError(
                    f"[{name}] expected backward to return {len(layout)} gradients, got {len(gradients)}"
                )
            spread: list[Any] = []
            for grad, n in zip(gradients, layout):
                spread.extend([grad] if n is None else list(grad) if grad is not None else [None] * n)
            return tuple(spread)

    title = f"GeneratedBackwardFor_{op.namespace}_{op._opname}_{op._overloadname}"
    return type(title, (Body, flambeau.autograd.Function), {}).apply(*flat)


# ---------------------------------------------------------------------------------------------- schemas from functions

_SCHEMA_TYPES: dict[Any, str] = {
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    complex: "complex",
}


def _type_text(annotation: Any) -> str:
    """A Python annotation as a schema type."""
    known = dict(_SCHEMA_TYPES)
    known.update({flambeau.Tensor: "Tensor", flambeau.dtype: "ScalarType", flambeau.device: "Device"})
    known[typing.Union[int, float, bool]] = known[typing.Union[int, float, bool, complex]] = "Scalar"
    known[Number] = "Scalar"
    try:
        if annotation in known:
            return known[annotation]
    except TypeError:
        pass
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or type(annotation).__name__ == "UnionType":
        rest = [a for a in args if a is not type(None)]
        if len(rest) < len(args):
            inner = rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]
            return _type_text(inner) + "?"
    if origin in (list, Sequence, typing.Sequence) and len(args) == 1:
        return _type_text(args[0]) + "[]"
    raise ValueError(f"[infer_schema] expected a supported annotation (Tensor, int, float, ...), got {annotation}")


def _return_text(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join(_return_text(a) for a in typing.get_args(annotation))})"
    text = _type_text(annotation)
    if text not in ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar"):
        raise ValueError(
            f"[infer_schema] expected a result of type Tensor, list of Tensors or number, got {annotation}"
        )
    return text


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: str | None = None) -> str:
    """The schema of a function from its annotations; mutates_args names the arguments it writes, or is "unknown"."""
    signature = inspect.signature(prototype_function)
    try:
        hints = typing.get_type_hints(prototype_function)
    except NameError:
        hints = dict(getattr(prototype_function, "__annotations__", {}))
    parts: list[str] = []
    starred = False
    written = 0
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(
                f"[infer_schema] expected plain parameters, got {parameter} in {prototype_function.__name__}"
            )
        if name not in hints:
            raise ValueError(f"[infer_schema] expected an annotation for every parameter, got none for {name!r}")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        text = _type_text(hints[name])
        if (text.startswith("Tensor") and mutates_args == "unknown") or (
            mutates_args != "unknown" and name in mutates_args
        ):
            if not text.startswith("Tensor"):
                raise ValueError(f"[infer_schema] expected a Tensor among mutates_args, got {name}: {text}")
            text = text.replace("Tensor", f"Tensor(a{written}!)", 1)
            written += 1
        if parameter.default is not parameter.empty:
            default = parameter.default
            shown = f'"{default}"' if isinstance(default, str) else str(default)
            if isinstance(default, flambeau.dtype):
                shown = shown.removeprefix("torch.")
            parts.append(f"{text} {name}={shown}")
        else:
            parts.append(f"{text} {name}")
    if mutates_args != "unknown":
        unknown = set(mutates_args) - set(signature.parameters)
        if unknown:
            raise ValueError(f"[infer_schema] expected names of parameters in mutates_args, got {sorted(unknown)}")
    if "return" not in hints and signature.return_annotation is signature.empty:
        raise ValueError("[infer_schema] expected an annotation for the result, got none")
    returns = _return_text(hints.get("return"))
    return f"{op_name or ''}({', '.join(parts)}) -> {returns}"


# ---------------------------------------------------------------------------------------------- custom_op


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Any,
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Decorator: make a function an operator, opaque to tracing. See `CustomOpDef` for what to register on it."""

    def make(function: Callable[..., Any]) -> CustomOpDef:
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        return CustomOpDef(*_split(name), text, function, device_types, tags or ())

    return make if fn is None else make(fn)


class CustomOpDef:
    """An operator made by `custom_op`; calling it calls the operator."""

    def __init__(
        self, namespace: str, name: str, schema: str, fn: Callable[..., Any], device_types: Any = None, tags: Any = ()
    ) -> None:
        self._namespace, self._name, self._init_fn = namespace, name, fn
        self._qualname = f"{namespace}::{name}"
        self._schema = schema
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._disabled: set[str] = set()
        self._fake: Callable[..., Any] | None = None
        previous = OPDEFS.get(self._qualname)
        if previous is not None:
            previous._lib._destroy()  # type: ignore[has-type]
        self._lib = Library(namespace, "FRAGMENT")
        self._lib.define(name + schema, tags=tags)
        self._opoverload: _ops.OpOverload = _C._operator_object(self._qualname)
        self._lib._set(self._qualname, _ops.META, self._run_fake, False, False)
        self.register_kernel(device_types)(fn)
        OPDEFS[self._qualname] = self
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register the kernel for device types ("cpu", or a list); None for all that have none of their own."""

        def register(function: Callable[..., Any]) -> None:
            for device in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
                self._kernels[device] = function
                kernel = functools.partial(self._run, device)
                if device is None:
                    for number in _ops.BACKENDS:
                        if number != _ops.META:
                            self._lib._set(self._qualname, number, kernel, False, True)
                else:
                    self._lib._set(self._qualname, _ops.dispatch_key(device), kernel, False, False)

        return _decorated(register, fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what computes only shapes and dtypes."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register the derivative; see `library.register_autograd`."""
        register_autograd(self._qualname, backward, setup_context=setup_context, lib=self._lib)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        return register_vmap(self._qualname, func)

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: Callable[..., Any] | None = None, /) -> Any:
        return register_torch_dispatch(self._qualname, torch_dispatch_class, fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        register_autocast(self._qualname, device_type, cast_inputs, lib=self._lib)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Switch the kernel of a device off (the one for all devices serves it instead) or on, in a `with` block."""
        before = set(self._disabled)
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            self._disabled = before

    def _run(self, device: str | None, *args: Any, **kwargs: Any) -> Any:
        function = self._init_fn if device in self._disabled else self._kernels[device]
        written = list(_tensors(self._written(args, kwargs)))
        versions = [0 if t.is_inference() else t._version for t in written]
        result = function(*args, **kwargs)
        for t, version in zip(written, versions):
            # What wrote past the operators, through NumPy or a pointer, has to be seen by autograd all the same.
            if not t.is_inference() and t._version == version:
                t._bump_version()
        inputs = {id(t) for t in _tensors(args)} | {id(t) for t in _tensors(kwargs.values())}
        if any(id(t) in inputs for t in _tensors([result])):
            raise RuntimeError(
                f"[{self._qualname}] expected results that are new tensors, got one of the inputs from "
                f"{function.__module__}.{function.__qualname__}; clone() what is returned"
            )
        return result

    def _written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments that the schema says are written."""
        formals = self._opoverload._schema.arguments
        bound = {**dict(zip((a.name for a in formals), args)), **kwargs}
        return [bound[a.name] for a in formals if a.is_written and a.name in bound]

    def _run_fake(self, *args: Any, **kwargs: Any) -> Any:
        if self._fake is not None:
            return self._fake(*args, **kwargs)
        if not self._opoverload._schema.returns:
            return None
        raise NotImplementedError(
            f"[{self._qualname}] expected a function for tensors without data, got none; add one with register_fake"
        )


OPDEFS: dict[str, CustomOpDef] = {}


def _tensors(values: Iterable[Any]) -> Iterator[flambeau.Tensor]:
    for value in values:
        if isinstance(value, flambeau.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


# ---------------------------------------------------------------------------------------------- fake kernels' context


class FakeImplCtx:
    """What a fake kernel may ask for."""

    def __init__(self, new_symbol: Callable[[int, Any], Any] | None = None) -> None:
        self._new_symbol = new_symbol

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that depends on data. Without symbolic shapes the smallest one stands for it."""
        return min if self._new_symbol is None else self._new_symbol(min, max)

    create_unbacked_symint = new_dynamic_size


_context = threading.local()


def get_ctx() -> FakeImplCtx:
    """The context of the running fake kernel."""
    current = getattr(_context, "current", None)
    return FakeImplCtx() if current is None else current


def run_fake(full_name: str, new_symbol: Callable[[int, Any], Any], args: Any, kwargs: Any) -> Any:
    """What the fake kernel of an operator returns; NotImplemented where it has none in Python."""
    kernel = _meta_kernels.get(full_name)
    if kernel is None:
        return NotImplemented
    before = getattr(_context, "current", None)
    _context.current = FakeImplCtx(new_symbol)
    try:
        return kernel(*args, **kwargs)
    finally:
        _context.current = before


def wrap_triton(triton_kernel: Callable[..., Any], /) -> Any:
    """The kernel itself: what is called inside of an operator is not looked into."""
    return triton_kernel


def __getattr__(name: str) -> Any:
    if name == "opcheck":
        from flambeau.testing._opcheck import opcheck

        return opcheck
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
