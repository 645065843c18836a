"""Functions that mean something special while capturing: built-ins, operators as functions, switches of the thread."""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import enum
import functools
import itertools
import json
import logging
import operator
import re
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import (
    arrays,
    attributes,
    breaks,
    classes,
    gradients,
    mappings,
    new_modules,
    opaque,
    overriding,
    sequences,
    subgraphs,
    wrappers,
)
from flambeau._dynamo.arrays import TracedArray
from flambeau._dynamo.breaks import SkipFrame, Unsupported, UserError
from flambeau._dynamo.calls import SPECIAL, call, call_with_hooks
from flambeau._dynamo.effects import Printed
from flambeau._dynamo.kinds import CONSTANTS, LITERALS, fl_module, is_mutable_class, lookup_type
from flambeau._dynamo.operations import (
    _COMPARISONS,
    _INPLACE,
    _OPERATORS,
    _sort,
    binary,
    compare,
    contains,
    identical,
    store_subscript,
    subscript,
    to_text,
    truth,
    unary,
)
from flambeau._dynamo.sizes import SymbolicSize, SymBool, SymInt, plain
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import NULL, TracedTensor
from flambeau._dynamo.values import (
    Identity,
    _is_text_safe,
    _plain_text,
    advance,
    is_plain,
    iterable,
    iterable_list,
    iterate,
    iterated,
    native,
    python_special,
    real_type,
)
from flambeau.ops.geometry import same_all


def _isinstance(tracer: Tracer, value: Any, classes: Any) -> bool:
    if type(value) is TracedTensor:
        if value.real is not None:
            return bool(native(isinstance, value.real, classes))
        if value.cls is not _C.Tensor:
            return bool(native(issubclass, value.cls, classes))
        return bool(native(isinstance, _EMPTY, classes))
    cls = real_type(value)
    _guard_registrations(tracer, cls, classes)
    if not isinstance(classes, tuple):
        return _is_instance_of(tracer, value, cls, classes)
    return any(_isinstance(tracer, value, candidate) for candidate in classes)


def _is_instance_of(tracer: Tracer, value: Any, cls: type, candidate: Any) -> bool:
    """isinstance() with one class, whose metaclass may have an opinion of its own."""
    meta = type(candidate)
    hook = lookup_type(meta, "__instancecheck__")
    own = isinstance(hook, types.FunctionType) and meta is not abc.ABCMeta
    if own and meta.__module__.partition(".")[0] not in ("flambeau", "typing", "enum"):
        tracer.outside.guard_type_attribute(meta, "__instancecheck__")
        return cls is candidate or truth(tracer, tracer.call(hook, (candidate, value), {}))
    if cls is not type(value):
        return bool(native(issubclass, cls, candidate))
    return bool(native(isinstance, value, candidate))


@dataclasses.dataclass(frozen=True)
class _SubclassOf:
    """Asks an abstract class, at each check of the guards, whether a class is registered with it."""

    cls: type

    def __call__(self, candidate: Any) -> bool:
        return issubclass(self.cls, candidate)


def _guard_registrations(tracer: Tracer, cls: type, classes: Any) -> None:
    """Classes may be registered with an abstract class later, which changes neither."""
    for candidate in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(candidate, tuple):
            _guard_registrations(tracer, cls, candidate)
            continue
        fixed = candidate.__module__ == "collections.abc" and not is_mutable_class(cls)
        if isinstance(candidate, abc.ABCMeta) and candidate not in cls.__mro__ and not fixed:
            place = tracer.outside.sources.constant(candidate).apply(_SubclassOf(cls))
            place.check("equals", native(issubclass, cls, candidate))


def _issubclass(tracer: Tracer, cls: Any, classes: Any) -> bool:
    if isinstance(cls, type):
        _guard_registrations(tracer, cls, classes)
    return bool(native(issubclass, cls, classes))


_EMPTY = _C.Tensor()


def _type(tracer: Tracer, *args: Any) -> Any:
    if len(args) != 1:
        return classes.make_type(tracer, *args)
    return real_type(args[0])


