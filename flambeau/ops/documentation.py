"""Documentation of operators, read from `documentation.md` in the folder of their family, and of native methods.

A section is headed by the public names of an operator, as a program writes them after `flambeau.`:

    ## sigmoid, special.expit
    One line that says what it computes.

    Prose: arguments with their shapes, the formula, what to beware of.

    >>> flambeau.sigmoid(flambeau.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])

    See also: logit, logsigmoid

A method and the form that works in place (`sigmoid_`) have the section of the function. `__doc__` of functions and methods,
the stubs and the site all show the section below the signatures; its examples are run by the tests. Files are read when a
docstring is first asked for.
"""

from __future__ import annotations

import functools
import inspect
import re
from pathlib import Path
from typing import Any

_METHODS = Path(__file__).parent.parent / "_tensor" / "documentation.md"  # of Tensor that are no operators
_HEADING = re.compile(r"^## (.+)$", re.M)


def read(path: Path) -> list[tuple[str, str]]:
    """The headings of a file and the text below each."""
    parts = _HEADING.split(path.read_text(encoding="utf-8"))
    return [(heading, body.strip()) for heading, body in zip(parts[1::2], parts[2::2], strict=True)]


@functools.cache
def sections() -> dict[str, str]:
    """The text of each section, by each of its names."""
    texts: dict[str, str] = {}
    for path in [_METHODS, *sorted(Path(__file__).parent.glob("*/documentation.md"))]:
        for heading, body in read(path):
            for name in heading.split(", "):
                if name in texts:
                    raise ValueError(
                        f"[documentation] expected one section for {name}, got a second in {path.parent.name}"
                    )
                texts[name] = body
    return texts


def find(module: str, name: str) -> str | None:
    """The section of a function of a module (`torch.linalg`), or of a method (`torch`). A function without a section of
    its own is the one of the same name that has one."""
    prefix = module.partition(".")[2]
    text = sections().get(f"{prefix}.{name}") or sections().get(name)
    if text is None and name.endswith("_") and not name.endswith("__"):
        text = find(module, name[:-1])
        return text and f"In-place form of `{name[:-1]}`. {text}"
    return text


def signatures(function: Any) -> list[str]:
    """How a native function is called, one line for each overload."""
    from flambeau.fx.operator_schemas import get_signature_for_torch_op

    lines = []
    method = type(function).__name__ == "Method"
    for signature, schema in zip(get_signature_for_torch_op(function), function._schemas, strict=True):
        parameters = list(signature.parameters.values())[1 if method else 0 :]
        returned = schema.rpartition(" -> ")[2]
        lines.append(f"{public_name(function)[1]}{inspect.Signature(parameters)} -> {returned}")
    return lines


def text_of(function: Any) -> str:
    """The docstring of a native function or method."""
    lines = "\n".join(signatures(function))
    section = find(*public_name(function))
    return f"{lines}\n\n{section}" if section else lines


def public_name(function: Any) -> tuple[str, str]:
    """Module and name by which programs reach a function; some say PyTorch's native ones of themselves."""
    module, name = function.__module__, function.__name__
    native, _, family = module.rpartition("._")
    return (f"torch.{family}", name.removeprefix(f"{family}_")) if native == "torch._C" else (module, name)
