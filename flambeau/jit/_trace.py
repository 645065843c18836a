"""`jit.trace`: the operators that a function runs on example inputs, recorded as a graph.

While the function runs, a mode sees every call of the package's functions and of tensor methods, and adds what the compiler of scripts would add for that call. Sizes of
tensors are integers that know where they come from, so that a trace works for other sizes. A tensor that becomes a Python number is a constant of the trace, which a
warning says.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import _C, jit
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._frontend.annotations import qualified_name
from flambeau.jit._frontend.callables import unique_name
from flambeau.jit._frontend.emitter import Emitter
from flambeau.jit._frontend.expressions import BINARY
from flambeau.jit._frontend.source import Declaration, PythonResolver
from flambeau.jit._frontend.sugar import Builtin, Sugared, TensorClass, python_value
from flambeau.jit._functions import Function, ScriptFunction
from flambeau.jit._ir import Graph, Source, SourceRange, Value
from flambeau.jit._passes import clean, fold_branches, inline_calls
from flambeau.jit._schemas import Argument, Signature
from flambeau.jit._trace_scopes import Scopes, outline
from flambeau.jit._traced_values import TracedInt, TracedSize
from flambeau.nn import Module
from flambeau.overrides import TorchFunctionMode

_current: list[Tracer] = []
REFLECTED = {f"__r{method[2:]}": op for op, (_, method) in BINARY.items()}


class TracingCheckError(Exception):
    """A trace that gives other results than the function."""

    def __init__(self, graph_diff_error: Any, tensor_compare_error: Any, extra_msg: str | None = None) -> None:
        parts = [
            "Tracing failed sanity checks!",
            *(str(p) for p in (extra_msg, graph_diff_error, tensor_compare_error) if p),
        ]
        self.message = "\n".join(parts)
        super().__init__(self.message)


class _CallSource(Source):
    """The line of the program that made a call."""

    def range_of(self, node: Any) -> SourceRange:
        frame = sys._getframe(2)
        while frame is not None and "flambeau" in frame.f_globals.get("__name__", "").partition(".")[0]:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            return SourceRange(self, 0, 0, 1, 0)
        import linecache

        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip("\n")
        source = Source(line, frame.f_code.co_filename, frame.f_lineno)
        return SourceRange(source, len(line) - len(line.lstrip()), len(line), 1, len(line) - len(line.lstrip()))


class Recorder(Emitter):
    """The part of the compiler that adds calls to a graph, without syntax."""

    def __init__(self, name: str) -> None:
        import ast

        empty = Declaration(name, [], None, [], _CallSource(""), PythonResolver(None), ast.Pass())
        super().__init__(Function(name), empty)
        self.source = empty.source


class Tracer(TorchFunctionMode):
    """Records one function."""

    def __init__(self, name: str, owner: Value | None = None) -> None:
        super().__init__()
        self.recorder = Recorder(name)
        self.graph = self.recorder.graph
        self.known: dict[int, tuple[Any, Value]] = {}
        self.paths: dict[int, tuple[tuple[str, ...], T.JitType]] = {}
        self.owner = owner
        self.getters: dict[tuple[str, ...], Value] = {}

    # ------------------------------------------------------------------ values

    def bind(self, tensor: Any, value: Value) -> None:
        if isinstance(tensor, _C.Tensor):
            value.setType(T.TensorType(tensor))
        self.known[id(tensor)] = (tensor, value)

    def value(self, thing: Any) -> Any:
        """A Python value as one of the graph."""
        if isinstance(thing, (Value, Sugared)):
            return thing
        if isinstance(thing, TracedInt):
            return thing.value
        if isinstance(thing, (_C.Tensor, _values.ScriptObject, Module)):
            return self._object(thing)
        if isinstance(thing, (list, tuple)):
            items = [self.value(x) for x in thing]
            kinds = {str(x.type()) for x in items}
            if isinstance(thing, (list, flambeau.Size)) or (len(kinds) == 1 and not isinstance(thing, tuple)):
                joined: T.JitType | None = items[0].type() if items else T.INT
                for item in items[1:]:
                    joined = T.unify(joined, item.type()) if joined is not None else None
                if joined is not None:
                    return self.graph.insert(
                        "prim::ListConstruct",
                        items,
                        [T.ListType(T.TENSOR if isinstance(joined, T.TensorType) else joined)],
                    )._outputs[0]
            return self.graph.insert(
                "prim::TupleConstruct",
                items,
                [T.TupleType(T.TENSOR if isinstance(x.type(), T.TensorType) else x.type() for x in items)],
            )._outputs[0]
        if isinstance(thing, dict):
            pairs = [x for k, v in thing.items() for x in (self.value(k), self.value(v))]
            kinds = {T.TENSOR if isinstance(v.type(), T.TensorType) else v.type() for v in pairs[1::2]}
            if len(kinds) > 1:
                kind_names = " and ".join(sorted(kind.annotation_str for kind in kinds))
                raise RuntimeError(
                    f"[trace] Dictionary inputs to traced functions must have consistent type. Found {kind_names}: expected values of one type in a dict, tuples may differ"
                )
            kind = T.DictType(
                pairs[0].type(), T.TENSOR if isinstance(pairs[1].type(), T.TensorType) else pairs[1].type()
            )
            return self.graph.insert("prim::DictConstruct", pairs, [kind])._outputs[0]
        return python_value(self.recorder, thing, None, constant=True)

    def _object(self, thing: Any) -> Value:
        known = self.known.get(id(thing))
        if known is not None:
            return known[1]
        path = self.paths.get(id(thing))
        if path is not None and self.owner is not None:
            return self._path(path[0], path[1])
        if isinstance(thing, _C.Tensor):
            if thing.requires_grad and not thing.is_leaf:
                raise RuntimeError(
                    "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or detaching the gradient"
                )
            value = self.graph.insertConstant(thing.detach(), T.TENSOR)
            self.known[id(thing)] = (thing, value)
            return value
        raise RuntimeError(f"[trace] expected a tensor or a part of the traced module, got {type(thing).__name__}")

    def _path(self, names: tuple[str, ...], kind: T.JitType) -> Value:
        assert self.owner is not None
        place, own = self.owner, self.owner.type()
        for end, name in enumerate(names, 1):
            part = own.attributes[name]
            key = names[:end]
            if key not in self.getters:
                node = self.graph.insert("prim::GetAttr", [place], [part])
                node.attributes["name"] = ("s", name)
                node._outputs[0].setDebugName(name if name.isidentifier() else f"_{name}")
                self.getters[key] = node._outputs[0]
            place, own = self.getters[key], part
        return place

    # ------------------------------------------------------------------ calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        from flambeau.jit._trace_rules import rule_for

        rule = rule_for(func)
        if rule is not None:
            return rule(self, func, args, kwargs)
        return self.call_recorded(func, args, kwargs)

    def call_recorded(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a call, which becomes a part of the graph."""
        self.graph.current_range = self.recorder.source.range_of(None)
        values, named = [self.value(a) for a in args], {k: self.value(v) for k, v in kwargs.items() if k != "out"}
        result = func(*_plain(args), **_plain(kwargs))
        if "out" in kwargs:
            raise RuntimeError(f"[trace] expected calls without out=, got {func.__name__}(..., out=...)")
        self.record(func, values, named, result)
        return result

    def record(self, func: Any, values: list[Any], named: dict[str, Any], result: Any) -> None:
        """Add the call of a function with its result."""
        if not _has_tensor(result):
            return
        name = func.__name__
        if name in REFLECTED and len(values) == 2:  # Python asks the right operand first where it is a parameter
            operands = [self.recorder.as_value(v, None) for v in reversed(values)]
            self.results(self.recorder.binary(REFLECTED[name], operands[0], operands[1], None), result)
            return
        try:
            callee = python_value(self.recorder, func, None)
        except RuntimeError:
            callee = TensorClass().attr(self.recorder, name, None)
        try:
            returned = self.recorder.call(callee, values, named, None)
        except RuntimeError as error:
            if isinstance(callee, Builtin):
                raise
            try:
                returned = self.recorder.call(Builtin(f"aten::{name}"), values, named, None)
            except RuntimeError:
                raise error from None
        self.results(returned, result)

    def results(self, returned: Any, result: Any) -> None:
        if isinstance(result, _C.Tensor):
            self.bind(result, self.recorder.as_value(returned, None))
        elif isinstance(result, (list, tuple)) and any(_has_tensor(r) for r in result):
            value = self.recorder.as_value(returned, None)
            parts = (
                self.recorder.unpack(value)
                if isinstance(value.type(), T.TupleType)
                else self.recorder.unpack_list(value, len(result), None)
            )
            for item, part in zip(result, parts):
                self.results(part, item)
        elif isinstance(result, dict):
            for key, item in result.items():
                self.results(self.recorder.operator("aten::__getitem__", [returned, self.value(key)], None), item)

    # ------------------------------------------------------------------ the function

    def argument(self, example: Any, name: str) -> Any:
        """An input of the graph for an example, and the object that the function receives."""
        _check_tensors(example, "inputs")
        kind = _values.infer_type(example, element_of_empty=False)
        value = self.graph.addInput(name)
        value.setType(kind)
        return self._spread(example, value)

    def _spread(self, example: Any, value: Value) -> Any:
        if isinstance(example, _C.Tensor):
            twin = example.detach().clone()
            twin.requires_grad_(example.requires_grad) if example.is_floating_point() or example.is_complex() else None
            self.bind(twin, value)
            return twin
        if isinstance(example, tuple):
            parts = self.recorder.unpack(value)
            elements = [self._spread(e, p) for e, p in zip(example, parts)]
            return type(example)(*elements) if hasattr(example, "_fields") else tuple(elements)
        if isinstance(example, list):
            return [self._spread(e, p) for e, p in zip(example, self.recorder.unpack_list(value, len(example), None))]
        if isinstance(example, dict):
            return {
                k: self._spread(
                    v, self.recorder.operator("aten::__getitem__", [value, self.graph.insertConstant(k)], None)
                )
                for k, v in example.items()
            }
        return example

    def output(self, result: Any, strict: bool) -> Value:
        if isinstance(result, dict) and strict:
            raise RuntimeError(
                "Encountering a dict at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change "
                "based on the module's inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` "
                "instead). If you absolutely need this and know the side effects, pass strict=False to trace() to allow this behavior."
            )
        if isinstance(result, list) and strict:
            warnings.warn(
                "Encountering a list at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change based on the module's inputs.",
                jit.TracerWarning,
                stacklevel=4,
            )
        if (isinstance(result, (int, float, str, bool)) and not isinstance(result, TracedInt)) or result is None:
            kind = type(result).__name__
            raise RuntimeError(
                f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, got {kind}"
            )
        return self._output(result)

    def _output(self, result: Any) -> Value:
        if isinstance(result, TracedInt):
            return self.recorder.operator("prim::NumToTensor", [result.value], None)
        if isinstance(result, tuple) and hasattr(result, "_fields"):
            items = [self._output(r) for r in result]
            from flambeau.jit._frontend.annotations import type_of_named_tuple

            return self.graph.insert("prim::TupleConstruct", items, [type_of_named_tuple(type(result))])._outputs[0]
        if isinstance(result, (tuple, list, dict)):
            _check_tensors(result, "results")
        if isinstance(result, tuple):
            items = [self._output(r) for r in result]
            return self.graph.insert(
                "prim::TupleConstruct", items, [T.TupleType(_plain_type(i.type()) for i in items)]
            )._outputs[0]
        if (
            hasattr(result, "__dict__")
            and not isinstance(result, _C.Tensor)
            and isinstance(result, dict)
            and type(result) is not dict
        ):
            return self.value({k: v for k, v in result.items() if v is not None})
        return self.recorder.as_value(self.value(result), None)


