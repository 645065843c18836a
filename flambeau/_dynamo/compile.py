"""From a call that no artifact fits to a new artifact: capture, backend, guards.

`Settings` is what `compile()` was asked for; a `Unit` is one function (or the rest of one) compiled with them. The native
`GuardedFunction` calls `Unit.compile` on a miss.
"""

from __future__ import annotations

import dis
import inspect
import os
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import _C
from flambeau import _logging as logs
from flambeau._dynamo import backends, breaks, calls, config, exc, functions, guards, interpreter, overriding, wrappers
from flambeau._dynamo.break_code import BreakCode
from flambeau._dynamo.breaks import Break, GraphBreakError, Restart, SkipFrame, Unsupported, UserError
from flambeau._dynamo.bytecode import Handler
from flambeau._dynamo.interpreter import Frame, _BreakHere
from flambeau._dynamo.kinds import fl_module
from flambeau._dynamo.rebuild import Rebuilder, member_root
from flambeau._dynamo.resume import make_resume_code
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import NULL, Lazy, TracedTensor
from flambeau._dynamo.utils import counters
from flambeau._inductor import failures
from flambeau._inductor.failures import BackendError, Origin
from flambeau._subclasses.fake_values import disabled
from flambeau.fx.graph_module import GraphModule
from flambeau.nn.modules import blame

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_lock = threading.RLock()
_active = threading.local()
_units: weakref.WeakSet[Any] = weakref.WeakSet()


class Settings:
    """The options of one compile() call, shared by all functions it leads to."""

    def __init__(
        self, backend: Any, fullgraph: bool = False, dynamic: bool | None = None, options: dict[str, Any] | None = None
    ) -> None:
        config.check_environment()
        self.backend_name = backend
        self.backend = backends.lookup_backend(backend)
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.options = options or {}
        self.guard_filter: Any = None  # a function of the program's that chooses which facts are guarded
        if "guard_filter_fn" in (self.options.get("options") or {}):
            own = dict(self.options["options"])
            self.guard_filter = own.pop("guard_filter_fn")
            self.options = {**self.options, "options": own}
        self.nested: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.nested_counts: dict[types.CodeType, int] = {}
        self.report: Report | None = None

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function that could not be inlined as a whole; parts of it may be captured."""
        target = self.target(function)
        if target is not None:
            try:
                return target(*args, **kwargs)
            except Exception as error:
                if isinstance(function, fl_module()):
                    blame.locate(function, error, args)
                raise
        if not config.frame_hook:
            return function(*args, **kwargs)
        return _C._call_hooked(self.choose, function, *args, **kwargs)

    def choose(self, function: Any) -> Any:
        """The compiled form of a function whose frame the hook has seen; None when its code is never captured."""
        if not _is_worth_capturing(function):
            return None
        return self.target(function)

    def target(self, function: Any) -> Any:
        """The compiled form of a callable, or None when it is to be called as it is."""
        if isinstance(function, types.MethodType):
            inner = self.target(function.__func__)
            return None if inner is None else types.MethodType(inner, function.__self__)
        module = fl_module()
        if module != () and isinstance(function, module):
            state = function.__dict__
            hooked = any(state.get(name) for name in calls._HOOKS) or calls.has_global_hooks()
            if hooked or state.get("_compiled_call_impl") is not None or "__call__" in type(function).__dict__:
                return None
            forward = function.forward
            return self.target(forward) if isinstance(forward, types.MethodType) else None
        if not isinstance(function, types.FunctionType) or not _is_worth_capturing(function):
            return None
        compiled = self.nested.get(function)
        if compiled is None:
            count = self.nested_counts.get(function.__code__, 0)
            if count >= config.recompile_limit:
                return None
            self.nested_counts[function.__code__] = count + 1
            compiled = self.nested[function] = Unit(function, self).compiled
        return compiled


class Report:
    """What explain() tells."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.breaks: list[Break] = []
        self.guards: list[str] = []
        self.operations = 0
        self.times: list[float] = []
        self.artifacts: list[str] = []
        self.skips: list[str] = []


