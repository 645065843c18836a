"""Operators as objects: `ops.aten.add` (a packet of overloads), `ops.aten.add.Tensor` (one of them) and their schemas.

Objects are made when they are first looked up or first reach a handler, one for each operator. The private operators of
the records are functions of this module too. A few operators have a different name here and in ATen; `_ATEN_NAMES`
holds the pairs.
"""

from __future__ import annotations

import os

from flambeau import _C

TYPE_CHECKING = False  # importing typing would double the time the package takes to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar

# Ours on the left, ATen's on the right, as `name.overload`.
_ATEN_NAMES = {name: f"{name}.{overload}" for name, overload in _C._aten_overloads().items()}
_OWN_NAMES = {aten: own for own, aten in _ATEN_NAMES.items()}

# An overload that takes a tensor or a number stands for the overloads ATen has for each.
_STANDS_FOR = {
    "Scalar": ("Tensor", "Tensor_Scalar", ""),
    "Tensor": ("Scalar", ""),
    "Tensor_Tensor": ("Tensor", ""),
    "Tensor_Scalar": ("Tensor", "Tensor_Tensor", ""),
    "self": ("Tensor",),
    "ScalarSelf": ("Tensor",),
    "ScalarOther": ("Tensor",),
    "int": ("",),
    "dim_IntList": ("dim", ""),
    "dim": ("dim_IntList", ""),
    "dimname": (),
}

# Overloads of ATen that records may have joined into one.
_ATEN_OVERLOADS = frozenset(
    "Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor int dim dims dim_IntList dim_int dim_dim correction value "
    "src self memory_format low start start_step sections indices using_ints Tensor_mode Scalar_mode list vec float "
    "str ScalarList_dim ScalarOpt_dim ScalarOpt_dim_dtype stable generator input dtype_layout".split()
)

_VIEW, _INPLACE, _OUT = 1, 2, 4  # flags of operators, as csrc/dispatch/operator.h has them


# ---------------------------------------------------------------------------------------------- schemas


class JitType:
    """The type of an argument or result; prints as TorchScript's types do."""

    _NAMES: ClassVar[dict[str, str]] = {
        "Tensor": "Tensor", "Tensor|Scalar": "Tensor", "Scalar": "number", "dtype": "Optional[int]", "SymInt": "SymInt",
        "ScalarType": "int", "device": "Device", "layout": "int", "memory_format": "int", "any": "Any",
    }  # fmt: skip

    def __init__(self, text: str) -> None:
        self.text = text

    def isOptional(self) -> bool:
        return self.text.endswith("?")

    def getElementType(self) -> JitType:
        return JitType(self.text[:-1] if self.isOptional() else self.text[: self.text.rindex("[")])

    def kind(self) -> str:
        if self.isOptional():
            return "OptionalType"
        if self.text.endswith("]"):
            return "ListType"
        kinds = {"Tensor": "TensorType", "Tensor|Scalar": "TensorType", "Scalar": "NumberType", "str": "StringType"}
        return kinds.get(self.text, f"{self.text.capitalize()}Type")

    def __str__(self) -> str:
        if self.isOptional():
            return f"Optional[{self.getElementType()}]"
        if self.text.endswith("]"):
            return f"List[{self.getElementType()}]"
        return self._NAMES.get(self.text, self.text)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class AliasInfo:
    """Which memory an argument or result refers to, and whether the operator writes it."""

    def __init__(self, names: set[str], is_write: bool) -> None:
        self.before_set = self.after_set = names
        self.is_write = is_write

    def __repr__(self) -> str:
        return f"({'|'.join(sorted(self.before_set))}{'!' if self.is_write else ''})"


class SchemaArgument:
    """One argument or result of a schema."""

    def __init__(
        self, name: str, kind: str, default: Any, has_default: bool, kwarg_only: bool, alias: AliasInfo | None
    ) -> None:
        self.name = name
        self.type = self.real_type = JitType(kind)
        self.default_value = default
        self.kwarg_only = kwarg_only
        self.alias_info = alias
        self.N = None
        self._has_default = has_default

    @property
    def is_written(self) -> bool:
        """Whether the operator writes to the argument."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        return self.kwarg_only and self.is_written

    def has_default_value(self) -> bool:
        return self._has_default

    def __repr__(self) -> str:
        kind = self.type.text.replace("Tensor|Scalar", "Tensor")
        text = (
            f"{kind.replace('Tensor', f'Tensor{self.alias_info}', 1) if self.alias_info else kind} {self.name}".strip()
        )
        return f"{text}={_default_text(self.default_value)}" if self._has_default else text


def _default_text(value: Any) -> str:
    """A default as schemas print it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{int(value)}."
    return f'"{value}"' if isinstance(value, str) else str(value)


