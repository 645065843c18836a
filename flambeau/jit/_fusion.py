"""Programs that have run a few times are handed to the compiler.

The inlined graph of a function becomes one Python function: attributes of modules that it reads are arguments, control flow over numbers is Python's. `compile` captures it as one graph,
with a guard for each number, and gradients flow as in compiled modules. Where the whole cannot be captured so (branches on tensors, objects, calls of Python, random numbers), its
straight-line parts are compiled (`_regions`), and the rest runs statement by statement.
"""

from __future__ import annotations

import weakref
from typing import Any

import flambeau
from flambeau import _C, jit
from flambeau._dynamo.breaks import GraphBreakError
from flambeau._inductor.failures import Origin, report
from flambeau.jit import _types as T
from flambeau.jit._ir import Graph, Node, Value

WARM_UP = 6  # calls before a program is compiled
SMALLEST = 3  # operators on tensors that make compiling worth its time

_TAKEN = frozenset(
    "prim::" + name
    for name in "Constant ListConstruct TupleConstruct TupleUnpack TupleIndex TupleSlice ListUnpack GetAttr If Loop RaiseException unchecked_cast "
    "unchecked_unwrap_optional annotate Uninitialized NumToTensor dtype device type is_cpu is_cuda is_nested requires_grad min max abs".split()
)


class Unsuitable(Exception):
    """A program that is not handed to the compiler."""


def execute(function: Any, args: list[Any]) -> Any:
    """Run a function that Python called: by its region, once there is one."""
    region = function._region
    if region is None:
        function._calls += 1
        if function._calls <= WARM_UP or not jit._optimize:
            return function.run()(*args)
        region = function._region = _region(function)
    if region is False or not is_ordinary(args):
        return function.run()(*args)
    return region(args)


def _region(function: Any) -> Any:
    try:
        return Region(function)
    except Unsuitable:
        return split(function)


def split(function: Any) -> Any:
    """The function with its straight-line parts compiled; False where there are none."""
    from flambeau.jit._regions import Split

    try:
        return Split(function)
    except Unsuitable:
        return False


def is_ordinary(args: Any) -> bool:
    """Whether nothing looks over the shoulder of the call: modes, tracing, subclasses of tensors."""
    if _C._len_torch_function_stack() or _C._len_torch_dispatch_stack() or flambeau.compiler.is_compiling():
        return False
    kinds = (_C.Tensor, flambeau.Tensor, flambeau.nn.Parameter)
    return jit._optimize and all(type(x) in kinds for x in args if isinstance(x, _C.Tensor))


Reads = dict[tuple[tuple[str, ...], str], Value]


def lift_attributes(graph: Graph, is_method: bool) -> Reads:
    """Turn the attributes of modules that a graph reads into arguments; raises Unsuitable where a module is used for more."""
    places: dict[int, tuple[str, ...]] = {}
    if is_method:
        places[id(graph._param._outputs[0])] = ()
    names: Reads = {}
    for node in list(graph.walk()):
        if node._kind != "prim::GetAttr":
            continue
        path = places.get(id(node._inputs[0]))
        if path is None:
            raise Unsuitable
        output, name = node._outputs[0], node.attribute("name")
        if isinstance(output.type(), T.ClassType):
            places[id(output)] = (*path, name)
        elif (path, name) in names:
            output.replaceAllUsesWith(names[path, name])
        else:
            names[path, name] = argument = graph.addInput(None).setType(output.type())
            output.replaceAllUsesWith(argument)
    for node in reversed([n for n in graph.walk() if n._kind == "prim::GetAttr"]):
        if any(use.user._kind != "prim::GetAttr" for use in node._outputs[0]._uses):
            raise Unsuitable
        node.destroy()
    return names


def stored(reads: list[tuple[tuple[str, ...], str]], owner: Any) -> list[tuple[dict[str, Any], str]]:
    """Where the attributes of a module are stored."""
    sources = []
    for path, name in reads:
        module = owner
        for part in path:
            module = module._modules[part]
        tables = (module._parameters, module._buffers, module.__dict__)
        table = next((t for t in tables if name in t), None)
        if table is None:
            raise Unsuitable
        sources.append((table, name))
    return sources


