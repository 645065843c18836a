"""Scripts with control flow for ONNX: their graphs become modules that call `cond` and `while_loop`.

A scripted module is not captured from its Python but from its graph. Branches on tensors and loops become the higher-order operators that `export` keeps as graphs, and those ONNX's If and
Loop. Numbers that a loop changes, or that are read from tensors, become tensors without dimensions.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._lower import SYMBOLS, Lowering
from flambeau.jit._passes import fold_branches, inlined

_NUMBERS = {T.INT: "int64", T.FLOAT: "float32", T.BOOL: "bool"}


# Operators that read a number from a tensor, and the dtype that it has.
_READS = {
    "aten::Int": "int64", "aten::IntImplicit": "int64", "aten::Float": "float32", "aten::FloatImplicit": "float32",
    "aten::Bool": "bool", "aten::ScalarImplicit": None, "aten::item": None,
}  # fmt: skip


def has_control_flow(graph: Graph, from_data: set[int]) -> bool:
    """Whether a graph branches on tensors or loops."""
    return any(
        node._kind == "prim::Loop"
        or (node._kind == "prim::If" and (_condition(node) is not None or id(node._inputs[0]) in from_data))
        for node in graph.walk()
    )


def numbers_from_data(graph: Graph, examples: list[Any]) -> set[int]:
    """The numbers (by identity) that depend on what tensors hold, or on how often a loop ran. Where an example argument for a
    number is a tensor, that number is one."""
    arguments = zip(graph._param._outputs[1:], examples)
    numbers = {id(value) for value, one in arguments if value.type() in _NUMBERS and isinstance(one, fl.Tensor)}
    before = -1
    while before != len(numbers):
        before = len(numbers)
        for node in graph.walk():
            numbers |= {id(value) for value in _new_numbers(node, numbers) if value.type() in _NUMBERS}
    return numbers


def _new_numbers(node: Node, numbers: set[int]) -> list[Value]:
    reads = any(id(value) in numbers for value in node._inputs)
    if node._kind == "prim::Loop":
        return [*node._blocks[0]._param._outputs, *node._outputs]
    if node._kind == "prim::If":
        if reads or _condition(node) is not None:
            return list(node._outputs)
        branches = [block._return._inputs for block in node._blocks]
        return [out for out, *values in zip(node._outputs, *branches) if any(id(value) in numbers for value in values)]
    if node._kind in _READS and isinstance(node._inputs[0].type(), T.TensorType):
        return list(node._outputs)
    return list(node._outputs) if reads else []


def _condition(node: Node) -> Value | None:
    """The tensor that a branch asks for its value."""
    source = node._inputs[0].node()
    if source._kind == "aten::Bool" and isinstance(source._inputs[0].type(), T.TensorType):
        return source._inputs[0]
    return None


def as_module(scripted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], always: bool) -> Any:
    """A module that runs the graph of a scripted one through higher-order operators, with its parameters and buffers. None if it
    has no control flow, unless a module is `always` wanted."""
    function = scripted._method("forward").function.ensure()
    graph = inlined(function.graph)
    fold_branches(graph)
    names = [argument.name for argument in function.schema.arguments[1 + len(args) :]]
    from_data = numbers_from_data(graph, [*args, *(kwargs.get(name) for name in names)])
    if not always and not has_control_flow(graph, from_data):
        return None
    lowering = _HigherOrder(graph, function.name)
    lowering.from_data = from_data
    text = lowering.text()
    exec(compile(text, f"<script {function.name}>", "exec"), lowering.scope)
    return _Program(scripted, lowering.scope["_function"], [a.name for a in function.schema.arguments[1:]])


class _Program(fl.nn.Module):
    def __init__(self, scripted: Any, function: Any, names: list[str]) -> None:
        super().__init__()
        for name, value in scripted._parameters.items():
            self.register_parameter(name, value)
        for name, value in scripted._buffers.items():
            self.register_buffer(name, value)
        for name, child in scripted._modules.items():
            self.add_module(name, _holder(child))
        _copy_plain(scripted, self)
        scope: dict[str, Any] = {"_function": function}
        exec(f"def forward(self, {', '.join(names)}):\n    return _function(self, {', '.join(names)})\n", scope)
        self.forward = scope["forward"].__get__(self)


def _copy_plain(source: Any, target: Any) -> None:
    for name in source.__dict__["_script_type"].attributes:
        if name in source.__dict__:
            target.__dict__[name] = source.__dict__[name]


def _holder(module: Any) -> Any:
    """A module with the state of a scripted one and without its program."""
    held = fl.nn.Module()
    held._parameters.update(module._parameters)
    held._buffers.update(module._buffers)
    _copy_plain(module, held)
    for name, child in module._modules.items():
        held._modules[name] = _holder(child)
    return held


class _HigherOrder(Lowering):
    """Text in which branches on tensors and loops are calls of `cond` and `while_loop`."""

    from_data: set[int]

    def prim_If(self, node: Node, depth: int) -> None:
        condition = _condition(node)
        if condition is None and id(node._inputs[0]) in self.from_data:
            condition = node._inputs[0]
        if condition is None:
            super().prim_If(node, depth)
            return
        outputs = [self.new(o) for o in node._outputs]
        tag = len(self.lines)
        for name, block in zip(("then", "else"), node._blocks):
            self.line(depth, f"def _{name}_{tag}():", node)
            self._body(block, depth + 1)
        called = f"{self.bind(fl.cond, 'cond')}({self.of(condition)}, _then_{tag}, _else_{tag}, ())"
        if outputs:
            self.line(depth, f"{', '.join(outputs)}, = {called}", node)

    def _body(self, block: Block, depth: int) -> None:
        self.block(block, depth)
        values = [self.of_tensor(v) for v in block._return._inputs]
        self.line(depth, f"return ({', '.join(values)}{',' if values else ''})", None)

    def of_tensor(self, value: Value) -> str:
        """A value as a tensor: numbers become tensors without dimensions."""
        dtype = _NUMBERS.get(value.type())
        return self.of(value) if dtype is None else f"{self.bind(_tensor, 'tensor')}({self.of(value)}, {dtype!r})"

    def prim_Loop(self, node: Node, depth: int) -> None:
        from flambeau._higher_order_ops import while_loop

        block = node._blocks[0]
        tag = len(self.lines)
        end = self.of(node._inputs[0])
        self.line(depth, f"_end_{tag} = {self.bind(_tensor, 'tensor')}({end}, 'int64')", node)
        carried = [self.of_tensor(v) for v in node._inputs[2:]]
        parameters = [self.new(v) for v in block._param._outputs]
        heads = ", ".join([parameters[0], f"_go_{tag}", *parameters[1:]])
        self.line(depth, f"def _goes_{tag}({heads}):", node)
        self.line(depth + 1, f"return ({parameters[0]} < _end_{tag}) & _go_{tag}", None)
        self.line(depth, f"def _step_{tag}({heads}):", node)
        self.block(block, depth + 1)
        going, *results = block._return._inputs
        tensors = [f"{parameters[0]} + 1", self._going(going), *[self.of_tensor(v) for v in results]]
        self.line(depth + 1, f"return ({', '.join(tensors)})", None)
        tensor = self.bind(_tensor, "tensor")
        first = [f"{tensor}(0, 'int64')", self._going(node._inputs[1]), *carried]
        names = [self.new(o) for o in node._outputs]
        loop = f"{self.bind(while_loop, 'while_loop')}(_goes_{tag}, _step_{tag}, ({', '.join(first)},))"
        self.line(depth, f"{', '.join(['_', '_', *names])}, = {loop}", node)

    def _going(self, value: Value) -> str:
        """Whether the loop goes on, as a tensor."""
        source = value.node()
        if source._kind == "aten::Bool" and isinstance(source._inputs[0].type(), T.TensorType):
            return self.of(source._inputs[0])
        if id(value) in self.from_data:
            return self.of(value)
        return f"{self.bind(_tensor, 'tensor')}({self.of(value)}, 'bool')"

    def operator(self, node: Node, depth: int) -> None:
        if node._kind == "aten::Bool" and isinstance(node._inputs[0].type(), T.TensorType):
            uses = node._outputs[0]._uses
            if all(u.user._kind in ("prim::If", "prim::Loop", "prim::Return") for u in uses):
                self.names[id(node._outputs[0])] = self.of(node._inputs[0])
                return
        name = node._kind.partition("::")[2]
        if node._kind == "aten::select" and id(node._inputs[2]) in self.from_data:
            inputs = [self.of(v) for v in node._inputs]
            self.assign(node, depth, f"{self.bind(_select, 'select')}({', '.join(inputs)})")
            return
        if any(id(output) in self.from_data for output in node._outputs):
            inputs = [self.of(v) for v in node._inputs]
            if node._kind in _READS:
                self.assign(node, depth, f"{self.bind(_tensor, 'tensor')}({inputs[0]}, {_READS[node._kind]!r})")
                return
            function = _tensor_function(name, node._outputs[0].type())
            if function is not None:
                arguments = ", ".join([repr(function), *inputs])
                self.assign(node, depth, f"{self.bind(_of_tensors, 'of_tensors')}({arguments})")
                return
        super().operator(node, depth)

    def _scalar_operator(self, node: Node, depth: int, expression: str, wraps: bool) -> None:
        super()._scalar_operator(node, depth, expression, wraps and id(node._outputs[0]) not in self.from_data)


def _tensor(value: Any, dtype: str | None) -> Any:
    """A number as a tensor without dimensions, of a dtype or that of the tensor it is read from."""
    if isinstance(value, fl.Tensor):
        value = value if value.ndim == 0 else value.reshape(())
        return value if dtype is None else value.to(getattr(fl, dtype))
    return fl.full((), value, dtype=None if dtype is None else getattr(fl, dtype))


def _tensor_function(name: str, kind: T.JitType) -> str | None:
    """The function on tensors for an operator on numbers; None where Python's operator works on both."""
    if name == "floordiv":
        return "floor_divide"
    if name in SYMBOLS:
        return None
    if name.startswith("__"):
        name = f"{'logical' if kind == T.BOOL else 'bitwise'}_{name.strip('_')}"
    name = f"{name}imum" if name in ("max", "min") else name
    return name if hasattr(fl, name) else None


def _of_tensors(name: str, *values: Any) -> Any:
    """An operator on numbers some of which are tensors."""
    tensors = [value if isinstance(value, fl.Tensor) else fl.full((), value) for value in values]
    return getattr(fl, name)(*tensors)


def _select(x: Any, dim: int, index: Any) -> Any:
    """A part whose index is a tensor."""
    return x.index_select(dim, index.reshape(1)).squeeze(dim)
