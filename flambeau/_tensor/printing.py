"""Printing of tensors: `repr(tensor)` as PyTorch writes it, and `set_printoptions`.

A tensor's values become nested Python lists, of which only the part to be shown is ever converted; a `NumberFormat`
chosen from those values gives every number the same width; `layout` arranges them in brackets and lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau.overrides import DisableTorchFunctionSubclass


@dataclasses.dataclass
class PrintOptions:
    """What `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
OPTIONS = PRINT_OPTS = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    precision: digits after the point. threshold: number of elements above which a tensor is summarised. edgeitems:
    elements shown at each end of a summarised dimension. linewidth: characters in a line. profile: "default",
    "short" or "full", whose settings the other arguments override. sci_mode: True or False forces scientific notation
    on or off; None lets each tensor decide.

    >>> flambeau.set_printoptions(precision=2)
    >>> flambeau.tensor([1.2345])
    tensor([1.23])
    >>> flambeau.set_printoptions(profile="default")
    """
    if profile is not None:
        if profile not in PROFILES:
            raise ValueError(f"[set_printoptions] expected profile in {sorted(PROFILES)}, got {profile!r}")
        chosen = PROFILES[profile]
        for name in ("precision", "threshold", "edgeitems", "linewidth"):
            setattr(OPTIONS, name, getattr(chosen, name))
    options = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in options.items():
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The current options, in a form that `set_printoptions(**options)` accepts.

    >>> flambeau.get_printoptions()["precision"]
    4
    """
    return dataclasses.asdict(OPTIONS)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Set options as `set_printoptions` does, for the duration of a `with` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# ---------------------------------------------------------------------------------------------- values and numbers

# Stands in nested lists for the elements that a summary leaves out.
ELLIPSIS = object()


def shown_values(tensor: Any, summarize: bool) -> Any:
    """The tensor's values as nested lists; in a summary each long dimension keeps its ends around an ELLIPSIS."""
    if not summarize or tensor.dim() == 0:
        return tensor.tolist()
    edge, length = OPTIONS.edgeitems, tensor.shape[0]
    if not edge:
        return [ELLIPSIS]
    if tensor.dim() == 1:
        if length <= 2 * edge:
            return tensor.tolist()
        return [*tensor[:edge].tolist(), ELLIPSIS, *tensor[length - edge :].tolist()]
    if length <= 2 * edge:
        return [shown_values(tensor[i], summarize) for i in range(length)]
    head = [shown_values(tensor[i], summarize) for i in range(edge)]
    tail = [shown_values(tensor[i], summarize) for i in range(length - edge, length)]
    return [*head, ELLIPSIS, *tail]


def flatten(values: Any) -> Iterator[Any]:
    """The numbers in nested lists, in order."""
    if isinstance(values, list):
        for value in values:
            yield from flatten(value)
    elif values is not ELLIPSIS:
        yield values


class NumberFormat:
    """A common form for a set of real numbers: integers with a point, fixed or scientific notation, and a width."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.kind, self.width = "plain", 1
        if not floating:
            self.width = max((len(str(value)) for value in values), default=1)
            return
        # Zeros, infinities and NaNs fit any form; the other values choose it.
        telling = [value for value in values if value != 0 and math.isfinite(value)]
        self.kind = "integer"
        if not telling:
            return
        largest = max(abs(value) for value in telling)
        smallest = min(abs(value) for value in telling)
        integral = all(value == math.ceil(value) for value in telling)
        scientific = OPTIONS.sci_mode
        if scientific is None:
            wide = largest / smallest > 1000.0 or largest > 1.0e8
            scientific = wide or (not integral and smallest < 1.0e-4)
        if scientific:
            self.kind = "scientific"
        elif not integral:
            self.kind = "fixed"
        self.width = max(len(self.write(value)) for value in telling)

    def write(self, value: Any) -> str:
        """The number alone, not padded."""
        if self.kind == "plain":
            return str(value)
        if self.kind == "scientific":
            return f"{value:.{OPTIONS.precision}e}"
        if self.kind == "integer":
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{OPTIONS.precision}f}"

    def __call__(self, value: Any) -> str:
        """The number padded to the common width."""
        return self.write(value).rjust(self.width)


class ComplexFormat:
    """A common form for complex numbers: one for their real parts, one for their imaginary parts."""

    def __init__(self, values: list[complex]) -> None:
        self.real = NumberFormat([value.real for value in values], floating=True)
        self.imaginary = NumberFormat([value.imag for value in values], floating=True)
        self.width = self.real.width + self.imaginary.width + 1

    def __call__(self, value: complex) -> str:
        imaginary = self.imaginary(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imaginary[0] in "+-" else "+") + imaginary


# ---------------------------------------------------------------------------------------------- arrangement


def layout(values: Any, dims: int, indent: int, number: Any) -> str:
    """Nested lists as text, starting in column `indent`."""
    if dims == 0:
        return number(values)
    if values == [ELLIPSIS]:
        return "[...]"
    if dims == 1:
        per_line = max(1, (OPTIONS.linewidth - indent) // (number.width + 2))
        cells = [" ..." if value is ELLIPSIS else number(value) for value in values]
        lines = [", ".join(cells[start : start + per_line]) for start in range(0, len(cells), per_line)]
        separator = ",\n" + " " * (indent + 1)
    else:
        lines = ["..." if value is ELLIPSIS else layout(value, dims - 1, indent + 1, number) for value in values]
        separator = "," + "\n" * (dims - 1) + " " * (indent + 1)
    return "[" + separator.join(lines) + "]"


def values_text(tensor: Any, indent: int) -> str:
    """The bracketed values of a tensor that is not empty."""
    values = shown_values(tensor, summarize=tensor.numel() > OPTIONS.threshold)
    numbers = list(flatten(values))
    if tensor.dtype.is_complex:
        number: Any = ComplexFormat(numbers)
    else:
        number = NumberFormat(numbers, tensor.dtype.is_floating_point)
    return layout(values, tensor.dim(), indent, number)


_tensor_str = values_text  # the name by which some libraries call it


def with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    """Append `, suffix` for each suffix, on a new line where the last one is full, and the closing bracket."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def default_dtypes() -> tuple[Any, ...]:
    """The dtypes that are not written out: those that Python literals give."""
    real = flambeau.get_default_dtype()
    matching = {flambeau.float16: "complex32", flambeau.float64: "complex128"}.get(real, "complex64")
    return (real, getattr(flambeau, matching, None), flambeau.int64, flambeau.bool)


def gradient_suffix(tensor: Any) -> str | None:
    """`grad_fn=<...>` or `requires_grad=True`, where there is something to say."""
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view that was invalidated by an in-place change
        return "grad_fn=<Invalid>"
    if node is not None:
        name = type(node).__name__
        if name == "CppFunction":
            name = node.name().rsplit("::", maxsplit=1)[-1]
        return f"grad_fn=<{name}>"
    return "requires_grad=True" if tensor.requires_grad else None


def _str(tensor: Any, *, tensor_contents: str | None = None) -> str:
    """The text of `repr(tensor)`; `tensor_contents` stands in for the numbers when a subclass supplies its own."""
    with DisableTorchFunctionSubclass():
        if tensor.layout is not flambeau.strided:
            from flambeau.sparse import methods

            return methods.text(tensor)
        plain = type(tensor) is flambeau.Tensor or type(tensor).__name__ == "Parameter"
        prefix = "tensor(" if plain else f"{type(tensor).__name__}("
        indent = len(prefix)
        suffixes = []
        device = tensor.device
        if device.type != "cpu":
            suffixes.append(f"device='{device}'")

        if device.type == "meta":
            contents = "..."
            suffixes.append(f"size={tuple(tensor.shape)}")
            named = tensor.dtype != flambeau.get_default_dtype()
        elif tensor.numel() == 0:
            contents = "[]"
            if tensor.dim() != 1:
                suffixes.append(f"size={tuple(tensor.shape)}")
            named = tensor.dtype != flambeau.get_default_dtype()
        else:
            contents = values_text(tensor.detach(), indent) if tensor_contents is None else ""
            if not OPTIONS.edgeitems:  # the numbers may be left out altogether
                suffixes.append(f"size={tuple(tensor.shape)}")
            named = tensor.dtype not in default_dtypes()
        if tensor_contents is not None:
            contents = tensor_contents
        if named:
            suffixes.append(f"dtype={tensor.dtype}")
        if gradient := gradient_suffix(tensor):
            suffixes.append(gradient)
        return with_suffixes(prefix + contents, suffixes, indent)