def _len(tracer: Tracer, value: Any) -> Any:
    hook = lookup_type(type(value), "__len__")
    if type(value) is TracedArray:
        return arrays.length(value)
    if isinstance(hook, types.FunctionType) and type(value) is not TracedTensor:
        return tracer.call_special(value, "__len__")
    if type(value) is TracedTensor and value.fake.ndim:
        return value.fake.shape[0]
    if id(value) in tracer.outside.known and type(value) not in CONSTANTS:
        if hook is NULL:
            raise UserError(TypeError(f"object of type '{type(value).__name__}' has no len()"))
        if isinstance(value, dict):
            return len(mappings.contents(tracer, value))
        if sequences.is_sequence(tracer, value):
            return len(sequences.contents(tracer, value))
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"len of {type(value).__name__}")
    return native(len, value)


def _getattr(tracer: Tracer, value: Any, name: str, *default: Any) -> Any:
    if not isinstance(name, str):
        raise UserError(TypeError("attribute name must be string, not '" + type(name).__name__ + "'"))
    try:
        return attributes.load(tracer, value, name)
    except UserError as error:
        if default and isinstance(error.exception, AttributeError):
            return default[0]
        raise


def _hasattr(tracer: Tracer, value: Any, name: str) -> bool:
    if type(value) is TracedTensor and lookup_type(_C.Tensor, name) is not NULL:
        tracer.outside.tensor_members[name] = None
        return True
    try:
        attributes.load(tracer, value, name)
    except UserError as error:
        if isinstance(error.exception, AttributeError):
            return False
        raise
    return True


def _setattr(tracer: Tracer, value: Any, name: str, new: Any) -> None:
    attributes.store(tracer, value, name, new)


def _delattr(tracer: Tracer, value: Any, name: str) -> None:
    attributes.store(tracer, value, name, NULL)


def _iter(tracer: Tracer, value: Any, *sentinel: Any) -> Any:
    if sentinel:
        raise Unsupported(breaks.UNKNOWN_CALL, "iter() with two arguments")
    return iterate(tracer, value)


def _next(tracer: Tracer, iterator: Any, *default: Any) -> Any:
    try:
        return advance(tracer, iterator)
    except UserError as error:
        if default and isinstance(error.exception, StopIteration):
            return default[0]
        raise


def _super(tracer: Tracer, *args: Any) -> Any:
    if not args:
        frame = tracer.frame
        code = frame.code
        names = code.co_freevars
        if not code.co_argcount and not code.co_flags & 0x04:
            raise UserError(RuntimeError("super(): no arguments"))
        if "__class__" not in names:
            raise UserError(RuntimeError("super(): __class__ cell not found"))
        cell = frame.locals[len(frame.locals) - len(names) + names.index("__class__")]
        cls = frame.cell_value(cell, "__class__")
        first = frame.locals[0]
        first = (
            frame.cell_value(first, code.co_varnames[0]) if isinstance(first, types.CellType) else frame.load_local(0)
        )
        return native(super, cls, first)
    return native(super, *args)