class FunctionSchema:
    """An operator's signature: name, overload_name, arguments and returns."""

    def __init__(
        self, name: str, overload_name: str, arguments: list[SchemaArgument], returns: list[SchemaArgument]
    ) -> None:
        self.name = name
        self.overload_name = overload_name
        self.arguments = arguments
        self.returns = returns
        self.is_mutable = any(a.is_written for a in arguments)

    def __str__(self) -> str:
        parts = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(repr(argument))
        results = ", ".join(repr(r).strip() for r in self.returns)
        head = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{head}({', '.join(parts)}) -> {results if len(self.returns) == 1 else f'({results})'}"

    __repr__ = __str__


def _default_value(text: str, kind: str) -> Any:
    """A default as written in a schema, as a Python value."""
    import ast

    named = {"contiguous_format": _C.contiguous_format, "preserve_format": _C.preserve_format, "strided": _C.strided}
    if text in named:
        return named[text]
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return getattr(_C, text, text)
    if kind.startswith("float") and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def _read_item(text: str, fresh: Iterator[str], kwarg_only: bool = False) -> SchemaArgument:
    head, equals, default = text.partition("=")
    kind, _, name = head.strip().rpartition(" ")
    if not kind:  # a result without a name
        kind, name = head.strip(), ""
    alias = None
    if "(" in kind:
        start, end = kind.index("("), kind.index(")")
        inside = kind[start + 1 : end]
        kind = kind[:start] + kind[end + 1 :]
        letters = inside.split("->")[0].replace("!", "").strip()
        alias = AliasInfo(set(letters.split("|")) if letters else {next(fresh)}, "!" in inside)
    return SchemaArgument(
        name, kind, _default_value(default.strip(), kind) if equals else None, bool(equals), kwarg_only, alias
    )


def read_schema(text: str, flags: int = 0) -> FunctionSchema:
    """The signature written in a schema's text; flags add the aliases that records leave unsaid."""
    from flambeau.ops.schema import split

    head, arrow, results = text.rpartition("->")
    if not arrow:
        raise RuntimeError(f"[schema] expected name(args) -> type, got {text!r}")
    full, _, inside = head.strip().partition("(")
    name, _, overload = full.strip().partition(".")
    fresh = iter("abcdefghijklmnopqrstuvwxyz")
    arguments: list[SchemaArgument] = []
    keyword_only = False
    for part in split(inside.rstrip()[:-1]):
        if part == "*":
            keyword_only = True
        else:
            arguments.append(_read_item(part, fresh, keyword_only))
    results = results.strip()
    if results.startswith("(") and results.endswith(")"):
        results = results[1:-1]
    returns = [_read_item(part, iter("abcdefghijklmnopqrstuvwxyz")) for part in split(results) if part != "None"]
    if flags & _VIEW and arguments and arguments[0].alias_info is None:
        arguments[0].alias_info = AliasInfo({"a"}, False)
        for result in returns:
            result.alias_info = AliasInfo({"a"} if not result.type.text.endswith("]") else set(), False)
    written = [a for a in arguments if a.is_written]
    if "::" not in name and written and all(r.alias_info is None for r in returns):
        for result, source in zip(returns, written):
            result.alias_info = AliasInfo(set(source.alias_info.before_set), True)  # type: ignore[union-attr]
    return FunctionSchema(name, overload, arguments, returns)


# ---------------------------------------------------------------------------------------------- overloads


