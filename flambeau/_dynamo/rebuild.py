"""From the interpreter's final state back to Python: the code of an artifact.

An artifact is a generated Python function. It fetches what the graph needs, runs the graph, rebuilds the values that
are alive, replays the side effects and returns, or performs the instruction that broke the graph and hands over to a
resume function. Its lines carry the line numbers of the user's code, so that tracebacks point there.
"""

from __future__ import annotations

import ast
import collections
import enum
import functools
import operator
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from flambeau import _C
from flambeau._dynamo import breaks, classes, gradients, wrappers
from flambeau._dynamo.arrays import ArrayMethod, TracedArray
from flambeau._dynamo.breaks import SkipFrame, Unsupported
from flambeau._dynamo.effects import Shadow
from flambeau._dynamo.kinds import (
    LITERALS,
    TENSOR_CONSTANTS,
    Size,
    is_namedtuple,
    is_parameter_class,
    is_result_tuple,
    lookup_type,
)
from flambeau._dynamo.outside import proxied
from flambeau._dynamo.sizes import SymbolicSize, SymBool, SymInt
from flambeau._dynamo.source import Names, Source
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import (
    NULL,
    Interpreted,
    Lazy,
    TensorMethod,
    TracedGenerator,
    TracedIterator,
    TracedNumber,
    TracedReference,
    TracedTensor,
)
from flambeau._inductor.failures import BackendError