def _print(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
    args = tuple(_plain_text(a) for a in args)
    if kwargs.get("file") is not None:
        raise Unsupported(breaks.PRINT, "print to a file")
    shown = tuple(_copy_text(tracer, a) for a in args)
    tracer.effects.printed.append(Printed(print, shown, kwargs))


def _copy_text(tracer: Tracer, value: Any) -> Any:
    """What is printed after the graph: text as it is now, in case a container changes before, and copies of tensors."""
    if type(value) in LITERALS:
        return value
    if type(value) is TracedTensor:
        if value.fake.requires_grad or value.cls is not _C.Tensor:
            raise Unsupported(breaks.PRINT, "print of a tensor with history")
        return tracer.builder.call_method("clone", (value,), {})
    if type(value) is TracedArray:
        return TracedArray(tracer, tracer.builder.call_method("clone", (value.tensor,), {}), value.scalar)
    if not _is_text_safe(value):
        raise Unsupported(breaks.PRINT, "print")
    return str(value)


def _sum(tracer: Tracer, values: Any, start: Any = 0) -> Any:
    total = start
    if isinstance(start, (str, bytes)):
        return native(sum, values, start)
    for item in iterated(tracer, values):
        total = binary(tracer, "+", total, item)
    return total


def _float_sum(tracer: Tracer, values: Any, start: Any = 0) -> Any:
    values = sequences.opened(tracer, values)
    # Python 3.12 adds floats with compensation: leave numbers to it.
    if isinstance(values, (list, tuple)) and all(type(v) in (int, float, bool) for v in values):
        return native(sum, values, start)
    return _sum(tracer, values, start)


def _any_all(stop: bool) -> Callable[..., bool]:
    def run(tracer: Tracer, values: Any) -> bool:
        return next((stop for item in iterated(tracer, values) if truth(tracer, item) is stop), not stop)

    return run


def _extreme(symbol: str, function: Any) -> Callable[..., Any]:
    sizes = {min: fl.sym_min, max: fl.sym_max}

    def run(tracer: Tracer, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        if len(args) == 1:
            items = list(iterable_list(tracer, args[0]))
            if not items and "default" in kwargs:
                return kwargs["default"]
        else:
            items = list(args)
        if not items:
            return native(function, items)
        best = items[0]
        best_key = best if key is None else call(tracer, key, (best,), {})
        for item in items[1:]:
            item_key = item if key is None else call(tracer, key, (item,), {})
            better = compare(tracer, symbol, item_key, best_key)
            if (
                type(better) is SymBool and better.hint is None and key is None
            ):  # no size is known: not to be decided here
                best = best_key = sizes[function](item, best)
            elif type(better) is TracedTensor and key is None and tracer.builder.sizes.mode.allows_scalars:
                best = best_key = tracer.builder.call_function(fl.where, (better, item, best), {})
            elif truth(tracer, better):
                best, best_key = item, item_key
        return best

    return run


def _sorted(tracer: Tracer, values: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    items = iterable_list(tracer, values)
    _sort(tracer, items, key, reverse)
    return items


def _reduce(tracer: Tracer, function: Any, values: Any, *initial: Any) -> Any:
    items = iterable_list(tracer, values)
    if not items and not initial:
        return native(functools.reduce, operator.add, items)
    items = [*initial, *items]
    total = items[0]
    for item in items[1:]:
        total = call(tracer, function, (total, item), {})
    return total


def _operator(symbol: str) -> Callable[..., Any]:
    return lambda tracer, left, right: binary(tracer, symbol, left, right)


def _comparison(symbol: str) -> Callable[..., Any]:
    return lambda tracer, left, right: compare(tracer, symbol, left, right)


def _unary(function: Any, name: str) -> Callable[..., Any]:
    return lambda tracer, value: unary(tracer, function, name, value)


def _hash(tracer: Tracer, value: Any) -> Any:
    value = _plain_text(value)
    if python_special(type(value), "__hash__"):
        return tracer.call_special(value, "__hash__")
    if type(value) in LITERALS or (isinstance(value, (tuple, frozenset)) and _is_text_safe(value)):
        return native(hash, value)
    raise Unsupported(breaks.IDENTITY, "hash")


def _callable(tracer: Tracer, value: Any) -> bool:
    return callable(value) if type(value) is not TracedTensor else False


def _format(tracer: Tracer, value: Any, spec: str = "") -> Any:
    if (
        type(value) is not TracedTensor
        and python_special(type(value), "__format__")
        and not isinstance(value, enum.Enum)
    ):
        return tracer.call_special(value, "__format__", spec)
    value = _plain_text(value)
    if _is_text_safe(value):
        return native(format, value, spec)
    if not spec and lookup_type(type(value), "__format__") is object.__format__:
        return to_text(tracer, value, str)
    raise Unsupported(breaks.PRINT, f"text of {real_type(value).__name__}")


# Mixed precision: switches of the thread's state, and questions about it that guards answer for the start.
AUTOCAST_SWITCHES = (
    _C._set_autocast_enabled, _C._set_autocast_dtype, _C._set_autocast_cache_enabled, _C._autocast_increment_nesting,
    _C._autocast_decrement_nesting, _C._clear_autocast_cache,
)  # fmt: skip
_STATES = (_C._is_autocast_enabled, _C._get_autocast_dtype, _C._is_autocast_cache_enabled)


_OVERRIDE_QUESTIONS = (_C._has_torch_function_unary, _C._has_torch_function_variadic)


def _has_overrides(tracer: Tracer, *values: Any) -> bool:
    return overriding.has_overrides(tracer, values)


def _mode(function: Any) -> Callable[..., Any]:
    return lambda tracer, *args: tracer.builder.set_mode(function, *args)


def _set_inference(tracer: Tracer, on: Any) -> bool:
    """Inference mode inside of the function: what graphs compute there has no history, and is an ordinary tensor."""
    if _C.is_inference_mode_enabled() and not on:
        raise Unsupported(breaks.CONTEXT, "inference mode that was entered outside")
    previous: bool = tracer.modes.inference
    tracer.modes.inference = bool(on)
    return previous


def _result_type(tracer: Tracer, *args: Any) -> Any:
    return native(_C._result_type, *(a.fake.meta() if type(a) is TracedTensor else plain(a) for a in args))


def _guard_signature(tracer: Tracer, function: Any) -> None:
    """The code and defaults of a function, and of those that it wraps."""
    function = getattr(function, "__func__", function)
    while isinstance(function, types.FunctionType):
        tracer.outside.guard_code(function)
        if id(function) not in tracer.outside.fresh:
            known = tracer.outside.known.get(id(function))
            source = tracer.outside.sources.constant(function) if known is None else known.source
            source.attribute("__defaults__").check("id", function.__defaults__)
            source.attribute("__kwdefaults__").check("id", function.__kwdefaults__)
        function = function.__dict__.get("__wrapped__")


def _signature(tracer: Tracer, function: Any, **kwargs: Any) -> Any:
    if not isinstance(function, (types.FunctionType, types.MethodType, type)):
        raise Unsupported(breaks.UNKNOWN_CALL, "inspect.signature")
    import inspect

    _guard_signature(tracer, function)
    return tracer.outside.make_fresh(native(inspect.signature, function, **kwargs))


def _graph_break(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
    raise Unsupported(breaks.REQUESTED)


def _refuse_breaks(tracer: Tracer, owner: Any) -> None:
    tracer.modes.refuse_breaks.append(bool(owner.error_on_graph_break))


def _allow_breaks(tracer: Tracer, owner: Any, *error: Any) -> None:
    if tracer.modes.refuse_breaks:  # not where the block was entered before a break
        tracer.modes.refuse_breaks.pop()


_STACKS = ("currentframe", "stack", "trace")  # of inspect: the callers are seen, too


def _look_at_frame(name: str) -> Callable[..., Any]:
    def run(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
        sees_callers = name in _STACKS or (name == "_getframe" and bool(args) and args[0] != 0)
        if tracer.frame is tracer.root or sees_callers:
            raise SkipFrame(f"{breaks.FRAME.title}: {name}()")
        raise Unsupported(breaks.FRAME, f"{name}()")

    return run


def _evaluate(name: str) -> Callable[..., Any]:
    """eval() and exec(): with a namespace of their own they see nothing else."""

    def run(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 or kwargs:
            raise Unsupported(breaks.UNKNOWN_CALL, name)
        return _look_at_frame(name)(tracer)

    return run


def _dir(tracer: Tracer, *args: Any) -> Any:
    if args:
        raise Unsupported(breaks.UNKNOWN_CALL, "dir()")
    return _look_at_frame("dir")(tracer)


def _vars(tracer: Tracer, *args: Any) -> Any:
    if not args:
        return _look_at_frame("vars")(tracer)
    return attributes.load(tracer, args[0], "__dict__")


def _constant(value: Any) -> Callable[..., Any]:
    return lambda tracer, *args, **kwargs: value


def _is_compiling(tracer: Tracer) -> bool:
    """Yes; the function remembers that it asked, by itself or by what it calls at once."""
    tracer.modes.asked_if_compiling |= tracer.depth <= 4  # decorated functions ask in wrappers of wrappers
    return True


def _is_exporting(tracer: Tracer) -> bool:
    return tracer.builder.module_paths is not None


def _natively(function: Any) -> Callable[..., Any]:
    return lambda tracer, *args, **kwargs: native(function, *args, **kwargs)


def _chain_from_iterable(tracer: Tracer, values: Any) -> Any:
    return native(itertools.chain.from_iterable, [iterable(tracer, v) for v in iterable_list(tracer, values)])


def _update_wrapper(
    tracer: Tracer,
    wrapper: Any,
    wrapped: Any,
    assigned: Any = functools.WRAPPER_ASSIGNMENTS,
    updated: Any = functools.WRAPPER_UPDATES,
) -> Any:
    usual = assigned == functools.WRAPPER_ASSIGNMENTS and updated == functools.WRAPPER_UPDATES
    if not isinstance(wrapper, types.FunctionType) or id(wrapper) in tracer.outside.known or not usual:
        raise Unsupported(breaks.UNKNOWN_CALL, "update_wrapper")
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(wrapped, name, NULL)
        if value is NULL:
            continue
        if value is not None and type(value) is not str:
            raise Unsupported(breaks.UNKNOWN_CALL, "update_wrapper")
        setattr(wrapper, name, value)
    if isinstance(wrapped, types.FunctionType):
        for name in wrapped.__dict__:
            wrapper.__dict__[name] = attributes.load(tracer, wrapped, name)
    wrapper.__dict__["__wrapped__"] = wrapped
    return wrapper


def _logger(tracer: Tracer, name: Any = None) -> Any:
    if name is not None and type(name) is not str:
        raise Unsupported(breaks.UNKNOWN_CALL, "getLogger")
    logger = native(logging.getLogger, name)
    return tracer.outside.wrap(logger, tracer.outside.sources.constant(logger))


@functools.cache
def _is_logged(level: int) -> Callable[[Any], bool]:
    return lambda logger: logger.isEnabledFor(level)


def _write_log(logger: Any, level: int, message: Any, *args: Any) -> None:
    logger.log(level, message, *args, stacklevel=2)


def _log(level: int) -> Callable[..., None]:
    """Logger.info and its like: nothing where the level is off, otherwise written after the graph."""

    def run(tracer: Tracer, logger: Any, message: Any, *args: Any, **options: Any) -> None:
        known = tracer.outside.known.get(id(logger))
        if known is None:
            raise Unsupported(breaks.UNKNOWN_CALL, "a new logger")
        enabled = bool(native(logger.isEnabledFor, level))
        known.source.apply(_is_logged(level)).check("equals", enabled)
        if not enabled:
            return
        if options or not all(_is_text_safe(a) or type(a) in (SymInt, SymbolicSize) for a in (message, *args)):
            raise Unsupported(breaks.PRINT, "in a log")
        tracer.effects.printed.append(Printed(_write_log, (logger, level, message, *args), {}))

    return run


def _warn(tracer: Tracer, message: Any, category: Any = None, stacklevel: Any = 1, source: Any = None) -> None:
    """warnings.warn: the warning is given after the graph, for the line that it is about."""
    kind = category or (type(message) if isinstance(message, Warning) else UserWarning)
    frame = tracer.frame
    for _ in range(max(int(stacklevel), 1) - 1):
        frame = frame.parent if frame is not None else None
    strict = tracer.modes.caught_warnings or any(entry[0] == "error" for entry in warnings.filters)
    if frame is None or strict or source is not None or type(message) is not str or not isinstance(kind, type):
        raise Unsupported(breaks.UNKNOWN_CALL, "warnings.warn")
    names, filename, line = frame.globals, frame.code.co_filename, frame.line()

    def warn(text: str) -> None:
        registry = names.setdefault("__warningregistry__", {})
        warnings.warn_explicit(text, kind, filename, line, names.get("__name__") or "<unknown>", registry)

    tracer.effects.printed.append(Printed(warn, (message,), {}))


def _catch_warnings(tracer: Tracer, owner: Any) -> Any:
    """warnings.catch_warnings: a warning that the program gives inside breaks the graph, so nothing is there to be caught."""
    tracer.modes.caught_warnings.append(tracer.root.step)
    return [] if attributes.load(tracer, owner, "_record") else None


def _release_warnings(tracer: Tracer, owner: Any, *error: Any) -> None:
    if not tracer.modes.caught_warnings:  # the context was entered in Python
        raise Unsupported(breaks.CONTEXT, "catch_warnings")
    tracer.modes.caught_warnings.pop()


def _filter_warnings(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
    if not tracer.modes.caught_warnings:  # what lasts longer than the call
        raise Unsupported(breaks.UNKNOWN_CALL, "warnings.simplefilter")


def _gather_state(tracer: Tracer, parameters: Any, state: Any, names: Any) -> Any:
    """What the native function of this name gathers for an optimizer's step."""
    if not isinstance(state, dict) or id(state) in tracer.outside.known:
        raise Unsupported(breaks.UNKNOWN_CALL, "_gather_state")
    chosen, grads, fresh, missing_grads = [], [], [], 0
    columns: list[list[Any]] = [[] for _ in names]
    for parameter in parameters:
        gradient = gradients.load_grad(tracer, parameter)
        if gradient is None:
            continue
        entry = dict.get(state, parameter) or {}
        missing_grads |= 1 * parameter.fake.dtype.is_complex | 2 * (parameter.fake.fake_device.type != "cpu")
        chosen.append(parameter)
        grads.append(gradient)
        if not entry:
            fresh.append(parameter)
        for column, name in zip(columns, names):
            value = entry.get(name)
            missing_grads |= 4 * (value is None)
            column.append(value)
    return chosen, grads, tuple(columns), fresh, missing_grads


# Functions of modules that are imported on first use.
_LAZY: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("flambeau.func.batching", "_call_batched", opaque.call_batched),
    ("flambeau.func.transforms", "_leave", opaque.leave_level),
    ("flambeau.utils.checkpoint", "checkpoint", opaque.checkpoint),
    *(
        ("flambeau.distributed.tensor._api", name, wrappers.constructor("flambeau.distributed.tensor._api", name))
        for name in ("_from_local", "distribute_tensor", "_make", "_random")
    ),
)


_pending = list(_LAZY)


def _on_plain(function: Any) -> Callable[..., Any]:
    """A pure function of plain values."""

    def run(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _plain_text(args), _plain_text(kwargs)
        if not is_plain(args) or not is_plain(kwargs):
            raise Unsupported(breaks.UNKNOWN_CALL, function.__name__)
        return native(function, *args, **kwargs)

    return run


def _exc_info(tracer: Tracer) -> tuple[Any, ...]:
    error = tracer.handled
    return (None, None, None) if error is None else (type(error), error, None)


def _deepcopy(tracer: Tracer, tensor: Any, memo: Any) -> Any:
    """Tensor.__deepcopy__"""
    if type(tensor) is not TracedTensor or tensor.fake.requires_grad or tensor.cls is not _C.Tensor:
        raise Unsupported(breaks.UNKNOWN_CALL, "deepcopy of a tensor with history")
    copied = tracer.builder.call_method("clone", (tensor,), {})
    if not same_all(copied.fake.geometry.strides, tensor.fake.geometry.strides):
        raise Unsupported(breaks.UNKNOWN_CALL, "deepcopy of a tensor with gaps")
    memo[id(tensor)] = copied
    return copied


def _check_with(tracer: Tracer, error: Any, cond: Any, message: Any = None) -> None:
    """torch._check and its relatives: what is said of numbers that depend on data is checked by the graph."""
    if real_type(cond) is not bool:
        raise UserError(TypeError(f"[check] expected a bool, got {real_type(cond).__name__}: cond must be a bool"))
    if type(cond) is SymBool and cond.hint is None:
        holds = cond.env.assume(cond)
    else:
        holds = truth(tracer, cond)
    if not holds:
        text = "Expected cond to be True, but got False."
        raise UserError(error(text if message is None else to_text(tracer, tracer.call(message, (), {}), str)))


def _identity(tracer: Tracer, value: Any) -> Any:
    return Identity.of(tracer, value)


def _build_special() -> dict[int, Callable[..., Any]]:
    from flambeau import _dynamo, autograd, compiler, overrides
    from flambeau._tensor import checks
    from flambeau.amp import rules
    from flambeau.autograd.profiler import record_function
    from flambeau.fx import _symbolic_trace

    table: dict[Any, Callable[..., Any]] = {}

    module = fl_module()
    if module != ():
        table.update(new_modules.handlers())
        table[module._call_impl] = lambda tracer, owner, *args, **kwargs: call_with_hooks(tracer, owner, args, kwargs)
    table[autograd.Function.apply.__func__] = opaque.apply_function
    if "inspect" in sys.modules:
        table[sys.modules["inspect"].signature] = _signature
        for name in _STACKS:
            table[getattr(sys.modules["inspect"], name)] = _look_at_frame(name)
    pairs: list[tuple[Any, Callable[..., Any]]] = [
        (isinstance, _isinstance), (type, _type), (len, _len), (getattr, _getattr), (hasattr, _hasattr), (setattr, _setattr),
        (delattr, _delattr), (iter, _iter), (next, _next), (super, _super), (print, _print), (sum, _float_sum),
        (any, _any_all(True)), (all, _any_all(False)), (min, _extreme("<", min)), (max, _extreme(">", max)),
        (sorted, _sorted), (functools.reduce, _reduce), (hash, _hash), (callable, _callable), (format, _format),
        (functools.cmp_to_key, lambda tracer, function: native(functools.cmp_to_key, tracer.native_callable(function))),
        (json.dumps, _on_plain(json.dumps)), (json.loads, _on_plain(json.loads)),
        *((getattr(re, name), _on_plain(getattr(re, name))) for name in "match search fullmatch sub subn split findall compile".split()),
        (sys.exc_info, _exc_info), (sys.exception, lambda tracer: tracer.handled),
        (id, _identity), (repr, lambda tracer, value: to_text(tracer, value, repr)), (vars, _vars), (dir, _dir),
        *((function, _look_at_frame(function.__name__)) for function in (locals, globals, sys._getframe)),
        (eval, _evaluate("eval")), (exec, _evaluate("exec")),
        (operator.getitem, subscript), (operator.contains, lambda tracer, a, b: contains(tracer, b, a)),
        (operator.truth, truth), (operator.not_, lambda tracer, value: not truth(tracer, value)),
        (operator.is_, identical), (operator.is_not, lambda tracer, a, b: not identical(tracer, a, b)),
        (operator.setitem, store_subscript), (abs, _unary(abs, "__abs__")), (operator.neg, _unary(operator.neg, "__neg__")),
        (operator.pos, _unary(operator.pos, "__pos__")), (operator.invert, _unary(operator.invert, "__invert__")),
        (operator.abs, _unary(abs, "__abs__")), (operator.index, _unary(operator.index, "__index__")),
        (functools.update_wrapper, _update_wrapper),
        (issubclass, _issubclass), (itertools.chain.from_iterable, _chain_from_iterable),
        (_C._set_grad_enabled, _mode(_C._set_grad_enabled)), (_C.is_grad_enabled, _natively(_C.is_grad_enabled)),
        (_C.is_inference_mode_enabled, lambda tracer: tracer.modes.inference), (_C._set_inference_mode, _set_inference),
        (_C.get_default_dtype, _natively(_C.get_default_dtype)), (_C.promote_types, _natively(_C.promote_types)),
        (_C.can_cast, _natively(_C.can_cast)),
        (_C._result_type, _result_type),
        (_C._has_torch_function, overriding.has_overrides), (overrides.has_torch_function, overriding.has_overrides),
        *((function, _has_overrides) for function in _OVERRIDE_QUESTIONS),
        *((getattr(overrides, name), _has_overrides) for name in ("has_torch_function_unary", "has_torch_function_variadic")),
        (overrides.default_torch_function, overriding.default_hook),
        (_C.Tensor.__torch_function__.__func__, overriding.default_hook), (_C.Tensor.as_subclass, overriding.as_subclass),
        (_C._as_subclass, overriding.as_subclass), (_C._push_torch_function_mode, overriding.push_mode),
        (_C._pop_torch_function_mode, overriding.pop_mode),
        (_C._set_torch_function_subclasses_disabled, overriding.set_disabled("subclasses")),
        (_C._set_torch_function_all_disabled, overriding.set_disabled("all")),
        (autograd.backward, gradients.backward), (autograd.grad, gradients.grad), (_C._gather_state, _gather_state),
        (record_function.__enter__, lambda tracer, owner: owner), (record_function.__exit__, _constant(None)),
        *((function, _mode(function)) for function in AUTOCAST_SWITCHES), *((function, _natively(function)) for function in _STATES),
        (rules.install, _natively(rules.install)),
        (_dynamo.error_on_graph_break.__enter__, _refuse_breaks), (_dynamo.error_on_graph_break.__exit__, _allow_breaks),
        (_dynamo.graph_break, _graph_break), (_dynamo.is_compiling, _is_compiling),
        (compiler.is_compiling, _is_compiling), (compiler.is_dynamo_compiling, _is_compiling),
        (compiler.is_exporting, _is_exporting), (_symbolic_trace.is_fx_tracing, _is_exporting),
        (fl.cond, subgraphs.cond), (fl.while_loop, subgraphs.while_loop), (fl._higher_order_ops.map, subgraphs.map_slices),
        (fl._higher_order_ops.scan, subgraphs.scan),
        (warnings.warn, _warn), (warnings.simplefilter, _filter_warnings), (warnings.filterwarnings, _filter_warnings),
        (warnings.catch_warnings.__enter__, _catch_warnings), (warnings.catch_warnings.__exit__, _release_warnings),
        (logging.getLogger, _logger),
        *((getattr(logging.Logger, name), _log(getattr(logging, name.upper())))
          for name in "debug info warning error critical".split()),
        (builtins.__build_class__, classes.build_class), (dataclasses.dataclass, classes.make_dataclass),
        (collections.namedtuple, classes.make_namedtuple), (_C.Tensor.__deepcopy__, _deepcopy),
        (fl.is_tensor, lambda tracer, value: type(value) is TracedTensor), (checks._check_with, _check_with),
    ]  # fmt: skip
    table.update(pairs)
    for symbol, (_, function) in _OPERATORS.items():
        table[function], table[_INPLACE[symbol]] = _operator(symbol), _operator(symbol + "=")
    table.update({function: _comparison(symbol) for symbol, function in _COMPARISONS.items()})
    _KEEP.extend(table)
    return {id(function): handler for function, handler in table.items()}


_KEEP: list[Any] = []


def prepare() -> None:
    """Fills the table of special functions, when the package is complete."""
    if not SPECIAL:
        from flambeau.nn.modules.registry import mutations

        _C._set_module_mutations(mutations)
        SPECIAL.update(_build_special())
    add_imported()


def add_imported() -> None:
    """Adds the functions of modules that were imported meanwhile."""
    if not arrays.registered and arrays.is_usable():
        from flambeau._dynamo import numpy_table

        arrays.registered.append(sys.modules["numpy"])
        for function, handler in numpy_table.handlers():
            _KEEP.append(function)
            SPECIAL[id(function)] = handler
    for entry in [entry for entry in _pending if entry[0] in sys.modules]:
        function = getattr(sys.modules[entry[0]], entry[1])
        _KEEP.append(function)
        SPECIAL[id(function)] = entry[2]
        _pending.remove(entry)