class ResumePoint(NamedTuple):
    """Where a resume function begins: what its prologue restores, and the instruction that follows it."""

    offset: int
    stack: list[bool]  # of each entry of the value stack, whether it holds a value (and not NULL)
    slots: list[int]  # of the frame, whose values follow


class Unit:
    """A function, or the rest of one after a graph break, and how to compile it."""

    def __init__(self, function: Any, settings: Settings, start: ResumePoint | None = None) -> None:
        self.function = function
        self.settings = settings
        self.start = start  # of a resume function
        # A resume function continues the function it was made from: what continues it, continues that one.
        self.origin: Unit = self
        self.prologue = self.slot_shift = 0
        self.resumes: dict[Any, Any] = {}
        self.compiled = _C.GuardedFunction(function, self.compile)
        self.artifacts = 0
        self.met = False  # was called already, under the stance eager_then_compile
        self.moving: set[str] = set()  # places of numbers that made guards fail
        _units.add(self.compiled)

    # ------------------------------------------------------------------------------------------ compiling

    def compile(self, compiled: Any, arguments: tuple[Any, ...]) -> Any:
        """(guards, artifact) for a call with these arguments, or None to run the original."""
        if getattr(_active, "tracing", False) or not config.enabled:
            return None
        if config.stance != "default" and not self._may_compile():
            return None
        before = compiled._count()
        with _lock:
            if compiled._count() != before:
                return True  # another thread compiled it meanwhile; its artifact may do
            _active.tracing = True
            try:
                return self._compile(compiled, arguments)
            finally:
                _active.tracing = False

    def _may_compile(self) -> bool:
        """What the stance (see `compiler.set_stance`) says of a call that no artifact fits."""
        if config.stance == "fail_on_recompile":
            raise RuntimeError(
                f"[compile] expected an artifact for {self._where()}, got a call that needs a new one: Detected recompile "
                "when torch.compile stance is 'fail_on_recompile'"
            )
        met, self.met = self.met, True
        return config.stance == "eager_then_compile" and met

    def _compile(self, compiled: Any, arguments: tuple[Any, ...]) -> Any:
        functions.prepare()
        interpreter.prepare()
        if self.artifacts and config.error_on_recompile:
            raise exc.RecompileError(
                f"[compile] expected {self._where()} to be compiled once, got a call that needs another artifact: Recompiling "
                f"function; {self._failure(compiled)}"
            )
        if self.artifacts >= config.recompile_limit:
            if config.fail_on_recompile_limit_hit:
                raise exc.FailOnRecompileLimitHit(
                    f"[compile] expected at most {config.recompile_limit} artifacts of {self._where()}, got a call that needs one "
                    f"more: recompile_limit reached with fail_on_recompile_limit_hit=True. {self._failure(compiled)}"
                )
            self._give_up(compiled)
            return None
        counters["frames"]["total"] += 1
        if self.artifacts:
            counters["recompiles"][self._where()] += 1
            self.moving.update(place for place in compiled._failures() if place)
        if self.artifacts and logs.enabled("recompiles"):
            logs.log("recompiles", f"{self._where()}: {self._failure(compiled)}")
        begin = time.perf_counter()
        grad, inference = _C.is_grad_enabled(), _C.is_inference_mode_enabled()
        try:
            guarded_artifact = self._capture(arguments)
            counters["frames"]["ok"] += 1
        except SkipFrame as skip:
            guarded_artifact = self._skip(skip.reason)
        except (GraphBreakError, BackendError, exc.ConstraintViolationError):
            raise
        except Exception as error:
            if not config.suppress_errors:
                raise
            failures.report(self._origin(), error)
            guarded_artifact = self._skip(f"capture failed: {type(error).__name__}: {error}")
        finally:
            _C._set_grad_enabled(grad)
            if _C.is_inference_mode_enabled() != inference:
                _C._set_inference_mode(inference)
        self.artifacts += 1
        report = self.settings.report
        if report is not None:
            report.times.append(time.perf_counter() - begin)
        return guarded_artifact

    def _skip(self, reason: str) -> Any:
        report = self.settings.report
        if report is not None:
            report.skips.append(f"{self._where()}: {reason}")
        logs.log("graph_breaks", f"{self._where()} runs in plain Python: {reason}")
        if self.settings.fullgraph and self.settings.report is None:
            code = self.function.__code__
            record = Break(breaks.INTERNAL, reason, code.co_filename, code.co_firstlineno, code.co_name)
            if not reason.startswith("the program raises"):
                raise GraphBreakError(record)
        self.compiled._skip()
        return None

    def _origin(self) -> Origin:
        strict = self.settings.fullgraph and self.settings.report is None
        return Origin(self._where(), strict)

    def _where(self) -> str:
        code = self.function.__code__
        return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"

    def _failure(self, compiled: Any) -> str:
        places = [place for place in compiled._failures() if place]
        return f"the guard on {places[-1]} failed" if places else "the mode of the thread changed"

    def _give_up(self, compiled: Any) -> None:
        if self.start is None or logs.enabled("recompiles"):
            warnings.warn(
                f"[compile] {self._where()} was compiled {self.artifacts} times, the limit; it runs in plain Python from now "
                f"on. Last reason: {self._failure(compiled)}. Make what is there the same for all calls, pass it as a "
                "tensor, or raise flambeau._dynamo.config.recompile_limit.",
                stacklevel=3,
            )
        compiled._skip()

    def _capture(self, arguments: tuple[Any, ...]) -> Any:
        breaks_at: dict[int, Break] = {}
        attempts = 0
        while attempts < 8:
            attempts += 1
            grad = _C.is_grad_enabled()
            tracer = Tracer(breaks_at, self._dynamic(), frozenset(self.moving))
            tracer.builder.sizes.keep_data_in_graph(self.settings.fullgraph and self.settings.report is None)
            try:
                frame = self._root(tracer, arguments)
            except Unsupported as stop:
                raise SkipFrame(f"{stop.record.title} {stop.detail}") from None
            try:
                frame.run()
            except Restart:
                attempts -= 1
                continue
            except _BreakHere:
                return self._finish(tracer, frame, breaks_at[frame.step])
            except Unsupported as stop:
                _C._set_grad_enabled(grad)
                breaks_at = self._plan_break(tracer, frame, stop, breaks_at)
                continue
            except UserError as error:
                _C._set_grad_enabled(grad)
                record = self._break(breaks.EXCEPTION, type(error.exception).__name__, frame)
                step = _outside_contexts(tracer, frame.step)
                if step in breaks_at:
                    raise SkipFrame("the program raises") from None
                if self.settings.fullgraph:
                    raise SkipFrame("the program raises") from None
                breaks_at = {step: record}
                continue
            _C._set_grad_enabled(grad)
            try:
                return self._finish(tracer, frame, None)
            except Unsupported as stop:
                raise SkipFrame(f"result cannot be rebuilt: {stop.record.title} {stop.detail}") from None
        raise SkipFrame("too many attempts")

    def _dynamic(self) -> bool | None:
        """Whether sizes and integers are symbols: True, False, or None for those that are seen to vary."""
        dynamic = self.settings.dynamic
        return True if dynamic is None and not config.assume_static_by_default else dynamic

    def _root(self, tracer: Tracer, arguments: tuple[Any, ...]) -> Frame:
        function = self.function
        if function.__code__.co_flags & _SUSPENDS:
            raise SkipFrame("a generator or coroutine; the functions that it calls are compiled")
        tracer.outside.guard_code(function)
        tracer.outside.parameters = function.__code__.co_varnames
        frame = Frame(tracer, function.__code__, function.__globals__, function.__closure__)
        frame.root = True
        frame.function = function
        tracer.root = frame
        for cell in function.__closure__ or ():
            tracer.outside.register(cell, tracer.outside.sources.constant(cell))
        if self.start is None:
            for index, value in enumerate(arguments):
                frame.locals[index] = Lazy(value, tracer.outside.sources.argument(index))
            return frame
        # A resume function: its prologue is performed here.
        offset, stack, slots = self.start
        state = arguments[0]
        place = tracer.outside.sources.argument(0)
        position = 0
        code = function.__code__
        if code.co_freevars:
            frame.locals[len(frame.locals) - len(code.co_freevars) :] = list(function.__closure__)
        for present in stack:
            if present:
                frame.stack.append(Lazy(state[position], place.item(position)))
                position += 1
            else:
                frame.stack.append(NULL)
        for i, slot in enumerate(slots):
            value = state[position + i]
            source = place.item(position + i)
            if isinstance(value, types.CellType):
                frame.locals[slot] = tracer.outside.wrap(value, source)
            else:
                frame.locals[slot] = Lazy(value, source)
        frame.stack[:] = [tracer.outside.realize(v) if type(v) is Lazy else v for v in frame.stack]
        frame.pc = frame.decoded.index_of[offset]
        return frame

    def _break(self, record: breaks.Record, detail: str, frame: Frame) -> Break:
        code = frame.code
        return Break(record, detail, code.co_filename, frame.line(), code.co_name)

    def _plan_break(
        self, tracer: Tracer, frame: Frame, stop: Unsupported, before: dict[int, Break]
    ) -> dict[int, Break]:
        filename, line, name = stop.where or (frame.code.co_filename, frame.line(), frame.code.co_name)
        record = Break(stop.record, stop.detail, filename, line, name)
        refuse = tracer.modes.refuse_breaks[-1] if tracer.modes.refuse_breaks else self.settings.fullgraph
        if refuse and self.settings.report is None:
            on_data = tracer.builder.module_paths is not None and stop.record in (breaks.BRANCH, breaks.TENSOR_VALUE)
            raise (breaks.GuardOnDataDependentSymNode if on_data else GraphBreakError)(record)
        step = _outside_contexts(tracer, frame.raised_at[-1] if frame.raised_at else frame.step)
        if step in before or step == 0:
            raise SkipFrame(f"{record.record.title} {record.detail}")
        return {step: record}

    def _drop_generators(self, tracer: Tracer, frame: Frame, trial: Rebuilder | None) -> None:
        """Generators that are left in a try block run code when they are dropped: those in variables of the function, when it
        returns."""
        left = [generator for generator in tracer.generators if generator.has_cleanup()]
        if not left:
            return
        places = [next((i for i, v in enumerate(frame.locals) if v is generator), -1) for generator in left]
        if trial is None or -1 in places:
            raise SkipFrame(f"{left[0].__qualname__} is left in a try block, which runs when it is dropped")
        trial.value(frame.result)  # fails where a generator lives on
        trial.side_effects()
        for _, generator in sorted(zip(places, left), key=lambda pair: pair[0]):
            try:
                generator.close()
            except (Unsupported, UserError):
                raise
            except Exception as error:
                raise SkipFrame(f"{generator.__qualname__} raises when it is dropped: {error}") from None

    def _finish(self, tracer: Tracer, frame: Frame, cause: Break | None) -> Any:
        settings = self.settings
        code = self.function.__code__
        parameters = _parameter_count(code)
        self._drop_generators(tracer, frame, None if cause is not None else Rebuilder(tracer, parameters))
        rebuilder = Rebuilder(tracer, parameters)
        rebuilder.line_number = frame.line()
        if cause is None:
            result = rebuilder.value(frame.result)
            rebuilder.side_effects()
            rebuilder.emit(f"return {result}")
        else:
            if tracer.modes.function_modes or tracer.modes.overrides_disabled:
                raise SkipFrame(f"{cause.record.title} where a mode of __torch_function__ is active")
            if (
                cause.record is breaks.EXCEPTION and tracer.modes.asked_if_compiling
            ):  # and might not raise if it were not
                raise SkipFrame(f"it asks whether it is compiled; {cause.record.title} {cause.detail}")
            counters["graph_break"][str(cause)] += 1
            if settings.report is not None:
                settings.report.breaks.append(cause)
            logs.log("graph_breaks", str(cause))
            nested = None if cause.record is breaks.DISABLED else settings.call
            try:
                BreakCode(rebuilder, frame, self._make_resume, nested).generate(frame.current)
            except Unsupported as stop:
                raise SkipFrame(f"{cause.record.title}; {stop.record.title} {stop.detail}") from None
        for traced in tracer.builder.inputs:
            if isinstance(traced, TracedTensor):
                tracer.builder.sizes.check_promises(traced)
        runner = self._run_backend(tracer, rebuilder)
        tracer.builder.sizes.forget_program()
        artifact, text = rebuilder.finish(
            runner,
            code.co_filename,
            code.co_name,
            code.co_firstlineno,
            None if tracer.effects.impure else self._replay(),
        )
        with disabled():  # what a subclass of Tensor answers about itself is no fact
            description = guards.Builder(tracer, settings.guard_filter).build()
            told = guards.describe(tracer) if settings.report is not None or logs.enabled("guards") else []
        for node in tracer.builder.graph.nodes:
            node.meta.pop("source", None)  # its guards refer to the tensors and modules of the program
        report = settings.report
        if report is not None:
            report.guards += told
            report.artifacts.append(text)
        if logs.enabled("guards"):
            logs.log("guards", "\n".join(told))
        if logs.enabled("bytecode"):
            logs.log("bytecode", text)
        tracer.release()
        return description, artifact

    def _replay(self) -> tuple[Any, str]:
        """The original function and how to call it with flat arguments, for when the graph raises."""
        code = self.function.__code__
        names = code.co_varnames
        parts = [f"a{i}" for i in range(code.co_argcount)]
        count = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & 0x04:
            parts.append(f"*a{count}")
        parts += [f"{names[i]}=a{i}" for i in range(code.co_argcount, count)]
        if code.co_flags & 0x08:
            parts.append(f"**a{count + bool(code.co_flags & 0x04)}")
        return self.function, ", ".join(parts)

    def _run_backend(self, tracer: Tracer, rebuilder: Rebuilder) -> Callable[..., Any] | None:
        """Hands the graph to the backend; None when there is nothing to run."""
        settings = self.settings
        if not tracer.builder.operations:
            return None
        graph = tracer.builder.graph
        graph.output(rebuilder.graph_results())
        for traced in tracer.builder.inputs:
            if not traced.node.users:
                graph.erase_node(traced.node)
        tracer.builder.inputs = [traced for traced in tracer.builder.inputs if traced.node.users]
        for traced in tracer.builder.inputs:
            traced.node.meta["member"] = traced.source is not None and member_root(traced.source) is not None
        examples = [t.fake if isinstance(t, TracedTensor) else t.hint for t in tracer.builder.inputs]
        examples, on_wholes = wrappers.open_graph(tracer, examples)
        module = GraphModule(fl.nn.Module(), graph)
        module.meta["origin"] = self._origin()
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += tracer.builder.operations
        report = settings.report
        if report is not None:
            report.graphs.append(module)
            report.operations += tracer.builder.operations
        if logs.enabled("graph_code"):
            logs.log("graph_code", f"{self._where()}\n{module.code}")
        try:
            runner = settings.backend(module, examples, **settings.options)
        except Exception as error:
            if config.suppress_errors or not callable(settings.backend_name) or isinstance(error, BackendError):
                raise
            name = getattr(settings.backend_name, "__name__", type(settings.backend_name).__name__)
            raise exc.BackendCompilerFailed(f"backend={name!r} raised:\n{type(error).__name__}: {error}") from error
        if not callable(runner):
            raise TypeError(f"[compile] expected a callable from the backend, got {type(runner).__name__}")
        runner = on_wholes(runner)
        subclasses = any(isinstance(t, TracedTensor) and overriding.overrides(t.cls) for t in tracer.builder.inputs)
        return overriding.plainly(runner) if subclasses else runner

    def _make_resume(
        self, offset: int, stack: list[bool], slots: list[int], handler: Handler | None, native: bool
    ) -> Any:
        """The function that continues this one at an offset."""
        if self.origin is not self:
            shift = self.prologue
            if handler is not None:
                start, end, target, depth, push = handler
                handler = Handler(start - shift, end - shift, target - shift, depth, push)
            slots = [slot - self.slot_shift for slot in slots]
            return self.origin._make_resume(max(offset - shift, 0), stack, slots, handler, native)
        key = (offset, tuple(stack), tuple(slots), handler, native)
        resume = self.resumes.get(key)
        if resume is not None:
            return resume
        function = self.function
        resume_code = make_resume_code(function.__code__, offset, stack, slots, handler)
        if resume_code is None:
            raise SkipFrame("code that cannot be resumed")
        start, shift = resume_code.start, resume_code.shift
        resumed = types.FunctionType(
            resume_code.code, function.__globals__, function.__name__, None, function.__closure__
        )
        if native:
            resume = resumed
        else:
            unit = Unit(resumed, self.settings, ResumePoint(start, stack, [slot + shift for slot in slots]))
            unit.origin, unit.prologue, unit.slot_shift = self, start - offset, shift
            resume = unit.compiled
        self.resumes[key] = resume
        return resume