class Rebuilder:
    """Collects the lines of an artifact."""

    def __init__(self, tracer: Tracer, arguments: int) -> None:
        self.tracer = tracer
        self.names = Names()
        self.arguments = arguments
        self.fetch: list[str] = []  # before the graph
        self.lines: list[tuple[str, int]] = []  # after it
        self.memo: dict[int, str] = {}
        self.source_memo: dict[Source, str] = {}
        self.size_memo: dict[tuple[Source, int], str] = {}
        self.number_memo: dict[Any, str] = {}  # by node
        self.outputs: list[Any] = []
        self.output_names: dict[int, str] = {}
        self.busy: set[int] = set()
        self.keep: list[Any] = []
        self.count = 0
        self.line_number = 0
        self.data_numbers: dict[Any, TracedNumber] = {}  # by expression
        self.spent: list[tuple[int, str]] = []  # results whose history was used up, and its name
        self.names.bind("lookup_type", lookup_type)
        for draw in tracer.effects.draws:  # all of them, in the program's order
            draw_arguments = [
                *(self.value(a) for a in draw.args),
                *(f"{k}={self.value(v)}" for k, v in draw.kwargs.items()),
            ]
            owner = self.source(draw.owner)
            name = self.source_memo[draw.source] = self.fresh_name()
            self.fetch.append(f"{name} = {owner}.{draw.method}({', '.join(draw_arguments)})")

    def emit(self, text: str) -> None:
        self.lines.append((text, self.line_number))

    def fresh_name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    # ------------------------------------------------------------------------------------------ values

    def source(self, source: Source) -> str:
        """A value from outside, fetched before anything changes."""
        name = self.source_memo.get(source)
        if name is None:
            if source.parent is None:
                name = source.expression(self.names)
            else:
                text = source.access(self._path(source.parent), self.names)
                name = self.fresh_name()
                self.fetch.append(f"{name} = {text}")
            self.source_memo[source] = name
        return name

    def _path(self, source: Source) -> str:
        """An expression for a place on the way; what several values are reached through is fetched once."""
        if source.parent is None or source in self.source_memo or len(source.children) > 1:
            return self.source(source)
        return source.access(self._path(source.parent), self.names)

    def value(self, value: Any) -> str:
        """An expression for a value of the interpreter."""
        cls = type(value)
        if cls in LITERALS:
            if cls in (int, bool, str, type(None)) and (cls is not int or abs(value) < 1 << 62):
                return repr(value)
            return self.names.add(value)
        if cls is Lazy:
            return self.source(value.source)
        if cls is SymInt:
            sizes = self.tracer.builder.sizes
            return self._data_number(value) if sizes.env.is_unbacked(value) else sizes.text(value, self._size)
        if cls is SymBool and value.hint is None:
            return self._data_condition(value)
        if cls is TracedNumber:
            return self.number(value)
        if cls is TracedTensor:
            return self.tensor(value)
        if cls is TracedArray and value.source is not None:
            return self.source(value.source)
        known = self.memo.get(id(value))
        if known is not None:
            return known
        tracer = self.tracer
        shadow = tracer.outside.shadows.get(id(value))
        if shadow is not None:
            text = self.source(shadow.source)
        elif id(value) in tracer.outside.constructed:
            module_class, args, kwargs = tracer.outside.constructed[id(value)]
            arguments = [*(self.value(a) for a in args), *(f"{k}={self.value(v)}" for k, v in kwargs.items())]
            text = self._assign(f"{self.names.add(module_class)}({', '.join(arguments)})")
        elif id(value) in tracer.outside.known:
            text = self.source(tracer.outside.known[id(value)].source)
        elif cls in TENSOR_CONSTANTS and not isinstance(value, slice):
            text = self.names.add(value)
        else:
            if id(value) in self.busy:
                raise SkipFrame(f"a {cls.__name__} that contains itself")
            self.busy.add(id(value))
            text = self.build(value)
            self.busy.discard(id(value))
        self.memo[id(value)] = text
        self.keep.append(value)
        return text

    def _size(self, source: Source, dim: int) -> str:
        """A size (or, below zero, a number) from outside, read before anything changes."""
        if dim < 0:
            return self.source(source)
        name = self.size_memo.get((source, dim))
        if name is None:
            base = self.source(source)
            name = self.size_memo[source, dim] = self.fresh_name()
            self.fetch.append(f"{name} = {base}.shape[{dim}]")
        return name

    def _data_number(self, value: SymInt) -> str:
        """A number that depends on data: the graph returns it."""
        sizes = self.tracer.builder.sizes
        expr = sizes.env.simplify(value.expr)
        known = self.data_numbers.get(expr)
        if known is None:
            node = sizes.node(value)
            known = TracedNumber(self.tracer, node, 1, None, {}, unknown=breaks.TENSOR_VALUE)
            self.data_numbers[expr] = known
        return self.tensor(known)

    def _data_condition(self, value: SymBool) -> str:
        known = self.data_numbers.get(value.condition)
        if known is None:
            node = self.tracer.builder.sizes.condition(value.condition)
            known = TracedNumber(self.tracer, node, True, None, {}, unknown=breaks.TENSOR_VALUE)
            self.data_numbers[value.condition] = known
        return self.tensor(known)

    def number(self, value: TracedNumber) -> str:
        if value.source is not None:
            return self.source(value.source)
        return self.tensor(value) if value.unknown is breaks.TENSOR_VALUE else self._arithmetic(value.node)

    def _arithmetic(self, node: Any) -> str:
        """Code for a number that the graph computes from numbers: graphs return tensors only."""
        if not hasattr(node, "op"):
            return self.value(node)
        known = self.number_memo.get(node)
        if known is None:
            if node.op == "placeholder":
                known = self.source(node.meta["source"])
            else:
                first, *rest = (self._arithmetic(a) for a in node.args)
                known = self.fresh_name()
                if node.op == "call_method":  # a size
                    self.fetch.append(f"{known} = {first}.{node.target}({', '.join(rest)})")
                else:
                    self.fetch.append(f"{known} = {self.names.add(node.target)}({', '.join([first, *rest])})")
            self.number_memo[node] = known
        return known

    def tensor(self, value: Any) -> str:
        if value.source is not None:
            return self.source(value.source)
        name = self.output_names.get(id(value))
        if name is None:
            name = self.output_names[id(value)] = f"t{len(self.outputs)}"
            self.outputs.append(value)
            # Graphs return plain tensors, or wrappers.
            if type(value) is TracedTensor and value.cls is not _C.Tensor and not wrappers.is_wrapper(value.cls):
                if is_parameter_class(value.cls):
                    text = f"{self.names.add(value.cls)}({name}, {value.fake.requires_grad})"
                else:
                    text = f"{self.names.add(_C._as_subclass)}({name}, {self.names.add(value.cls)})"
                name = self.output_names[id(value)] = self._assign(text)
        return name

    def _assign(self, text: str) -> str:
        name = self.fresh_name()
        self.emit(f"{name} = {text}")
        return name

    def _start(self, value: Any, text: str) -> str:
        """A container that is filled after it exists, so that it may contain itself."""
        name = self._assign(text)
        self.memo[id(value)] = name
        self.keep.append(value)
        self.busy.discard(id(value))
        return name

    def _is_leaf(self, value: Any) -> bool:
        return (
            type(value) in LITERALS
            or type(value) in (TracedTensor, Lazy, SymInt, TracedNumber)
            or id(value) in self.memo
        )

    def _items(self, values: Any) -> str:
        """Code for several values as a tuple."""
        return f"({''.join(self.value(v) + ', ' for v in values)})"

    def build(self, value: Any) -> str:
        """Code that makes a new object."""
        cls = type(value)
        make = _MAKERS.get(cls)
        if make is not None:
            return make(self, value)
        if is_result_tuple(cls):
            return self._assign(f"{self.names.add(cls)}({self._items(value)})")
        if is_namedtuple(cls) or (isinstance(value, tuple) and id(value) in self.tracer.outside.fresh):
            name = self._assign(f"tuple.__new__({self.value(cls)}, {self._items(tuple.__iter__(value))})")
            for key, item in (getattr(value, "__dict__", None) or {}).items():
                self._set(name, key, self.value(item))
            return name
        if isinstance(value, type) and not classes.embeddable(self.tracer, value):
            raise Unsupported(breaks.CLASS, f"{value.__name__}, which holds tensors of the graph")
        if type(value) is types.BuiltinFunctionType:
            owner = value.__self__
            if owner is not None and not isinstance(owner, (type, types.ModuleType)):
                return self._assign(f"{self.value(owner)}.{value.__name__}")
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, enum.Enum)) or (
            cls.__module__ == "torch._C" and callable(value)
        ):
            return self.names.add(value)
        if isinstance(value, TracedGenerator) and not value.started:
            return self._build_generator(value)
        if isinstance(value, (TracedGenerator, TracedIterator)):
            raise Unsupported(breaks.GENERATOR)
        if isinstance(value, BaseException):
            return self._build_exception(value)
        from flambeau._dynamo.values import DICT_VIEWS, ITERATORS, VALUES, is_numpy_scalar

        if cls in VALUES or is_numpy_scalar(cls):
            return self.names.add(value)
        if cls in ITERATORS:
            return self._build_iterator(value)
        if cls in DICT_VIEWS:
            kind = cls.__name__.removeprefix("odict_").removeprefix("dict_")
            return self._assign(f"{self.value(proxied(value.mapping))}.{kind}()")
        if id(value) in self.tracer.outside.fresh:
            return self._build_object(value)
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"a {cls.__name__} cannot be rebuilt")

    def _build_list(self, value: list[Any]) -> str:
        if all(self._is_leaf(v) for v in value):
            return self._assign(f"[{', '.join(self.value(v) for v in value)}]")
        name = self._start(value, "[]")
        self.emit(f"{name}.extend({self._items(value)})")
        return name

    def _build_dict(self, value: dict[Any, Any]) -> str:
        cls = type(value)
        first = self.value(value.default_factory) if isinstance(value, collections.defaultdict) else ""
        name = self._start(value, "{}" if cls is dict else f"{self.names.add(cls)}({first})")
        for key, item in value.items():
            self.emit(f"{name}[{self.value(key)}] = {self.value(item)}")
        if cls is collections.OrderedDict:
            for key, item in value.__dict__.items():
                self._set(name, key, self.value(item))
        return name

    def _build_set(self, value: Any) -> str:
        return self._assign(f"{type(value).__name__}({self._items(value)})")

    def _build_method(self, value: Any) -> str:
        owner, function = value.__self__, value.__func__
        if isinstance(owner, (TracedGenerator, TracedIterator)):
            raise Unsupported(breaks.GENERATOR)
        if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self._assign(f"{self.names.add(function)}.__get__({self.value(owner)})")
        return self._assign(f"{self.names.add(types.MethodType)}({self.value(function)}, {self.value(owner)})")

    def _build_partial(self, value: Any) -> str:
        args = "".join(", " + self.value(a) for a in value.args)
        keywords = "".join(f", {k}={self.value(v)}" for k, v in value.keywords.items())
        return self._assign(f"{self.names.add(functools.partial)}({self.value(value.func)}{args}{keywords})")

    def _build_getter(self, value: Any) -> str:
        kind, args = value.__reduce__()[:2]
        return self._assign(f"{self.names.add(kind)}{self._items(args)}")

    def _build_array(self, value: TracedArray) -> str:
        if value.lazy is not None:
            name = self._assign(value.lazy.make(self, self.value(value.lazy.parent)))
        else:
            name = self._assign(f"{self.value(value.base)}.numpy(){'[()]' if value.scalar else ''}")
        if not value.writable and not value.scalar:
            self.emit(f"{name}.flags.writeable = False")
        return name

    def _build_cell(self, value: Any) -> str:
        name = self._start(value, f"{self.names.add(types.CellType)}()")
        try:
            contents = value.cell_contents
        except ValueError:
            return name
        self.emit(f"{name}.cell_contents = {self.value(contents)}")
        return name

    def _build_proxy(self, value: Any) -> str:
        known = self.tracer.outside.proxies.get(id(value))
        if known is not None:
            return self.source(known.source)
        return self._assign(f"{self.names.add(types.MappingProxyType)}({self.value(proxied(value))})")

    def _build_function(self, value: Any) -> str:
        cells = value.__closure__ or ()
        closure = "".join(self.value(cell) + ", " for cell in cells)
        constructor = self.names.add(types.FunctionType)
        code, names = self.names.add(value.__code__), self.names.add(value.__globals__)
        defaults = self.value(value.__defaults__) if value.__defaults__ else "None"
        name = self._assign(f"{constructor}({code}, {names}, {value.__name__!r}, {defaults}, ({closure}))")
        self.memo[id(value)] = name
        self.emit(f"{name}.__qualname__ = {value.__qualname__!r}")
        if value.__kwdefaults__:
            self.emit(f"{name}.__kwdefaults__ = {self.value(value.__kwdefaults__)}")
        if value.__annotations__:
            self.emit(f"{name}.__annotations__ = {self.value(value.__annotations__)}")
        for key, item in value.__dict__.items():
            self.emit(f"{name}.{key} = {self.value(item)}")
        if value.__doc__ is not None and value.__doc__ is not (value.__code__.co_consts or (None,))[0]:
            self.emit(f"{name}.__doc__ = {value.__doc__!r}")
        return name

    def _build_exception(self, value: BaseException) -> str:
        cls = type(value)
        args = "".join(self.value(a) + ", " for a in value.args)
        name = self._start(value, f"{self.names.add(cls)}.__new__({self.names.add(cls)}, {args})")
        self.emit(f"{name}.args = ({args})")
        for key, item in getattr(value, "__dict__", {}).items():
            self.emit(f"{name}.{key} = {self.value(item)}")
        if value.__cause__ is not None:
            self.emit(f"{name}.__cause__ = {self.value(value.__cause__)}")
        if value.__context__ is not None:
            self.emit(f"{name}.__context__ = {self.value(value.__context__)}")
        return name

    def _build_generator(self, value: TracedGenerator) -> str:
        """A generator that has not begun: its function is called once more, with the same arguments."""
        frame = value.frame
        code, local = frame.code, frame.locals
        if value.finished:
            return self._assign("(_ for _ in ())")
        if frame.function is None or any(v is NULL for v in local[: code.co_argcount + code.co_kwonlyargcount]):
            raise Unsupported(breaks.GENERATOR)
        arguments = [self.value(v) for v in local[: code.co_argcount]]
        place = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[code.co_argcount : place]
        if code.co_flags & 0x04:
            arguments.append("*" + self.value(local[place]))
        arguments += [f"{name}={self.value(v)}" for name, v in zip(names, local[code.co_argcount : place])]
        if code.co_flags & 0x08:
            arguments.append("**" + self.value(local[place + bool(code.co_flags & 0x04)]))
        return self._assign(f"{self.value(frame.function)}({', '.join(arguments)})")

    def _build_iterator(self, value: Any) -> str:
        """Iterators of built-in types say themselves how to make them again."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reduced = value.__reduce__()
        function, args = reduced[0], reduced[1]
        name = self._assign(f"{self.names.add(function)}({''.join(self.value(a) + ', ' for a in args)})")
        if len(reduced) > 2 and reduced[2] is not None:
            self.emit(f"{name}.__setstate__({self.value(reduced[2])})")
        return name

    def _build_object(self, value: Any) -> str:
        cls = type(value)
        class_name = self.value(cls)
        bases = (list, collections.OrderedDict, dict, set, collections.deque)
        base: Any = next((b for b in bases if isinstance(value, b)), object)
        kind = self.names.add(base)
        name = self._start(
            value, f"{class_name}()" if cls is types.SimpleNamespace else f"{kind}.__new__({class_name})"
        )
        if issubclass(base, dict):
            for key, item in base.items(value):
                self.emit(f"{kind}.__setitem__({name}, {self.value(key)}, {self.value(item)})")
        elif base is list:
            self.emit(f"list.extend({name}, ({''.join(self.value(v) + ', ' for v in list.__iter__(value))}))")
        elif base is not object:
            add = "extend" if base is collections.deque else "update"
            self.emit(f"{kind}.{add}({name}, ({''.join(self.value(v) + ', ' for v in value)}))")
        state = getattr(value, "__dict__", None) or {}
        for key, item in state.items():
            self._set_in_dict(name, cls, key, self.value(item))
        for part in cls.__mro__:
            for slot in _slots(part):
                if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                    self._set(name, slot, self.value(getattr(value, slot)))
        return name

    def _set_in_dict(self, name: str, cls: type, key: str, text: str) -> None:
        """Past descriptors of the class, which would take the value themselves."""
        if lookup_type(type(lookup_type(cls, key)), "__set__") is NULL:
            self._set(name, key, text)
        else:
            self.emit(f"{name}.__dict__[{key!r}] = {text}")

    def _set(self, name: str, key: str, text: str) -> None:
        setter = self.names.add(object.__setattr__)
        self.emit(f"{setter}({name}, {key!r}, {text})")

    # ------------------------------------------------------------------------------------------ side effects

    def side_effects(self) -> None:
        tracer = self.tracer
        replay: list[str] = []
        changed = [shadow for shadow in tracer.outside.shadows.values() if shadow.changed()]
        # All new values are computed first: the stores below change what sources find.
        for shadow in changed:
            replay += self._container(shadow)
        for overlay in tracer.outside.overlays.values():
            is_constructed = id(overlay.target) in tracer.outside.constructed
            target = self.value(overlay.target) if is_constructed else self.source(overlay.source)
            if type(overlay.target) is dict or type(overlay.target).__name__ == "Registry":  # names, members
                for key, item in overlay.values.items():
                    if item is not NULL:
                        replay.append(f"{target}[{key!r}] = {self.value(item)}")
                    elif key in overlay.target:
                        replay.append(f"del {target}[{key!r}]")
            elif isinstance(overlay.target, types.CellType):
                item = overlay.values["cell_contents"]
                if item is not NULL:
                    replay.append(f"{target}.cell_contents = {self.value(item)}")
                elif overlay.target != types.CellType():
                    replay.append(f"del {target}.cell_contents")
            else:
                plain = isinstance(overlay.target, (type, types.ModuleType, types.FunctionType))
                for key, item in overlay.values.items():
                    if item is NULL:
                        deleter = "delattr" if plain else self.names.add(object.__delattr__)
                        if key in getattr(overlay.target, "__dict__", ()) or _fills_slot(overlay.target, key):
                            replay.append(f"{deleter}({target}, {key!r})")
                    else:
                        setter = "setattr" if plain else self.names.add(_setter(overlay.target))
                        replay.append(f"{setter}({target}, {key!r}, {self.value(item)})")
        retained = [tensor for tensor in tracer.effects.retained if id(tensor) in self.output_names]
        if any(id(tensor) not in tracer.effects.grads for tensor in retained):
            # Compiled graphs have one history for all results: a later backward does not pass through this one.
            raise SkipFrame("retain_grad() of a result")
        gradients.check_leaves(tracer, self.outputs)
        for gradient in tracer.effects.grads.values():
            tensor = gradient.tensor
            alive = tensor.fake.is_leaf or any(tensor is t for t in retained)
            if gradient.changed and alive:
                replay.append(f"{self.value(tensor)}.grad = {self.value(gradient.now)}")
        for line in replay:
            self.emit(line)
        for function, args, kwargs in tracer.effects.printed:
            text = ", ".join([*(self.value(a) for a in args), *(f"{k}={self.value(v)}" for k, v in kwargs.items())])
            self.emit(f"{self.names.add(function)}({text})")

    def _container(self, shadow: Shadow) -> list[str]:
        target = self.source(shadow.source)
        value = shadow.value
        if isinstance(value, list) and type(shadow.real) is not list:
            return [f"list.__setitem__({target}, slice(None), {self._items(value)})"]
        if isinstance(value, list):
            return [f"{target}[:] = ({''.join(self.value(v) + ', ' for v in value)})"]
        if isinstance(value, dict):
            before = shadow.before
            now = list(value.items())
            grown = len(now) >= len(before) and all(a[0] is b[0] for a, b in zip(before, now))
            base = self.names.add(collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict)
            lines = [] if grown else [f"{base}.clear({target})"] if type(value) is dict else [f"{target}.clear()"]
            store = (
                f"{target}[{{}}] = {{}}"
                if type(shadow.real) is type(value)
                else f"{base}.__setitem__({target}, {{}}, {{}})"
            )
            for i, (key, item) in enumerate(now):
                if grown and i < len(before) and before[i][1] is item:
                    continue
                lines.append(store.format(self.value(key), self.value(item)))
            return lines
        if isinstance(value, set):
            return [f"{target}.clear()", f"{target}.update(({''.join(self.value(v) + ', ' for v in value)}))"]
        return [f"{target}.clear()", f"{target}.extend(({''.join(self.value(v) + ', ' for v in value)}))"]

    # ------------------------------------------------------------------------------------------ the function

    def _run_graph(self, graph: Any) -> str:
        """The expression that runs the graph.

        Parameters and buffers of a model are kept until any module changes, so that fetching them costs nothing at any
        depth; a graph that can be bound to them is not even given them.
        """
        inputs = [traced.source for traced in self.tracer.builder.inputs]
        groups = self._members()
        bind = getattr(graph, "_bind", None)
        if bind is None or not groups:
            for root, members in groups.items():
                if len(members) >= 3:
                    self._fetch_members(root, members)
            return f"graph({', '.join(self.source(source) for source in inputs if source is not None)})"
        bound = {member for group in groups.values() for member in group}
        bound_graph = self._keep(list(groups), "bind({}, ({},))".format(
            tuple(i for i, source in enumerate(inputs) if source in bound),
            ", ".join(source.expression(self.names) for source in inputs if source in bound),
        ))  # fmt: skip
        self.names.bind("bind", bind)
        rest = [self.source(source) for source in inputs if source is not None and source not in bound]
        return f"{bound_graph}({', '.join(rest)})"

    def _members(self) -> dict[Source, list[Source]]:
        """Parameters and buffers among the inputs that nothing else fetches, by the model they are reached from."""
        groups: dict[Source, list[Source]] = {}
        for traced in self.tracer.builder.inputs:
            source = traced.source
            if source is not None and source not in self.source_memo:
                root = member_root(source)
                if root is not None:
                    groups.setdefault(root, []).append(source)
        return groups

    def _fetch_members(self, root: Source, members: list[Source]) -> None:
        fetched = self._keep([root], f"({', '.join(member.expression(self.names) for member in members)})")
        for member in members:
            self.source_memo[member] = self.fresh_name()
        self.fetch.append(f"{', '.join(self.source_memo[member] for member in members)} = {fetched}")

    def _keep(self, roots: list[Source], text: str) -> str:
        """The value of an expression over members of modules, computed again when any module changed."""
        from flambeau.nn.modules.registry import mutations

        cache, count = self.names.add([(None,) * (len(roots) + 2)], "kept"), self.names.add(mutations, "mutations")
        variable, bases = self.fresh_name(), [self.source(root) for root in roots]
        self.fetch.append(f"{variable} = {cache}[0]")
        changed = "".join(f" or {variable}[{i + 2}] is not {base}" for i, base in enumerate(bases))
        self.fetch.append(f"if {variable}[1] != {count}[0]{changed}:")
        self.fetch.append(f"    {variable} = {cache}[0] = ({text}, {count}[0], {', '.join(bases)})")
        return f"{variable}[0]"

    def graph_results(self) -> tuple[Any, ...]:
        """The nodes of what the graph returns."""
        nodes, self.spent = gradients.settle(self.tracer, self.outputs)
        return tuple(nodes)

    def finish(
        self, graph: Any, filename: str, name: str, first_line: int, replay: tuple[Any, str] | None
    ) -> tuple[Any, str]:
        """Compiles the artifact.

        `graph` is the callable that runs the graph, or None. `replay` is the original function and its arguments: when
        a graph without effects raises, the program runs once more in Python, to raise what it would have raised.
        """
        head: list[tuple[str, int]] = [(line, first_line) for line in self.fetch]
        if graph is not None:
            self.names.bind("graph", graph)
            call = self._run_graph(graph)
            head = [(line, first_line) for line in self.fetch]
            results = "".join(f"t{i}, " for i in range(len(self.outputs)))
            run = f"{results}= {call}" if results else call
            if replay is None:
                head.append((run, first_line))
            else:
                self.names.bind("original", replay[0])
                head.append(("try:", first_line))
                head.append((f"    {run}", first_line))
                head.append((f"except {self.names.add(BackendError)}: raise", first_line))
                # Outside of the handler, so that the program's exception has no other one as its context.
                head.append(("except Exception: failed = True", first_line))
                head.append(("else: failed = False", first_line))
                mode = self.names.add(_restore_mode)
                head.append(("if failed:", first_line))
                head.append((f"    {mode}({self.tracer.modes.grad_at_entry})", first_line))
                head.append((f"    return original({replay[1]})", first_line))
            if self.tracer.modes.grad_at_exit != self.tracer.modes.grad_at_entry:  # compiled graphs have no modes
                mode = self.names.add(_restore_mode)
                head.append((f"{mode}({self.tracer.modes.grad_at_exit})", first_line))
            for index, history in self.spent:
                head.append((f"{self.names.add(_C._mark_spent)}(t{index}, {history!r})", first_line))
            for leaf in self.tracer.effects.leaves:
                if id(leaf) in self.output_names and leaf.cls is _C.Tensor:
                    head.append((f"{self.output_names[id(leaf)]}.requires_grad_()", first_line))
        if self.tracer.modes.inference != _C.is_inference_mode_enabled():
            head.append((f"{self.names.add(_C._set_inference_mode)}({self.tracer.modes.inference})", first_line))
        body = head + self.lines
        parameters = ", ".join(f"a{i}" for i in range(self.arguments))
        text = f"def {_identifier(name)}({parameters}):\n"
        numbers = [first_line]
        for line, number in body:
            text += f"    {line}\n"
            numbers.append(number or first_line)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if hasattr(node, "lineno"):
                number = numbers[min(node.lineno - 1, len(numbers) - 1)]
                node.lineno = node.end_lineno = number
        code = compile(tree, filename, "exec")
        namespace: dict[str, Any] = dict(self.names.table)
        exec(code, namespace)
        return namespace[_identifier(name)], text


def _add(self: Rebuilder, value: Any) -> str:
    return self.names.add(value)


# How objects are made again, by class; `Rebuilder.build` knows of the others.
_MAKERS: dict[Any, Callable[[Rebuilder, Any], str]] = {
    tuple: lambda self, value: self._assign(self._items(value)),
    list: Rebuilder._build_list,
    **dict.fromkeys(
        (dict, collections.OrderedDict, collections.Counter, collections.defaultdict), Rebuilder._build_dict
    ),
    **dict.fromkeys((set, frozenset), Rebuilder._build_set),
    collections.deque: lambda self, value: self._assign(
        f"{self.names.add(collections.deque)}({self._items(value)}, {value.maxlen!r})"
    ),
    SymbolicSize: lambda self, value: self._assign(f"{self.names.add(Size)}({self._items(value)})"),
    slice: lambda self, value: self._assign(f"slice{self._items((value.start, value.stop, value.step))}"),
    types.CellType: Rebuilder._build_cell,
    types.MappingProxyType: Rebuilder._build_proxy,
    types.FunctionType: Rebuilder._build_function,
    types.MethodType: Rebuilder._build_method,
    TracedArray: Rebuilder._build_array,
    ArrayMethod: lambda self, value: self._assign(f"{self.value(value.array)}.{value.name}"),
    TracedReference: lambda self, value: self._assign(f"{self.names.add(weakref.ref)}({self.value(value.referent)})"),
    TensorMethod: lambda self, value: self._assign(f"{self.value(value.tensor)}.{value.name}"),
    Interpreted: lambda self, value: self.value(value.function),
    functools.partial: Rebuilder._build_partial,
    super: lambda self, value: self._assign(f"super{self._items((value.__thisclass__, value.__self__))}"),
    **dict.fromkeys((operator.itemgetter, operator.attrgetter), Rebuilder._build_getter),
    **dict.fromkeys((types.MethodDescriptorType, types.WrapperDescriptorType, types.CodeType, property), _add),
}


def member_root(source: Source) -> Source | None:
    """The outermost module that a parameter or buffer is reached from through members alone."""
    root: Source | None = None
    place = source
    while place.kind == "dict_item" and place.parent is not None and place.parent.kind == "instance":
        if place.parent.key not in ("_parameters", "_buffers", "_modules") or place.parent.parent is None:
            break
        place = root = place.parent.parent
        if ("module", None) not in root.checks:
            return None
    return root


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "compiled"


def _restore_mode(enabled: bool) -> None:
    from flambeau import _C

    _C._set_grad_enabled(enabled)


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _fills_slot(target: Any, name: str) -> bool:
    """Whether a slot of __slots__ has a value."""
    return isinstance(lookup_type(type(target), name), types.MemberDescriptorType) and hasattr(target, name)


def _setter(target: Any) -> Any:
    from flambeau._dynamo.kinds import fl_module

    module = fl_module()
    if module != () and isinstance(target, module):
        return _set_on_module
    return object.__setattr__


def _set_on_module(module: Any, name: str, value: Any) -> None:
    """Stores an attribute that is no member, counting the change as Module.__setattr__ does."""
    from flambeau.nn.modules import registry

    object.__setattr__(module, name, value)
    registry.mutations[0] += 1