class Region:
    """The compiled form of a function."""

    def __init__(self, function: Any) -> None:
        from flambeau.jit._passes import inlined

        self.function = function
        graph = inlined(function.graph)
        drop_round_trips(graph)
        _check(graph)
        self.reads: list[tuple[tuple[str, ...], str]] = []  # the path of a module, and its attribute
        self.off: list[int] = []  # attributes that must be false: those that turn on dropout
        self.is_method = bool(graph._param._outputs) and isinstance(graph._param._outputs[0].type(), T.ClassType)
        self.compiled = flambeau.compile(self._body(graph), fullgraph=True)
        self.sources: weakref.WeakKeyDictionary[Any, list[tuple[dict[str, Any], str]]] = weakref.WeakKeyDictionary()
        self.fronts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def _body(self, graph: Graph) -> Any:
        """The function over attributes and arguments."""
        from flambeau.jit._lower import Lowering

        names = lift_attributes(graph, self.is_method)
        self.reads = list(names)
        self._note_dropout(graph, {id(value): i for i, value in enumerate(names.values())})
        if self.is_method:
            if graph._param._outputs[0]._uses:
                raise Unsuitable
            graph._param.eraseOutput(0)
        lowering = Lowering(graph, self.function.name)
        scope = lowering.scope
        exec(compile(lowering.text(), f"<region of {self.function.name}>", "exec"), scope)
        return scope["_function"]

    def _note_dropout(self, graph: Graph, places: dict[int, int]) -> None:
        for node in graph.walk():
            if not node.isNondeterministic():
                continue
            place = places.get(id(node._inputs[2])) if "dropout" in node._kind else None
            if place is None:
                raise Unsuitable
            self.off.append(place)

    def front(self, owner: Any) -> Any:
        """The quick way in for a function, or for one module."""
        sources = [(None if table is owner.__dict__ else table, name) for table, name in self.sources.get(owner, ())]
        tensors = self.function.tensors(1 if self.is_method else 0)
        self.fronts[owner] = front = _C.ScriptFront(self.compiled, max(tensors, 0), sources, self.off)
        if tensors < 0:
            front.retire()
        return front

    def retire(self) -> None:
        for front in self.fronts.values():
            front.retire()

    def __call__(self, args: list[Any]) -> Any:
        state: list[Any] = []
        inputs = args
        if self.is_method:
            sources = self.sources.get(args[0])
            if sources is None:
                try:
                    sources = self.sources[args[0]] = stored(self.reads, args[0])
                except Unsuitable:
                    self.retire()
                    self.function._region = split(self.function)
                    return self.function.run()(*args)
            state = [table[name] for table, name in sources]
            inputs = args[1:]
        if any(state[i] for i in self.off):
            return self.function.run()(*args)
        try:
            result = self.compiled(*inputs, *state)
            if self.is_method and self.function.name.endswith(".forward") and "_script_front" not in args[0].__dict__:
                args[0].__dict__["_script_front"] = self.front(args[0])
            return result
        except Exception as error:
            # An error of the program is raised again here, with its line, and the region stays.
            result = self.function.run()(*args)
            self.retire()
            self.function._region = split(self.function) if isinstance(error, GraphBreakError) else False
            if not isinstance(error, GraphBreakError):  # what cannot be captured runs as before
                report(Origin(f"the script {self.function.name}"), error)
            return result


_TO_NUMBER = frozenset({"aten::Int", "aten::IntImplicit", "aten::ScalarImplicit", "aten::item"})


_ARITHMETIC = {
    "aten::mul": "aten::mul",
    "aten::add": "aten::add",
    "aten::sub": "aten::sub",
    "aten::floor_divide": "aten::floordiv",
}


def drop_round_trips(graph: Graph) -> None:
    """Sizes that traces of PyTorch turn into tensors, compute with and turn back."""
    from flambeau.jit._passes import eliminate_dead_code

    for node in list(graph.walk()):
        if node._kind in _TO_NUMBER:
            number = _number(node._inputs[0])
            if number is not None:
                node._outputs[0].replaceAllUsesWith(number)
    eliminate_dead_code(graph)


def _number(value: Value) -> Value | None:
    """The integer that a tensor was made of, or None."""
    node = value.node()
    if node._kind == "prim::NumToTensor":
        return node._inputs[0]
    constant = node.attributes.get("value", ("", None))[1] if node._kind == "prim::Constant" else None
    if isinstance(constant, _C.Tensor) and constant.dim() == 0 and constant.dtype == flambeau.int64:
        constant = int(constant)
    if type(constant) is int:
        return _inserted(node, node.graph.create("prim::Constant", [], 1), T.INT, ("i", constant))
    if node._kind not in _ARITHMETIC or (len(node._inputs) > 2 and node._inputs[2].toIValue() != 1):
        return None
    operands = [_number(operand) for operand in node._inputs[:2]]
    if operands[0] is None or operands[1] is None:
        return None
    return _inserted(node, node.graph.create(_ARITHMETIC[node._kind], operands, 1), T.INT)


def _inserted(place: Node, node: Node, kind: T.JitType, constant: Any = None) -> Value:
    """The output of a new node, put behind another one."""
    if constant is not None:
        node.attributes["value"] = constant
    block = place.owner
    assert block is not None
    node.owner = block
    block._nodes.insert(block._nodes.index(place) + 1, node)
    return node._outputs[0].setType(kind)


def _check(graph: Graph) -> None:
    tensors = 0
    for node in graph.walk():
        if node._kind not in _TAKEN and not node._kind.startswith("aten::"):
            raise Unsuitable(node._kind)
        tensors += computes(node)
    if tensors < SMALLEST or any(not _plain(v.type()) for v in graph._return._inputs):
        raise Unsuitable


def computes(node: Node) -> bool:
    return node._kind.startswith("aten::") and any(isinstance(o.type(), T.TensorType) for o in node._outputs)


def _plain(kind: T.JitType) -> bool:
    """Results that compiled functions return as they are: tensors and tuples of them."""
    if isinstance(kind, T.TupleType):
        return kind.name is None and all(_plain(part) for part in kind.contained())
    return isinstance(kind, T.TensorType)
