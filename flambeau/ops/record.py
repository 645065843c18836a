"""Op records: the one place where an operator is written down.

A record holds an operator's schema, where it is exposed, its arithmetic and its derivative. Beside it, in the folder of
its family, are its definition by other operators, its shape rule, its batching rule and its samples (`ops/rules.py`), which
are attributes of the record too. Records are plain data built by six constructors:

  pointwise   a scalar expression; the kernels for every dtype and layout are generated from it
  reduction   an initial value and a combining expression over some dimensions
  native      a kernel written by hand in csrc/, registered there under the same name
  composite   a Python function in terms of other ops (its definition, and its kernel on every device)
  each        another operator, called for each tensor of a list
  update      the new values of several tensors, written in place for whole lists of them at once (optimizer steps)

This module needs no native code: `tools/generate.py` reads the records at build time and writes the operator table,
the kernels and the bindings' tables. At run time only the modules with composite ops are imported, on first use.

Schemas are written as `name.overload(Type arg, Type arg=default, *, Type kwarg=default) -> Type`. Types:
Tensor, Scalar, int, float, bool, str, dtype, device, layout, memory_format, Generator, any; `Tensor|Scalar` takes a
tensor or a number; a suffix `?` allows None, `[]` is a list, `[2]` a list for which a single value stands for all.

What passes have to know of an operator beyond that are tags of its record (`TAGS` says what each means) and the fields
`autocast`, `fill`, `node` and `aten`. They stand in the schema's own call, or below it in the same module:

  tag("keeps_zero", "sin tan asin")          all overloads of these names
  autocast("lower", "mm addmm")              the precision in which autocast runs them
  node("ConvolutionBackward0", "conv2d")     what the autograd node is called

`flambeau.ops.tags` reads tags at run time, from the table of operators and without importing a record.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from flambeau.ops import rules
from flambeau.ops.schema import Schema, of_function

RECORDS: dict[str, Record] = {}
_OVERLOADS: dict[str, list[Record]] = {}  # the records of each name without overload

KINDS = ("pointwise", "reduction", "native", "composite", "each", "update")

TAGS = {
    # what the results are made of
    "view": "results share the memory of the first argument",
    "changes_part": "the first argument with a part of it changed; in place, nothing else is touched",
    "attention_backward": "the gradients of query, key and value, its arguments after the first",
    "copy": "copies its argument, perhaps into another dtype or layout",
    "conversion": "the argument in another dtype, layout or place; itself where nothing is to be done",
    "fill": "the same number everywhere",
    "sequence": "numbers one after the other; an out= tensor with as many elements keeps its shape",
    "elementwise": "each element depends on those in its place, though the record is not pointwise",
    "moves": "elements of the first argument, chosen whatever their values",
    "chooses": "elements of the first argument, chosen by comparing them",
    "pads": "elements of the first argument, and a value or copies of them around",
    "averages": "elements lie between the smallest and the largest one of the argument",
    "joins": "elements of several tensors, side by side",
    "rowwise": "rows depend on rows of the first argument alone",
    "reshapes": "changes the shape of the tensor that it is called on",
    "overwrites": "in place one value goes to all places, so that an expanded tensor is warned about, not refused",
    "converts_out": "a function of one operand, of the dtype of that, that converts to the dtype of out=",
    "takes_numbers": "numbers may take the place of tensors: torch.add(2, x)",
    "variadic": "tensors may be passed one by one in place of a list",
    "geometry": "depends on the geometry of its arguments, not on their elements",
    "data_dependent": "the sizes of the results depend on values",
    "reads_values": "reads numbers from a tensor, such as where a view begins",
    # arithmetic
    "wide_complex": "kernels know complex64 and complex128, but not complex32",
    "matmul": "a product of matrices",
    "convolution": "a convolution, or the gradients of one",
    "attention": "scaled dot product attention, or the gradients of it",
    "recurrent": "all steps of a recurrent layer, with the weights w_ih and w_hh",
    "unit_grid": "a quantized result lies on a grid from 0 to 1",
    "signed_unit_grid": "a quantized result lies on a grid from -1 to 1",
    "comparison": "compares its arguments",
    "integer_product": "computed with integers where its input and its weight are quantized",
    "after_product": "an activation that kernels of quantized products take along",
    "clips": "the same, and only sets bounds",
    "keeps_zero": "zero for zero",
    "piecewise_linear": "straight lines between bends",
    "element_loss": "a loss of single elements, of which PyTorch has the mean and the sum as one operator",
    "random": "draws random numbers",
    "dropout": "random in training, and nothing but its argument otherwise",
    # derivatives
    "no_grad": "results are never differentiable",
    "nonholomorphic": "of complex numbers, not differentiable as a complex function",
    "constant_gradient": "the gradient depends on the input only in which elements are chosen",
    "recomputable": "gives the same again; backward may repeat it rather than save its result",
    # devices, compilation and export
    "core": "in the core set of ATen, into which exported programs are decomposed",
    "mixed_devices": "takes tensors of several devices",
    "only_draws": "its front asks a device for random elements and nothing else",
    "only_copies": "its front allocates and copies and does nothing else",
    "scales": "numbers among its arguments scale or shift, so that recorded programs take them as inputs",
    "meta_layout": "results lie in memory as the kernel for tensors without data says, on every device",
    "sparse": "takes sparse tensors, also as gradients of its results",
    "fuses_both_directions": "the same, where kernels reduce along rows and columns in one pass",
    "fuses": "compiled as its definition, whose parts fuse with what is around them",
}

Expression = Callable[..., Any]
Scalar = Union[bool, int, float, complex]  # as an annotation: a schema's Scalar


@dataclass
class Record:
    """What is known of one operator overload."""

    schema: Schema
    kind: str  # one of KINDS
    function: bool = True  # exposed as a function of `module`
    method: bool = True  # exposed as a Tensor method
    module: str = ""  # "", "linalg", "nn.functional", ... where the function is found
    public: str = ""  # public name when it differs from the schema's
    inplace: bool = False  # derive `name_`
    out: bool = False  # derive the `out=` form
    tags: tuple[str, ...] = ()  # keys of TAGS
    alias_of: str = ""  # the full name of the record of which this one is a second name
    autocast: dict[str, str] = field(default_factory=dict)  # precision under autocast, by "cpu" and "accelerator"
    fill: float | str | None = None  # of a "fill": the number, or the name of the argument that says it
    node: str = ""  # name of the autograd node, where it does not follow from the operator's
    aten: str = ""  # overload that ATen has for it, where that is another one
    vjp: Any = None  # derivative, written in ops (or expressions, for pointwise)
    where: str = ""  # Python module that holds the record
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.schema.full_name

    # What is written beside the record, in its family's folder (`ops/rules.py`).

    @property
    def definition(self) -> rules.Rule | None:
        return rules.definition.find(self.name)

    @property
    def shape(self) -> rules.Rule | None:
        return rules.shape.find(self.name)

    @property
    def batching(self) -> rules.Rule | None:
        return rules.batching.find(self.name)

    @property
    def samples(self) -> rules.Rule | None:
        return rules.samples.find(self.name)


# Modules in which operators are found, by how their names begin.
_PREFIXES = {"linalg_": "linalg", "special_": "special", "fft_": "fft", "sparse_": "sparse", "nn_": "nn.functional"}


def _add(schema: Schema, kind: str, options: dict[str, Any], where: str, **details: Any) -> Record:
    for prefix, module in _PREFIXES.items():
        if schema.name.startswith(prefix) and "module" not in options:
            options = {"module": module, "public": schema.name[len(prefix) :], "method": False, **options}
    if "::" in schema.name:  # of another library, found under `ops.<namespace>` alone
        options = {"function": False, "method": False, **options}
    first = schema.args[0] if schema.args else None
    if first is None or first.name != "self":
        options.setdefault("method", False)
    if options.get("module") == "nn.functional":
        options.setdefault("method", False)
    if schema.name.startswith("_"):
        options.setdefault("module", "_ops")
    record = Record(schema, kind, where=where, details=details, **options)
    _check_tags(record.tags)
    if record.name in RECORDS:
        raise ValueError(f"[record] expected one record for each overload, got a second {record.name}")
    RECORDS[record.name] = record
    _OVERLOADS.setdefault(schema.name, []).append(record)
    return record


def _caller() -> str:
    return str(sys._getframe(2).f_globals["__name__"])


def _check_tags(tags: tuple[str, ...]) -> None:
    for tag in tags:
        if tag not in TAGS:
            raise ValueError(f"[record] expected a tag that record.TAGS explains, got {tag!r}")


def _named(names: str, where: str) -> list[Record]:
    """The records of a module by the space-separated names, of which one without overload stands for all of them."""
    chosen: list[Record] = []
    for name in names.split():
        own = [
            r
            for r in _OVERLOADS.get(name.partition(".")[0], ())
            if r.where == where and name in (r.name, r.schema.name)
        ]
        if not own:
            raise ValueError(f"[record] expected a record of {where}, got {name}")
        chosen += own
    return chosen


def tag(tags: str, names: str) -> None:
    """Gives the records of the calling module with these names the tags, both separated by spaces."""
    added = tuple(tags.split())
    _check_tags(added)
    for record in _named(names, _caller()):
        record.tags = tuple(dict.fromkeys((*record.tags, *added)))


AUTOCAST_RULES = {
    "lower": "in the lower precision: matrix products and convolutions",
    "float32": "in float32: what loses too much otherwise",
    "widest": "in the widest dtype of the arguments",
    "refused": "has no safe precision",
    "first": "in the dtype of the first argument",
    "own": "in the dtype of its arguments, and so do the operators it consists of",
}


def autocast(rule: str, names: str, on: str = "cpu accelerator") -> None:
    """The precision in which autocast runs records of the calling module, on a CPU, an accelerator or both."""
    if rule not in AUTOCAST_RULES:
        raise ValueError(f"[record] expected one of {', '.join(AUTOCAST_RULES)}, got {rule!r}")
    for record in _named(names, _caller()):
        record.autocast = {**record.autocast, **dict.fromkeys(on.split(), rule)}


def fill(number: float | str, names: str) -> None:
    """Tags records of the calling module as fills, with a number or with what an argument says."""
    for record in _named(names, _caller()):
        record.fill, record.tags = number, (*record.tags, "fill")


def aten(overload: str, names: str) -> None:
    """The overload that ATen has for records of the calling module which have none."""
    for record in _named(names, _caller()):
        record.aten = overload


def node(name: str, names: str) -> None:
    """What the autograd nodes of records are called, which are given by their full names."""
    for full_name in names.split():
        RECORDS[full_name].node = name


def pointwise(
    schema: str,
    expr: Union[Expression, Mapping[str, Expression]],
    *,
    dtypes: str = "fc",
    promote: str = "default",
    result: str = "same",
    mask: tuple[str, ...] = (),
    select: str = "",
    check: str = "",
    contiguous: bool = False,
    cases: Mapping[float, Record] | None = None,
    stored: Mapping[str, str] | None = None,
    inplace: bool = True,
    out: bool = True,
    **options: Any,
) -> Record:
    """An elementwise op over broadcast operands.

    expr     lambda over the schema's arguments (tensors are elements, Scalars and floats are parameters). A mapping
             gives different arithmetic by dtype class (keys among "b", "i", "f", "c", and "" for the rest).
    dtypes   classes accepted after promotion: b bool, i integers, f floating, c complex.
    promote  "default": to the common dtype; "float": integers and bool to the default float dtype as well; "first": to
             the first operand's dtype; "int": bool to int64.
    result   dtype of the result: "same" as promoted, "bool", or "real" (the real part's dtype of a complex).
    mask     operands that are bool and take no part in promotion.
    check    name of a further condition on the arguments (csrc/ops/pointwise_checks.cpp).
    contiguous  the result is, whatever the layout of the operands, which it has otherwise.
    cases    cheaper records for particular numbers as the last operand, over the operands before it.
    stored   loops over elements as they are stored, which need no conversion (csrc/cpu/narrow.h), by dtype class: of
             integers narrower than 64 bits, of bool and of complex64.
    select   name of a str argument whose value picks the expression: keys of `expr` are then its values.
    """
    table = dict(expr) if isinstance(expr, Mapping) else {"": expr}
    return _add(
        Schema.parse(schema),
        "pointwise",
        dict(options, inplace=inplace, out=out),
        _caller(),
        table=table,
        dtypes=dtypes,
        promote=promote,
        result=result,
        mask=mask,
        select=select,
        check=check,
        contiguous=contiguous,
        cases=dict(cases or {}),
        stored=dict(stored or {}),
    )


def reduction(
    schema: str,
    *,
    init: Any,
    combine: Expression,
    load: Union[Expression, Mapping[str, Expression], None] = None,
    finish: Union[Expression, None] = None,
    accumulate: str = "same",
    dtypes: str = "bifc",
    result: str = "same",
    identity: bool = True,
    out: bool = True,
    **options: Any,
) -> Record:
    """A reduction of the elements along some dimensions: `finish(combine(init, load(x) ...), n)`.

    The schema's arguments are recognised by name: self, dim (absent or None: all), keepdim, dtype (in which to reduce);
    any others are parameters of `load` and `finish`.
    init        a number, or "lowest" / "highest" for the ends of the dtype's range.
    load        from an element to a value to combine; a mapping gives one for each dtype class, as in pointwise().
    combine     associative; the engine is free in the order.
    finish      from the combined value and the number of elements to the result.
    accumulate  "same" as computed, "int" (int64), "real" (part of a complex), "bool" (conditions).
    result      dtype: "same", "sum" (integers become int64), "bool", "int" (int64) or "real".
    identity    whether the reduction of nothing has a value (else it raises).
    """
    loads = dict(load) if isinstance(load, Mapping) else {"": load or (lambda x, *_: x)}
    return _add(
        Schema.parse(schema),
        "reduction",
        dict(options, out=out),
        _caller(),
        init=init,
        load=loads,
        combine=combine,
        finish=finish or (lambda a, n, *_: a),
        accumulate=accumulate,
        dtypes=dtypes,
        result=result,
        identity=identity,
    )


def native(schema: str, **options: Any) -> Record:
    """An op whose kernel is written by hand in csrc/ and registered there under the schema's full name."""
    return _add(Schema.parse(schema), "native", options, _caller())


def composite(
    schema: str = "", *, results: str = "", **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a Python function over other ops is the definition of this operator, on every device.

    The schema follows from the function's annotations and defaults; its name is the function's, or what is given, and
    `results` are the names of its results. Where annotations cannot express the schema (a list for which one value stands
    for all, an argument that is written), it is written out.
    """
    where = _caller()

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        parsed = Schema.parse(schema) if "(" in schema else of_function(fn, schema or fn.__name__, results)
        if (
            "<locals>" in fn.__qualname__
        ):  # one of a family, which a loop declares: native code finds it by its name, too
            fn.__name__ = parsed.full_name.replace(".", "_")
            setattr(sys.modules[where], fn.__name__, fn)
        _add(parsed, "composite", options, where, fn=fn)
        return fn

    return decorate


def each(schema: str, target: str, **options: Any) -> Record:
    """Calls the operator `target` for each position of the list arguments; other arguments are the same in all calls.

    Arguments go to the target's argument of the same name, else to the one in the same position.
    """
    return _add(Schema.parse(schema), "each", {"module": "", "method": False, **options}, _caller(), target=target)


def update(schema: str, expr: Expression, *, scalars: tuple[str, ...] = (), **options: Any) -> Record:
    """A step over lists of tensors: element k of the lists belong together, and `expr` gives their new values.

    The schema's first arguments are lists of tensors, the keyword arguments numbers. `expr` takes all of them in order
    (an element of each list, the numbers as parameters) and returns the new values by argument name.
    scalars  lists of one-element tensors: of these, the value takes part in the parameters' arithmetic, which is done
             in double precision once for each tensor and not for each element.
    """
    return _add(Schema.parse(schema), "update", dict(options, tags=("no_grad",)), _caller(), expr=expr, scalars=scalars)


@functools.cache
def find(name: str) -> Record | None:
    """A record by full name, or None: that of an operator, or of the gradient of a pointwise one. Imports the module that
    holds it and no other."""
    from flambeau import _C

    place = _C._record_place(name)
    if place is None:
        return None
    module, base = place
    importlib.import_module(module)
    if not base:
        return RECORDS[name]
    from flambeau.ops.gradients import gradients

    derived = gradients(RECORDS[base]) or ()
    return next((g.record for g in derived if g is not None and g.record and g.record.name == name), None)


def load() -> dict[str, Record]:
    """All records by full name; imports the record modules of every family."""
    for family in rules.families():
        for module in pkgutil.iter_modules(importlib.import_module(family).__path__):
            if module.name not in rules.KINDS:
                importlib.import_module(f"{family}.{module.name}")
    return RECORDS


def vjp(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the derivative of recorded operators, written in ops.

    The function's parameters say what is kept for backward: first the gradients of the results (`g`, or `g0`, `g1`, ...),
    then any of the schema's arguments by name, `<arg>_sizes`, `<arg>_dtype` and `<arg>_device` for the geometry of a
    tensor whose values are not needed (`<arg>_window` for the tensor with strides and offset, whatever its values are now), the results by name (`out`, `out1` ..., or as the schema names them) and `needs`,
    a tuple telling of each tensor argument whether it wants a gradient (of a list: a tuple of that). It returns one
    gradient for each tensor argument, in the schema's order: a tensor, None, or a list for a list argument.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RECORDS[name].vjp = fn
        return fn

    return decorate