class OpOverload(_C._OpBase):
    """One operator overload; calling it goes through the dispatcher. There is one object for each operator."""

    def __init__(self, full_name: str) -> None:
        text, flags, base = _C._operator_info(self)
        self._full_name = full_name
        self._flags = flags
        self._schema = read_schema(text, flags)
        shown = _ATEN_NAMES.get(full_name, full_name)
        space, colons, rest = shown.rpartition("::")
        self.namespace = space if colons else "aten"
        self._opname, _, overload = rest.partition(".")
        if flags & _OUT and base is not None:
            overload = _shown_out_overload(overload)
        self._overloadname = overload or "default"
        self._schema.name = f"{self.namespace}::{self._opname}"
        self._schema.overload_name = overload
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"torch._ops.{self.namespace}"
        self._tags: list[Any] | None = None

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        return getattr(namespace(self.namespace), self._opname)

    _overloadpacket = overloadpacket

    @property
    def tags(self) -> list[Any]:
        """What is known of the operator, as members of `Tag`."""
        if self._tags is None:
            from flambeau.ops.as_aten import tags as aten_tags

            flags = self._flags
            self._tags = (
                aten_tags.tags(self._full_name, self._opname, bool(flags & _INPLACE), bool(flags & _OUT))
                if self.namespace == "aten"
                else []
            )
        return self._tags

    @tags.setter
    def tags(self, tags: list[Any]) -> None:
        self._tags = tags

    @property
    def _defined_in_python(self) -> bool:
        return self.namespace != "aten"

    @property
    def is_view(self) -> bool:
        return bool(self._flags & _VIEW)

    def name(self) -> str:
        """`namespace::name.overload`."""
        overload = self._schema.overload_name
        return f"{self._schema.name}.{overload}" if overload else self._schema.name

    def op(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    _op = op

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether a kernel is registered for exactly this key."""
        return _C._has_kernel(self, dispatch_key(key))

    def has_kernel_for_any_dispatch_key(self, keys: Any) -> bool:
        return any(_C._has_kernel(self, k) for k in range(32) if int(keys) >> k & 1)

    def redispatch(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel of the highest key in a key set."""
        return _C._call_with_keys(self, int(keys), *args, **kwargs)

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """The result computed by the operator's definition in terms of other operators; NotImplemented without one."""
        result = _C._call_with_keys(self, 1 << COMPOSITE, *args, **kwargs)
        if result is NotImplemented:
            from flambeau.ops.rules import definition

            function = definition.find(self._full_name)
            return NotImplemented if function is None else function(*args, **kwargs)
        return result

    def py_impl(self, key: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: a Python kernel for a dispatch key."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            _C._set_kernel(self._full_name, dispatch_key(key), function)
            return function

        return register

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> Any:
        return _C._operator_object, (self._full_name,)

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self


def _shown_out_overload(overload: str) -> str:
    """ATen calls the out= form of `Tensor` (and of a lone overload) `out`."""
    return "out" if overload in ("Tensor_out", "out", "") else overload


class OpOverloadPacket:
    """All overloads of an operator; calling it picks the one that the arguments fit."""

    def __init__(self, space: str, name: str, names: list[str]) -> None:
        self._namespace = space
        self.__name__ = name
        self.__module__ = f"torch._ops.{space}"
        self._qualified_op_name = f"{space}::{name}"
        self._names = names
        functional = [n for n in names if not (_C._operator_info(n)[1] & _OUT)]
        self._function = _C._make_packet(name, self.__module__, functional or names)

    def overloads(self) -> list[str]:
        """Names of the overloads; the unnamed one is called `default`."""
        return [_C._operator_object(n)._overloadname for n in self._names]

    @property
    def op(self) -> Callable[..., Any]:
        return self

    @property
    def _schemas(self) -> dict[str, FunctionSchema]:
        return {_C._operator_object(n)._schema.overload_name: _C._operator_object(n)._schema for n in self._names}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        full = self._find(overload)
        if full is None:
            raise AttributeError(
                f"The underlying op of '{self._namespace}.{self.__name__}' has no overload name '{overload}'; "
                f"it has {', '.join(self.overloads())}"
            )
        native_operator = _C._operator_object(full)
        setattr(self, overload, native_operator)
        return native_operator

    def _find(self, overload: str) -> str | None:
        by_name = {_C._operator_object(n)._overloadname: n for n in reversed(self._names)}
        if overload in by_name:
            return by_name[overload]
        for other in _STANDS_FOR.get(overload, ()):
            if (other or "default") in by_name:
                return by_name[other or "default"]
        # Records need not split an operator into the overloads that ATen has.
        plain = [n for n in self._names if not (_C._operator_info(n)[1] & _OUT)]
        outs = [n for n in self._names if _C._operator_info(n)[1] & _OUT]
        if overload == "default":
            return (plain or self._names)[0]
        if overload == "out" or overload.endswith("_out"):
            return outs[0] if len(outs) == 1 else None
        return plain[0] if len(plain) == 1 and self._namespace == "aten" and overload in _ATEN_OVERLOADS else None

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverloadPacket) and self._qualified_op_name == other._qualified_op_name

    def __reduce__(self) -> Any:
        return _find_packet, (self._namespace, self.__name__)

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self


def _find_packet(space: str, name: str) -> OpOverloadPacket:
    return getattr(namespace(space), name)


class _OpNamespace:
    """`ops.<name>`: operators by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = name

    def __getattr__(self, op: str) -> OpOverloadPacket:
        if op.startswith("__"):
            raise AttributeError(op)
        names = _packets(self.name).get(op) or _registered(self.name).get(op)
        if not names:
            other = _python_function(self.name, op)
            if other is None:
                raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op}'")
            setattr(self, op, other)
            return other
        packet = OpOverloadPacket(self.name, op, names)
        setattr(self, op, packet)
        return packet

    def __dir__(self) -> list[str]:
        return sorted(_packets(self.name))

    def __iter__(self) -> Iterator[str]:
        return iter(dir(self))

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}'>"


_namespaces: dict[str, _OpNamespace] = {}
_tables: dict[str, dict[str, list[str]]] = {}  # namespace -> packet -> full names


def _packets(space: str) -> dict[str, list[str]]:
    """Full names of the operators of a namespace by packet, in the order of definition."""
    if not _tables:
        for text in _C._list_operators():
            _enter(text.partition("(")[0].strip())
    return _tables.get(space, {})


# Namespaces whose operators are Python functions, and the modules that register them when one is first asked for.
_ON_DEMAND = {
    "profiler": "flambeau.autograd.profiler",
    "quantized_decomposed": "flambeau.ao.quantization.graphs.decomposed",
}


def _registered(space: str) -> dict[str, list[str]]:
    """The operators of a namespace that is registered on demand."""
    module = _ON_DEMAND.pop(space, None)
    if module is None:
        return {}
    import importlib

    importlib.import_module(module).register_operators()
    return _packets(space)


# Namespaces whose functions are Python's, and the modules that find them by name.
_IN_PYTHON = {"aten": "flambeau.ops.as_aten.names", "quantized": "flambeau.ao.quantized_operators"}


def _python_function(space: str, op: str) -> Any:
    import importlib

    return importlib.import_module(_IN_PYTHON[space]).find(op) if space in _IN_PYTHON else None


def _enter(full: str) -> None:
    space, colons, rest = _ATEN_NAMES.get(full, full).rpartition("::")
    _tables.setdefault(space if colons else "aten", {}).setdefault(rest.partition(".")[0], []).append(full)


def forget(full: str | None = None) -> None:
    """Look operators up again: some were defined or removed since."""
    _tables.clear()
    for space in _namespaces.values():
        for name in [n for n in vars(space) if n not in ("name", "__name__")]:
            if (
                full is None
                or space.name + "::" + name == (full if "::" in full else f"aten::{full}").partition(".")[0]
            ):
                delattr(space, name)


def namespace(name: str) -> _OpNamespace:
    if name not in _namespaces:
        _namespaces[name] = _OpNamespace(name)
    return _namespaces[name]


loaded_libraries: set[str] = set()


def load_library(path: str | os.PathLike[str]) -> None:
    """Load a shared library whose static initialisers register operators."""
    full = os.path.realpath(path)
    import ctypes

    ctypes.CDLL(full)
    loaded_libraries.add(full)
    forget()


def import_module(name: str) -> None:
    """Import a Python module that registers operators."""
    import importlib

    importlib.import_module(name)


def special_or_namespace(name: str) -> Any:
    """What `ops.<name>` is: one of the few functions there, or a namespace."""
    if name == "higher_order":
        from flambeau._higher_order_ops import operators

        return operators.namespace
    return globals()[name] if name in ("load_library", "loaded_libraries", "import_module") else namespace(name)


def resolve(name: str) -> str:
    """Our full name of an operator given as `ns::op.overload`, `op.overload` or an OpOverload; raises when unknown."""
    if isinstance(name, OpOverload):
        return name._full_name
    if isinstance(name, OpOverloadPacket):
        name = name._qualified_op_name
    plain = name.removeprefix("aten::")
    for candidate in (plain, plain.removesuffix(".default"), _OWN_NAMES.get(plain, "")):
        if candidate and _C._operator_exists(candidate):
            return candidate
    space, colons, rest = name.rpartition("::")
    op, _, overload = rest.partition(".")
    packet = getattr(namespace(space if colons else "aten"), op, None)
    operator = packet._find(overload or "default") if packet is not None else None
    if operator is None:
        raise RuntimeError(f"[library] expected a defined operator, got {name!r}")
    return operator


# ---------------------------------------------------------------------------------------------- dispatch keys

META, CUDA, PYTHON, AUTOGRAD, AUTOCAST, FUNCTIONALIZE, COMPOSITE = 1, 2, 16, 17, 18, 19, 31
BACKENDS = range(11)  # keys of devices: the built-in three, and those registered

_KEY_NAMES = {
    "CPU": 0,
    "Meta": META,
    "CUDA": CUDA,
    "Python": PYTHON,
    "PythonDispatcher": PYTHON,
    "Autograd": AUTOGRAD,
    "AutogradCPU": AUTOGRAD,
    "AutogradCUDA": AUTOGRAD,
    "AutogradMeta": AUTOGRAD,
    "AutogradPrivateUse1": AUTOGRAD,
    "AutogradOther": AUTOGRAD,
    "AutogradFunctionality": AUTOGRAD,
    "Autocast": AUTOCAST,
    "AutocastCPU": AUTOCAST,
    "AutocastCUDA": AUTOCAST,
    "AutocastXPU": AUTOCAST,
    "AutocastPrivateUse1": AUTOCAST,
    "Functionalize": FUNCTIONALIZE,
    "Conjugate": 21,
    "Negative": 22,
    "CompositeImplicitAutograd": COMPOSITE,
}


def dispatch_key(name: Any) -> int:
    """Number of a dispatch key given by its name, a device's name or its number."""
    if isinstance(name, int):
        return name
    text = getattr(name, "name", None) or getattr(name, "type", None) or str(name)
    if text in _KEY_NAMES:
        return _KEY_NAMES[text]
    if text == "PrivateUse1":
        from flambeau import backends

        return backends.private_use_key()
    try:
        return _C._device_key(text.lower())
    except RuntimeError:
        raise RuntimeError(f"[library] expected a dispatch key or the name of a device, got {text!r}") from None


class DispatchKeySet(int):
    """A set of dispatch keys; bit n is key n. Made from such bits, or from one member of `DispatchKey`."""

    def __new__(cls, keys: Any = 0) -> DispatchKeySet:
        return super().__new__(cls, 1 << int(keys) if hasattr(keys, "name") else int(keys))

    def has(self, key: Any) -> bool:
        return bool(self >> dispatch_key(key) & 1)

    def add(self, key: Any) -> DispatchKeySet:
        return DispatchKeySet(self | 1 << dispatch_key(key))

    def remove(self, key: Any) -> DispatchKeySet:
        return DispatchKeySet(self & ~(1 << dispatch_key(key)))

    def __or__(self, other: int) -> DispatchKeySet:
        return DispatchKeySet(int(self) | int(other))

    def __and__(self, other: int) -> DispatchKeySet:
        return DispatchKeySet(int(self) & int(other))


class _KeyGuard:
    """Includes or excludes dispatch keys from its construction until `__exit__` or deletion."""

    _swap: Callable[[int], int]
    _position: int
    _held = False

    def __init__(self, keys: Any) -> None:
        bits = int(keys) if isinstance(keys, DispatchKeySet) else 1 << dispatch_key(keys)
        self._before = _C._local_keys()[self._position]
        self._swap(self._before | bits)
        self._held = True

    def __enter__(self) -> _KeyGuard:
        return self

    def __exit__(self, *error: object) -> None:
        if self._held:
            self._held = False
            self._swap(self._before)

    def __del__(self) -> None:
        self.__exit__()


class ExcludeKeys(_KeyGuard):
    _swap, _position = staticmethod(_C._swap_excluded_keys), 1


class IncludeKeys(_KeyGuard):
    _swap, _position = staticmethod(_C._swap_included_keys), 0


class DisableTorchDispatch(ExcludeKeys):
    """While it lives, subclasses and modes do not see operators."""

    def __init__(self) -> None:
        super().__init__(PYTHON)


class AutoDispatchBelowAutograd(ExcludeKeys):
    """While it lives, nothing is recorded for backward."""

    def __init__(self) -> None:
        super().__init__(DispatchKeySet(1 << AUTOGRAD))


# Programs look for these beside the native functions.
vars(_C).update(
    _ExcludeDispatchKeyGuard=ExcludeKeys, _IncludeDispatchKeyGuard=IncludeKeys, _DisableTorchDispatch=DisableTorchDispatch,
    _AutoDispatchBelowAutograd=AutoDispatchBelowAutograd, DispatchKeySet=DispatchKeySet,
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "HigherOrderOperator":
        from flambeau._higher_order_ops.operators import HigherOrderOperator

        return HigherOrderOperator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
