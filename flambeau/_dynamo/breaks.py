"""Graph breaks: why capture stopped at an instruction, as numbered records.

`Break` is what a user meets in messages, `explain()` and docs/graph-breaks.md. The numbers are stable: a record may be
retired, never renumbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.ops.symbolic.shape_env import DataDependentOutput


class Record(NamedTuple):
    number: int
    title: str
    why: str
    hint: str

    @property
    def name(self) -> str:
        return f"GB{self.number:04d}"


RECORDS: dict[int, Record] = {}


def _record(number: int, title: str, why: str, hint: str) -> Record:
    assert number not in RECORDS
    record = RECORDS[number] = Record(number, title, why, hint)
    return record


BRANCH = _record(
    1,
    "branch on a tensor's value",
    "The condition is a tensor; which way to go is known only when the graph has run.",
    "Use where() or a mask, or keep the branch outside the compiled function.",
)
TENSOR_VALUE = _record(
    2,
    "a tensor's value is needed in Python",
    "item(), tolist(), int(), float() and the like read a number out of the graph.",
    "Keep the number a tensor, move the reading to the end, or keep it in the graph with fullgraph=True.",
)
UNKNOWN_CALL = _record(
    3,
    "call of a function that capture does not know",
    "The function is implemented outside Python and is not known to be free of effects.",
    "Call it outside the compiled function, or mark it with allow_in_graph() if it only works on tensors.",
)
DISABLED = _record(
    4,
    "call of a function that is excluded from capture",
    "The function is marked with disable().",
    "Remove the mark, or keep it: the rest is captured around it.",
)
OPERATOR_FAILED = _record(
    5,
    "an operator refused its arguments",
    "Running the operator on shapes alone raised an error; the call is made in Python, which raises it properly.",
    "See the error that follows; if none follows, the operator depends on the values of its input.",
)
UNKNOWN_ATTRIBUTE = _record(
    6,
    "attribute that capture cannot read",
    "Reading the attribute runs code that is not Python, or has unknown effects.",
    "Read it before the compiled function and pass it in.",
)
UNKNOWN_OPERATION = _record(
    7,
    "operation on an object that capture does not know",
    "The object's type is implemented outside Python.",
    "Convert the object to a tensor or a plain Python value first.",
)
STORE = _record(
    8,
    "store that capture cannot replay",
    "The target of the assignment is not a plain attribute, item or variable.",
    "Assign outside the compiled function.",
)
ITERATOR = _record(
    9,
    "iteration over an iterator from outside",
    "An iterator changes when it is read, and cannot be looked into without changing it. Detected a method call to a "
    "user-defined generator object.",
    "Pass a list or tuple.",
)
EXCEPTION = _record(
    10,
    "an exception leaves the function",
    "The program raises here whenever the guards hold; the exception is raised in Python.",
    "Nothing to do: exceptions are expected to be rare.",
)
OPCODE = _record(
    11,
    "bytecode instruction that is not captured",
    "The instruction has no symbolic meaning.",
    "Move the construct out of the compiled function.",
)
GENERATOR = _record(
    12,
    "generator that is alive at a graph break",
    "A suspended generator cannot be rebuilt in plain Python.",
    "Use a list.",
)
IMPORT = _record(
    13,
    "import that has effects",
    "Importing a module for the first time runs its code.",
    "Import at the top of the file.",
)
PRINT = _record(
    14,
    "output whose text depends on a tensor",
    "Printing needs the values.",
    "Print after the compiled function.",
)
BACKWARD = _record(
    15,
    "backward that cannot be part of the graph",
    "It leads into the history of an argument, to a tensor with hooks, or through code that cannot run without data.",
    "Nothing to do: the call is made in Python and the rest is captured around it.",
)
CONTEXT = _record(
    16,
    "context manager that capture does not know",
    "Entering or leaving the context runs code that is not captured.",
    "Move the with statement outside the compiled function.",
)
SUBCLASS = _record(
    17,
    "tensor subclass",
    "The class defines operators or __torch_dispatch__, or is one of the library's own; others are captured.",
    "Unwrap it before the compiled function.",
)
LARGE = _record(
    18,
    "container that is too large to guard",
    "Every element would become a guard.",
    "Pass the elements that are needed.",
)
RECURSION = _record(
    19,
    "calls nested too deeply",
    "Inlining stops at a fixed depth.",
    "Unroll the recursion or mark the function with disable().",
)
RANDOM = _record(
    20,
    "the program depends on a random number of Python or NumPy",
    "Numbers that random.random(), randint() and the like draw are inputs of the graph; here one decides what is done, or "
    "is drawn by a function that is not among them (shuffle(), seed(), NumPy's).",
    "Use the tensor functions for random numbers, or nothing: the rest is captured around it.",
)
TOO_LONG = _record(
    21,
    "capture takes too long",
    "The loop was unrolled past the limit of instructions.",
    "Move the loop outside the compiled function.",
)
DYNAMIC_OUTPUT = _record(
    22,
    "result whose shape depends on values",
    "nonzero(), masked_select(), boolean indexing and the like have a result of unknown size.",
    "Use where() or a mask of fixed size.",
)
IDENTITY = _record(
    23,
    "the identity of an object is used as a number",
    "id() and default hashes differ between the captured and the real object.",
    "Use another key.",
)
CUSTOM_FUNCTION = _record(
    24,
    "user-defined autograd.Function that cannot be part of the graph",
    "Its forward or backward has effects, refers to other tensors, or marks inputs as written to.",
    "Nothing to do: the call is made in Python and the rest is captured around it.",
)
REQUESTED = _record(
    25,
    "graph_break() was called",
    "The program asks for a break here.",
    "Remove the call.",
)
COROUTINE = _record(
    26,
    "asynchronous code",
    "Coroutines are driven by an event loop outside the function.",
    "Compile the functions that the coroutine calls.",
)
NUMPY = _record(
    27,
    "use of a NumPy array that capture does not know",
    "The function, keyword, dtype or kind of index has no definition by operators on tensors.",
    "Nothing to do: NumPy does it, and the rest is captured around it. With tensors in place of arrays more is captured.",
)
CLASS = _record(
    28,
    "class that is defined inside the function",
    "Its body calls functions, has a metaclass, or a base class defines __init_subclass__.",
    "Define the class at the top of the file.",
)
RESHAPED_OUT = _record(
    29,
    "out= of another shape or dtype than the result",
    "The tensor is resized to the result, or decides the dtype that is computed in; the call is made in Python.",
    "Give an out= that has the shape and the dtype of the result.",
)
FRAME = _record(
    30,
    "code that looks at its own frame",
    "locals(), globals(), eval(), sys._getframe() and the like see the variables and callers of the program, which compiled "
    "code does not have; the function that calls them runs in plain Python.",
    "Move the call into a function of its own.",
)
INTERNAL = _record(
    99,
    "capture failed",
    "An error inside the capture itself; the function runs in plain Python.",
    "Please report it with the program.",
)


class Break(NamedTuple):
    """One break met in a program."""

    record: Record
    detail: str
    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        where = f'  File "{self.filename}", line {self.line}, in {self.function}' if self.filename else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.record.name} {self.record.title}{detail}\n{where}\n  why:  {self.record.why}\n  hint: {self.record.hint}"


class Unsupported(BaseException):
    """Raised where capture cannot go on. Never caught by user code, hence not an Exception."""

    def __init__(self, record: Record, detail: str = "") -> None:
        super().__init__(record, detail)
        self.record = record
        self.detail = detail
        self.where: tuple[str, int, str] | None = None


class SkipFrame(BaseException):
    """The whole function must run in plain Python."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Restart(SkipFrame):
    """The capture begins again: something outside was brought into the state that it needs."""