def _check_tensors(thing: Any, what: str) -> None:
    """A trace takes and gives tensors and containers of them."""
    if isinstance(thing, (list, tuple)):
        for item in thing:
            _check_tensors(item, what)
    elif isinstance(thing, dict):
        _check_tensors(list(thing.values()), what)
    elif isinstance(thing, (str, bytes, int, float, complex, type(None))) and not isinstance(thing, TracedInt):
        raise RuntimeError(
            f"[trace] expected tensors or (possibly nested) lists, dicts and tuples of tensors as {what}, got {type(thing).__name__}. "
            f"Type '{type(thing).__name__}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
        )


def _plain_type(kind: T.JitType) -> T.JitType:
    return T.TENSOR if isinstance(kind, T.TensorType) else kind


def _plain(thing: Any) -> Any:
    """Arguments with ordinary integers for traced ones."""
    if isinstance(thing, TracedInt):
        return int(thing)
    if type(thing) in (list, tuple) or isinstance(thing, TracedSize):
        kind = tuple if isinstance(thing, TracedSize) else type(thing)
        return kind(_plain(x) for x in thing)
    if type(thing) is dict:
        return {k: _plain(v) for k, v in thing.items()}
    if isinstance(thing, slice):
        return slice(_plain(thing.start), _plain(thing.stop), _plain(thing.step))
    return thing


