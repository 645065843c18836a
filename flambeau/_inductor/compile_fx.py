"""The compiler's entry: a function over tensors becomes a native function that compiles itself for what it meets.

A function is recorded for each geometry of its inputs (sizes, strides, dtypes, which require gradients). That is cheap; the
kernels that come out of it do not depend on sizes and are built once.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence, Set
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._functorch.aot.partition import partition, saved
from flambeau._functorch.aot.trace import Failed, RecordedCall, RecordedValue, Trace, device_of, trace_joint
from flambeau._inductor import config, stages, verify
from flambeau._inductor.convolutions import finish_convolutions, fold_normalizations
from flambeau._inductor.equal import merge_equal_calls
from flambeau._inductor.failures import Origin, report
from flambeau._inductor.freezing import frozen_storages, hoist
from flambeau._inductor.heads import share_heads
from flambeau._inductor.in_place import write_in_place
from flambeau._inductor.ir import Access, Buffer, Loop
from flambeau._inductor.layout import choose_layouts, straighten_rows
from flambeau._inductor.lower import Lowering, defined
from flambeau._inductor.pitch import choose_pitches
from flambeau._inductor.plan import Plan
from flambeau._inductor.printers import OperatorsOnly, Printer, printer_for
from flambeau._inductor.products import finish_products
from flambeau._inductor.quantized import compute_with_integers
from flambeau._inductor.recurrent import transpose_weights
from flambeau._inductor.schedule import schedule
from flambeau._inductor.segments import reads_data, with_segments
from flambeau._inductor.steps import GraphSpec, ProgramSpec
from flambeau._inductor.widening import widen_products
from flambeau.ops import expr as e
from flambeau.ops.recording import DependsOnData

__all__ = ["compile_fx", "compile_tensor_function"]

log = logging.getLogger(__name__)


def compile_fx(
    graph: Any,
    example_inputs: Sequence[Any],
    fuse: bool = True,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """A backend of `compile`: the graph module as a function of the same inputs."""
    settings = config.resolve(mode, options)
    if reads_data(graph):
        return with_segments(graph, lambda segment, inputs: compile_fx(segment, inputs, fuse, mode, options))
    if fuse and hasattr(graph, "graph") and all(isinstance(t, fl.Tensor) for t in example_inputs):
        differentiated = fl.is_grad_enabled() and any(t.requires_grad for t in example_inputs)
        if compute_with_integers(graph, differentiated):
            settings = {"freezing": True, **settings}  # weights are packed once
    function: Callable[..., Any] = getattr(graph, "forward", graph)
    if _returns_number(graph):
        return function
    origin = getattr(graph, "meta", {}).get("origin", Origin())
    if all(isinstance(t, fl.Tensor) for t in example_inputs):
        return compile_tensor_function(
            function,
            len(example_inputs),
            fuse,
            settings=settings,
            members=_members(graph),
            parametric=hasattr(graph, "graph"),
            origin=origin,
        )
    from flambeau._inductor.numbers import with_numbers

    return with_numbers(graph, example_inputs, fuse, settings, origin)


def _members(graph: Any) -> list[int]:
    """Which inputs of a graph are parameters and buffers of modules, which stay from call to call."""
    if not hasattr(graph, "graph"):
        return []
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [i for i, node in enumerate(inputs) if node.meta.get("member")]


def _returns_number(graph: Any) -> bool:
    """Whether a graph reads a number out of a tensor and returns it: programs return tensors only."""
    results = graph.graph.output_node().args[0] if hasattr(graph, "graph") else ()
    results = results if isinstance(results, (tuple, list)) else (results,)
    return any(isinstance(getattr(r, "meta", {}).get("example_value"), (int, float)) for r in results)


def compile_tensor_function(
    function: Callable[..., Any],
    inputs: int,
    fuse: bool = True,
    printer: Printer | None = None,
    settings: dict[str, Any] | None = None,
    members: Sequence[int] = (),
    parametric: bool = False,
    origin: Origin = Origin(),  # noqa: B008
) -> Callable[..., Any]:
    """A function over that many tensors, returning a list of tensors, compiled; without `fuse` every operator of the
    recorded forward and backward runs as it is. Loops are printed by the printer of the inputs' device, or the given.
    `members` are the inputs that `config.freezing` is about. `parametric` is for functions whose control flow does not depend
    on sizes, or is guarded."""
    compiler = GraphCompiler(function, fuse, printer, settings, members, origin)
    return specialized_function(inputs, compiler.graph_for, function, parametric and compiler.parametric)


def specialized_function(
    inputs: int, graph_for: Callable[[list[Any]], Any], original: Callable[..., Any], parametric: bool = False
) -> Callable[..., Any]:
    """A native function that asks for a graph where it has none for its inputs. With `parametric`, graphs for sizes between
    recorded ones are made from those (`csrc/compiled/plan_family.h`)."""
    function: Callable[..., Any] = _C._specialized_function(inputs, graph_for, original, parametric)
    return function


class GraphCompiler:
    """What compiles one function for one geometry after the other."""

    def __init__(
        self,
        function: Callable[..., Any],
        fuse: bool,
        printer: Printer | None = None,
        settings: dict[str, Any] | None = None,
        members: Sequence[int] = (),
        origin: Origin = Origin(),  # noqa: B008
    ) -> None:
        self.function = function
        self.origin = origin
        self.failed = False
        self.settings = settings or {}  # other than those in `config`
        self.fuse = fuse
        self.printer = printer
        self.members = members
        self.kept: dict[str, Any] = {}  # what frozen inputs became, for all geometries
        self.parametric = bool(self.settings.get("parametric_plans", config.parametric_plans))

    def _printer(self, inputs: list[Any]) -> Printer:
        device = device_of(inputs)
        printer = (self.printer or printer_for(device)) if self.fuse else None
        return printer or OperatorsOnly(device)

    def graph_for(self, inputs: list[Any]) -> Any:
        """A native graph for inputs like these; None when the function cannot be one."""
        if self.failed:
            return None
        try:
            with config.patch(self.settings):
                return self._graph_for(inputs)
        except Exception as error:
            report(self.origin, error)
            self.failed = True
            return None

    def _graph_for(self, inputs: list[Any]) -> Any:
        grad_mode = fl.is_grad_enabled()
        printer = self._printer(inputs)
        try:
            record = functools.partial(trace_joint, lines=stages.wanted())
            definitions = printer.definitions() | defined(printer.column_groups) if printer.fuses else {}
            trace = self._trace(record, inputs, definitions)
            if printer.column_groups:
                merge_equal_calls(trace)
            if printer.channels_last:
                choose_layouts(trace, printer.channels_last, printer.channels_last_weights)
            if printer.column_groups:
                straighten_rows(trace)
                share_heads(trace)
                write_in_place(trace)
                widen_products(trace)
            if printer.epilogues and not trace.tangents:
                self._finish(trace)
            if printer.pads_rows and config.shape_padding:
                choose_pitches(trace)
        except DependsOnData as reason:
            level = logging.WARNING if isinstance(reason, Failed) else logging.INFO
            log.log(level, "runs operator by operator: %s", reason)
            return None
        return _C._compiled_graph(self._graph_of(trace, inputs, grad_mode, printer))

    def _finish(self, trace: Trace) -> None:
        """What is done where derivatives are not wanted."""
        members = self.members if config.freezing else ()
        if config.epilogue_fusion:
            finish_convolutions(trace, frozen_storages(trace, members))
        if members:
            fold_normalizations(trace, frozen_storages(trace, members))
        if config.epilogue_fusion:
            finish_products(trace, frozen_storages(trace, members))
        if members:
            transpose_weights(trace, frozen_storages(trace, members))

    def _hoisted(self, trace: Trace, printer: Printer) -> list[tuple[RecordedValue, Any]]:
        """Values that are computed from frozen inputs and kept, which the trace no longer computes."""
        members = self._kept_members(trace) if printer.epilogues else ()
        if not members:
            return []

        def make(calls: list[RecordedCall], inputs: list[int], value: RecordedValue) -> Any:
            values = [trace.inputs[i] for i in inputs]
            return _C._kept(inputs, _program(calls, values, trace, [value], printer, "kept", set()))

        return hoist(trace, members, self.kept, make)

    def _kept_members(self, trace: Trace) -> Sequence[int]:
        """Inputs of which derived values are kept: all members with `config.freezing`, and always weights of 8-bit integers,
        whose packing takes longer than many a product with them."""
        if config.freezing:
            return tuple(self.members)
        return [i for i in self.members if trace.inputs[i].dtype in (fl.int8, fl.uint8)]

    def _graph_of(self, trace: Trace, inputs: list[Any], grad_mode: bool, printer: Printer) -> GraphSpec:
        unaligned = _unaligned(trace, inputs) if printer.specializes_alignment else set()
        if not trace.tangents:
            hoisted = self._hoisted(trace, printer)
            forward = _program(
                trace.calls, trace.inputs, trace, trace.outputs, printer, "inference", unaligned, hoisted
            )
            return GraphSpec(inputs, grad_mode, forward, len(trace.outputs))
        forward_calls = trace.calls[: trace.forward_calls]
        backward_calls = _live(trace.calls[trace.forward_calls :], [g for g in trace.gradients if g is not None])
        if printer.fuses:
            backward_calls = partition(trace, forward_calls, backward_calls, _budget(), printer.saves_shared_operands)
        held = saved(backward_calls, trace)
        forward = _program(forward_calls, trace.inputs, trace, [*trace.outputs, *held], printer, "forward", unaligned)
        wanted = [i for i, g in enumerate(trace.gradients) if g is not None]
        gradients = [trace.gradients[i] for i in wanted]
        backward_inputs = [*held, *trace.tangents]
        seen = {v.storage for v in (*trace.inputs, *trace.outputs, *trace.tangents) if v is not None}
        seen |= {v.storage for v, _ in trace.constants.values()}
        own = {v.storage for v in held} - seen  # which nobody but backward knows
        backward = _program(
            backward_calls, backward_inputs, trace, gradients, printer, "backward", unaligned, donated=own
        )
        return GraphSpec(
            inputs,
            grad_mode,
            forward,
            len(trace.outputs),
            backward,
            wanted,
            trace.sources,
            [v.stride for v in trace.tangents],
            trace.families,
            functools.partial(self._recorded, trace.sources),
        )

    def _trace(self, record: Callable[..., Trace], inputs: Sequence[Any], definitions: Any) -> Trace:
        return record(self.function, inputs, definitions)

    def _recorded(self, sources: list[int], inputs: list[Any], grads: list[Any]) -> list[Any]:
        """Gradients of the inputs by the original function, recorded for further derivatives."""
        with fl.enable_grad():
            results = self.function(*inputs)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            wanted = [t for t in inputs if t.requires_grad]
            gradients = fl.autograd.grad(
                [results[k] for k in sources], wanted, grads, create_graph=True, allow_unused=True
            )
        return [g for g in gradients if g is not None]


def _unaligned(trace: Trace, inputs: Sequence[Any]) -> set[int]:
    """Storages whose addresses are not multiples of sixteen, which the kernels of accelerators ask about."""
    tensors = [*zip(trace.inputs, inputs), *trace.constants.values()]
    return {value.storage for value, tensor in tensors if tensor.data_ptr() % 16}


def _live(calls: list[RecordedCall], wanted: list[RecordedValue]) -> list[RecordedCall]:
    """Calls whose results somebody uses, and all that write."""
    needed = {v.storage for v in wanted}
    live = []
    for call in reversed(calls):
        if call.writes or any(v is not None and v.storage in needed for v in call.results):
            live.append(call)
            needed |= {v.storage for v in call.reads}
    return live[::-1]


def _program(
    calls: list[RecordedCall],
    inputs: list[RecordedValue],
    trace: Trace,
    outputs: list[RecordedValue | None],
    printer: Printer,
    title: str,
    unaligned: set[int],
    hoisted: Sequence[tuple[RecordedValue, Any]] = (),
    donated: Set[int] = frozenset(),
) -> ProgramSpec:
    shown = stages.Stages(title)
    shown.recorded(calls, inputs, outputs)
    owners = {v.storage for call in calls for v in call.writes} | {v.storage for v in outputs if v is not None}
    lowering = Lowering(printer, frozenset(owners), trace.host, unaligned, trace.padded)
    input_buffers = [lowering.enter(v, "input") for v in inputs]
    used = {v.storage for call in calls for v in call.reads} | {v.storage for v in outputs if v is not None}
    constants = [(lowering.enter(v, "constant"), tensor) for v, tensor in trace.constants.values() if v.storage in used]
    constants += [(lowering.enter(v, "constant"), keeper) for v, keeper in hoisted]
    for call in calls:
        lowering.lower(call)
    last = []
    for value, buffer in zip(inputs, input_buffers):
        state = lowering.current[value.storage]
        if state.memory is not buffer.memory:
            last.append(_write_back(value, buffer, state, lowering))
    items = lowering.needed(last, outputs)
    shown.lowered([*items, *last])
    steps = schedule(items, last, columns=printer.column_groups)
    shown.scheduled(steps)
    replay = config.triton.cudagraphs and printer.records_graphs
    # A recorded program reads its inputs where they lie in every run.
    free = [] if replay else [buffer for value, buffer in zip(inputs, input_buffers) if value.storage in donated]
    plan = Plan(lowering, input_buffers, constants, inputs, trace.device, replay, free)
    program = plan.run(steps, outputs)
    shown.printed(plan.launches)
    shown.planned(program)
    if config.verify_stages:
        known = [*input_buffers, *(buffer for buffer, _ in constants)]
        verify.verify_lowered([*items, *last], known)
        verify.verify_scheduled(steps, known, sum(isinstance(i, Loop) for i in (*items, *last)))
        verify.verify_memory(plan.memory_plan)
        verify.verify_planned(program)
    return program


def _budget() -> float:
    """The fraction of what forward saves by default that it may save."""
    from flambeau._functorch import config as functorch

    return functorch.activation_memory_budget if config.memory_budget is None else config.memory_budget


def _write_back(value: RecordedValue, buffer: Any, state: Any, lowering: Lowering) -> Loop:
    """Copies the last state of a written input into its own memory."""
    target = Buffer(lowering.count, buffer.dtype, buffer.size, buffer.stride, "loop")
    lowering.count += 1
    target.memory = buffer.memory
    strides = tuple(0 if n == 1 else s for n, s in zip(value.size, value.stride))
    lowering.current[value.storage] = target
    return Loop(
        "write back", value.size, e.Expr("load", 0), [Access(state, value.offset, strides)],
        Access(target, value.offset, strides), buffer.dtype,
    )  # fmt: skip