class GraphBreakError(RuntimeError):
    """Raised by fullgraph=True at the first break; `.record` has the details."""

    def __init__(self, record: Break) -> None:
        super().__init__(f"fullgraph=True, but the graph breaks here:\n{record}")
        self.record = record


class GuardOnDataDependentSymNode(GraphBreakError, DataDependentOutput):
    """A program that is exported asks for what only data tells."""


class UserError(BaseException):
    """An exception of the program itself, on its way through the interpreter's frames."""

    def __init__(self, exception: BaseException) -> None:
        super().__init__(exception)
        self.exception = exception


def unsupported(record: Record, detail: str = "") -> Any:
    raise Unsupported(record, detail)


def document() -> str:
    """The page docs/graph-breaks.md."""
    lines = [
        "# Graph breaks",
        "",
        "Where `compile()` cannot capture an instruction it compiles what came before, runs the instruction in Python and",
        "captures the rest. Each kind of break has a number. `fullgraph=True` raises at the first one, and",
        "`FLAMBEAU_LOGS=graph_breaks` or `_dynamo.explain(fn)(...)` lists them. This page is generated from",
        "`flambeau/_dynamo/breaks.py` by `tools/document_breaks.py`.",
        "",
    ]
    for record in RECORDS.values():
        lines += [f"## {record.name}: {record.title}", "", record.why, "", f"*What to do.* {record.hint}", ""]
    return "\n".join(lines).rstrip() + "\n"