def _has_tensor(thing: Any) -> bool:
    if isinstance(thing, (list, tuple)):
        return any(_has_tensor(x) for x in thing)
    if isinstance(thing, dict):
        return any(_has_tensor(x) for x in thing.values())
    return isinstance(thing, _C.Tensor)


@contextlib.contextmanager
def _recording(tracer: Tracer) -> Iterator[None]:
    jit._tracing += 1
    _current.append(tracer)
    try:
        with tracer:
            yield
    finally:
        jit._tracing -= 1
        _current.pop()


def current() -> Tracer | None:
    """What records the calls of this moment."""
    return _current[-1] if jit._tracing else None


def record_call(function: Function, args: list[Any]) -> Any:
    """A compiled function that is called while a trace is recorded: the call is recorded as a call."""
    tracer = _current[-1] if _current else None
    if tracer is None:
        return function.run()(*args)
    function.ensure()
    inputs = [tracer.recorder.as_value(tracer.value(a), None) for a in args]
    graph = tracer.graph
    if args and getattr(args[0], "_script_type", None) is not None:
        node = graph.insert("prim::CallMethod", inputs, [function.schema.result_type()])
        node.attributes["name"] = ("s", function.name.rpartition(".")[2])
    else:
        constant = tracer.recorder.function_constant(function)
        node = graph.insert("prim::CallFunction", [constant, *inputs], [function.schema.result_type()])
    node.call = function
    tracer_disabled = _C.DisableTorchFunction() if hasattr(_C, "DisableTorchFunction") else contextlib.nullcontext()
    with tracer_disabled:
        result = function.run()(*_plain(args))
        tracer.results(node._outputs[0], result)
    return result