def _outside_contexts(tracer: Tracer, step: int) -> int:
    """Where a break at a step is made: contexts that filter warnings are entered in Python when the graph breaks inside."""
    return tracer.modes.caught_warnings[0] if tracer.modes.caught_warnings else step


def _parameter_count(code: types.CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def guarded_function(function: Any, settings: Settings) -> Any:
    unit = Unit(function, settings)
    compiled = unit.compiled
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        compiled.__dict__[name] = getattr(function, name, None)
    compiled.__dict__.update(function.__dict__)
    compiled.__dict__["_unit"] = unit
    return compiled


# ---------------------------------------------------------------------------------------------- the frame hook


def _return_given() -> types.CodeType:
    """Code that returns what lies on the stack: how a frame ends whose function ran compiled."""
    code = (lambda: None).__code__
    instructions = bytes((dis.opmap["RESUME"], 0, dis.opmap["RETURN_VALUE"], 0))
    return code.replace(co_code=instructions, co_stacksize=1, co_name="<compiled>", co_qualname="<compiled>")


_C._prepare_frame_hook(_return_given(), fl_module())

# ---------------------------------------------------------------------------------------------- nested captures

_STANDARD = os.__file__.rpartition("/")[0]
_PACKAGE = fl.__file__.rpartition("/")[0]


def _is_worth_capturing(function: Any) -> bool:
    """Code of the user's own and of libraries, not of Python or this package (but for its containers)."""
    filename: str = function.__code__.co_filename
    if function.__dict__.get("_dynamo_disable") or filename.startswith("<frozen"):
        return False
    if filename.startswith(_PACKAGE):
        return filename.startswith(_PACKAGE + "/nn/")
    return not filename.startswith(_STANDARD) or "site-packages" in filename


def reset() -> None:
    """Forgets everything that was compiled."""
    for compiled in list(_units):
        compiled._reset()
        unit = compiled.__dict__.get("_unit")
        if unit is not None:
            unit.artifacts = 0