# ---------------------------------------------------------------------------------------------- trace


def _run(tracer: Tracer, call: Any, names: list[str], examples: list[Any], keywords: bool, strict: bool) -> None:
    arguments = [tracer.argument(e, n) for e, n in zip(examples, names)]
    with _recording(tracer):
        result = call(**dict(zip(names, arguments))) if keywords else call(*arguments)
        output = tracer.output(result, strict)
    tracer.graph.registerOutput(output)
    inline_calls_of_library(tracer.graph)
    fold_branches(tracer.graph)
    clean(tracer.graph)


def inline_calls_of_library(graph: Any) -> None:
    """Functions of the library become operators; functions of the program stay calls."""
    inline_calls(graph, lambda function: function.name.startswith("__torch__.torch."))


def _signature(graph: Graph, name: str) -> Signature:
    arguments = [Argument(v.debugName().partition(".")[0], _plain_type(v.type())) for v in graph._param._outputs]
    return Signature(name, "", arguments, [Argument("", _plain_type(graph._return._inputs[0].type()))])


def _names(call: Any, count: int) -> list[str]:
    import inspect

    try:
        parameters = [
            p.name
            for p in inspect.signature(call).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    return [parameters[i] if i < len(parameters) else f"argument_{i}" for i in range(count)]


def _examples(inputs: Any) -> list[Any]:
    if isinstance(inputs, (_C.Tensor, dict)):
        return [inputs]
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def trace(func: Any, inputs: Any, kwargs: Any, check: bool, check_inputs: Any, tolerance: float, strict: bool) -> Any:
    from flambeau.jit._modules import ScriptModule

    if isinstance(func, (ScriptFunction, ScriptModule)) and getattr(func, "_script_type", True):
        warnings.warn(
            "The input to trace is already a ScriptModule, tracing it is a no-op. Returning the object as is.",
            stacklevel=3,
        )
        return func
    if inputs is None and kwargs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    keywords = kwargs is not None
    if isinstance(func, Module):
        return trace_module(
            func, {"forward": kwargs if keywords else inputs}, check, check_inputs, tolerance, strict, keywords
        )
    if hasattr(func, "__self__") and isinstance(func.__self__, Module) and func.__name__ == "forward":
        return trace_module(
            func.__self__, {"forward": kwargs if keywords else inputs}, check, check_inputs, tolerance, strict, keywords
        )
    names = list(kwargs) if keywords else _names(func, len(_examples(inputs)))
    examples = list(kwargs.values()) if keywords else _examples(inputs)
    name = unique_name(qualified_name(func))
    tracer = Tracer(name)
    _run(tracer, func, names, examples, keywords, strict)
    function = Function.of_graph(name, tracer.graph, _signature(tracer.graph, name.rpartition(".")[2]))
    function.is_traced = True
    traced = ScriptFunction(function, func)
    if check:
        sets = [examples] if check_inputs is None else [_examples(c) for c in check_inputs]
        _check(traced, func, sets, tolerance, names if keywords else None)
    return traced


def trace_module(
    mod: Any,
    inputs: dict[str, Any],
    check: bool,
    check_inputs: Any,
    tolerance: float,
    strict: bool,
    keywords: bool = False,
) -> Any:
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    from flambeau.jit._frontend.modules import has_script_form
    from flambeau.jit._modules import script_module
    from flambeau.jit._traced_modules import script_forms

    if has_script_form(mod):
        return script_module(mod)
    with script_forms(mod):
        return _trace_methods(mod, inputs, check, check_inputs, tolerance, strict, keywords)


def _trace_methods(
    mod: Any, inputs: dict[str, Any], check: bool, check_inputs: Any, tolerance: float, strict: bool, keywords: bool
) -> Any:
    from flambeau.jit._frontend.modules import compile_exports
    from flambeau.jit._modules import ScriptModule, TopLevelTracedModule
    from flambeau.jit._traced_modules import traced_module

    traced, kind, paths = traced_module(mod, TopLevelTracedModule)
    for method, method_inputs in inputs.items():
        call = mod if method == "forward" else getattr(mod, method)
        by_name = keywords and isinstance(method_inputs, dict)
        examples = list(method_inputs.values()) if by_name else _examples(method_inputs)
        names = list(method_inputs) if by_name else _names(mod.forward if method == "forward" else call, len(examples))
        tracer = Tracer(f"{kind.name}.{method}")
        tracer.owner = tracer.graph.addInput("self").setType(kind)
        tracer.paths = paths
        scopes = Scopes(tracer.graph, paths, mod)
        with scopes:
            _run(tracer, call, names, examples, by_name, strict)
        graph = outline(tracer.graph, scopes.calls, kind)
        kind.methods[method] = Function.of_graph(f"{kind.name}.{method}", graph, _signature(graph, method))
        if check:
            sets = (
                [examples]
                if check_inputs is None
                else [_examples(c[method] if isinstance(c, dict) else c) for c in check_inputs]
            )
            _check(traced._method(method), call, sets, tolerance, names if by_name else None)
    for name, module in mod.named_modules():
        part = traced.get_submodule(name)
        if not isinstance(module, ScriptModule):
            compile_exports(module, part, part.__dict__["_script_type"])
    return traced


def _warn_of_random_nodes(graph: Graph) -> None:
    """A trace with random operators cannot be compared with its function."""
    nodes = [node for node in graph.walk() if node.isNondeterministic()]
    if not nodes:
        return
    shown = "\n".join(f"\t{str(node).splitlines()[0].strip()}" for node in nodes[:20])
    warnings.warn(
        f"Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n{shown}\n"
        "This may cause errors in trace checking. To disable trace checking, pass check_trace=False to torch.jit.trace()",
        jit.TracerWarning,
        stacklevel=6,
    )


def _check(traced: Any, call: Any, sets: list[Any], tolerance: float, names: list[str] | None) -> None:
    """Run trace and function on the same inputs and warn about results that differ."""
    import copy

    _warn_of_random_nodes(traced.inlined_graph)

    for examples in sets:
        with flambeau.random.fork_rng(devices=[]), contextlib.suppress(NotImplementedError):
            seed = flambeau.random.get_rng_state()
            first = [copy.deepcopy(_detached(e)) for e in examples]
            second = [copy.deepcopy(_detached(e)) for e in examples]
            expected = call(**dict(zip(names, first))) if names else call(*first)
            flambeau.random.set_rng_state(seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                actual = traced(*second)
        if not _compare(_flat(expected), _flat(actual), tolerance):
            _compare_graphs(traced, call, examples, names)


def _compare_graphs(traced: Any, call: Any, examples: list[Any], names: list[str] | None) -> None:
    """Results differ: raise where a trace with these inputs has other operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keywords = None if names is None else dict(zip(names, examples))
        other = trace(call, None if names else tuple(examples), keywords, False, None, 0.0, False)
    graphs = [[n.kind() for n in one.inlined_graph.walk() if n.kind() != "prim::Constant"] for one in (traced, other)]
    if graphs[0] != graphs[1]:
        difference = f"Graph diff:\n\tthe trace has {graphs[0]}\n\ta trace with the inputs of the check has {graphs[1]}"
        raise TracingCheckError(difference, None)


def _detached(thing: Any) -> Any:
    if isinstance(thing, _C.Tensor):
        return thing.detach().clone().requires_grad_(thing.requires_grad)
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return type(thing)(_detached(x) for x in thing)
    return {k: _detached(v) for k, v in thing.items()} if isinstance(thing, dict) else thing


def _flat(thing: Any) -> list[Any]:
    if isinstance(thing, _C.Tensor):
        return [thing]
    if isinstance(thing, dict):
        return [x for v in thing.values() for x in _flat(v)]
    return [x for v in thing for x in _flat(v)] if isinstance(thing, (list, tuple)) else []


def _compare(expected: list[Any], actual: list[Any], tolerance: float) -> bool:
    """Warn of results that differ; whether all agree."""
    agree = True
    for number, (a, b) in enumerate(zip(expected, actual), 1):
        try:
            flambeau.testing.assert_close(
                b.detach().double() if b.is_floating_point() else b.detach(),
                a.detach().double() if a.is_floating_point() else a.detach(),
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
            )
        except AssertionError as error:
            warnings.warn(
                f"Output nr {number}. of the traced function does not match the corresponding output of the Python function. Detailed error:\n{error}",
                jit.TracerWarning,
                stacklevel=6,
            )
            agree = False
    return agree


def _state_as_inputs(graph: Any, module: Module) -> Any:
    """The graph with parameters and buffers among its inputs, in the order of the state, in place of the module."""
    owner = next(graph.inputs())
    state = module.state_dict(keep_vars=True)
    values = {}
    for path, tensor in state.items():
        values[path] = graph.addInput()
        values[path].inferTypeFrom(tensor)
    paths = {id(owner): ""}
    for node in list(graph.nodes()):
        if node.kind() != "prim::GetAttr" or id(node.input()) not in paths:
            continue
        path = paths[id(node.output())] = f"{paths[id(node.input())]}.{node.s('name')}".removeprefix(".")
        if path in values:
            node.output().replaceAllUsesWith(values[path])
    for node in reversed(list(graph.nodes())):
        if node.kind() == "prim::GetAttr" and not node.output().hasUses():
            node.destroy()
    if not owner.hasUses():
        graph.eraseInput(0)
    return graph


def get_trace_graph(
    f: Any, args: Any = (), kwargs: Any = None, strict: bool = True, return_inputs: bool = False, **options: Any
) -> Any:
    """The graph of a call and its result."""
    args = args if isinstance(args, tuple) else (args,)
    if isinstance(f, Module):
        traced = trace_module(f, {"forward": args}, False, None, 1e-5, strict)
        graph = _state_as_inputs(traced.inlined_graph.copy(), f)
    else:
        graph = trace(f, args, None, False, None, 1e-5, strict).inlined_graph
    return (graph, f(*args), args) if return_inputs else (graph, f(*args))
