"""Random calls that PyTorch gets wrong or leaves undefined: where only these differ, values_fuzz.py reports nothing.

A row has the reason, a reproducer, the lines that it is about, and what else has to hold.

    python tests/parity/known_faults.py > docs/notes/pytorch-faults.md

runs the reproducers with PyTorch and here. `test_known_faults.py` asks that they still differ.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from random_calls import Refusal, close

Condition = Callable[[Any, int, Any, Any], bool]


class Fault(NamedTuple):
    reason: str
    example: str  # an expression of `lib`
    lines: str  # a pattern of the line that differs; of any line, for derivatives
    derivatives: bool = False
    holds: Condition = lambda program, k, theirs, ours: True


def _numbers(x: Any) -> Iterator[Any]:
    if isinstance(x, (list, tuple)):
        for y in x:
            yield from _numbers(y)
    elif isinstance(x, (int, float, complex)) and not isinstance(x, bool):
        yield x


def _special(x: Any) -> bool:
    """Whether NaN or an infinity is among the numbers."""
    return any(y != y or abs(y) == float("inf") for y in _numbers(x))


def _inputs(program: Any, pattern: str) -> bool:
    return any(re.search(pattern, text) for text, _ in program.inputs)


def _non_finite(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return _special(theirs) or _special(ours)


def _expanded(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return _inputs(program, "expand") or "expand" in " ".join(program.lines)


def _complex(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return _inputs(program, "complex") or "1j" in str(program.lines) or "complex" in str(program.lines)


def _second_only(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    """Whether the first derivatives agree."""
    refused = any(isinstance(x, Refusal) or not x for x in (theirs, ours))
    return not refused and close(theirs[0], ours[0], derivative=True, least=5e-2)


def _wraps(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    """Whether a number below zero stands beside an unsigned tensor."""
    return (
        _inputs(program, "uint8")
        and re.search(r"-1|int8", " ".join([*program.lines, *map(str, program.inputs)])) is not None
    )


def _writes(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return bool(program.writes)


def _refused_empty(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    """Whether only PyTorch takes what has no elements."""
    return isinstance(ours, Refusal) and re.search(r"\(0,|, 0[,)]", str(theirs)) is not None


def _refused_complex(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return isinstance(ours, Refusal) and "complex" in str(theirs)


def _narrow(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return _inputs(program, r"dtype=lib\.u?int(8|16|32)")


def _empty(program: Any, k: int, theirs: Any, ours: Any) -> bool:
    return program.empty or "(0" in str(theirs) or "[]" in str(theirs)


_GRADIENT = "(lambda x: lib.autograd.grad({}, x)[0])({}.requires_grad_())"
_SECOND = (
    "(lambda x: lib.autograd.grad(lib.autograd.grad({}, x, create_graph=True)[0].sum(), x)[0])({}.requires_grad_())"
)
_INF = "float('inf')"
# PyTorch's answer for one size differs from run to run.
_MEDIANS = "[lib.ones(1, dtype=lib.int32).expand(n).nanmedian(0).indices.item() for n in range(2, 30)]"
FAULTS = [
    # ------------------------------------------------------------------------------------------ values
    Fault(
        "a median sorts through the memory that elements of an expanded tensor share, and answers what was not in it",
        "lib.tensor([[2.0], [1.0]]).expand(2, 4).median(1).values",
        r"median",
        holds=_expanded,
    ),
    Fault(
        "of equal values the median may have any index",
        _MEDIANS,
        r"median",
        holds=lambda program, k, theirs, ours: not isinstance(ours, Refusal) and theirs[0] == ours[0],
    ),
    Fault(
        "targets of ctc_loss that are no labels read past the end",
        "lib.nn.functional.ctc_loss(lib.zeros(3, 1), lib.ones(1, 1, dtype=lib.int64), lib.tensor([2]), lib.tensor([1]))",
        r"ctc_loss",
    ),
    Fault(
        "a convolution of no channels has no output channels",
        "lib.nn.functional.conv1d(lib.ones(3, 0, 2), lib.ones(2, 0, 2)).shape",
        r"F\.conv[12]d",
        holds=_empty,
    ),
    Fault(
        "numbers below zero wrap beside unsigned tensors",
        "lib.tensor([1, 200], dtype=lib.uint8) > -1",
        r"clamp|remainder|%|//|<|>|div|fmod|searchsorted|lt_|eq_",
        holds=_wraps,
    ),
    Fault(
        "means and variances of infinite numbers are NaN",
        f"lib.std_mean(lib.tensor([0.0, {_INF}, 2.0, 1.0]), correction=0)[1]",
        r"var_mean|std_mean|_norm|cov|corrcoef|linalg.norm|normalize",
        holds=_non_finite,
    ),
    Fault(
        "which of several NaN an index means, and where rows with NaN are sorted to",
        "lib.tensor([float('nan'), 1.0, 2.0]).mode().values",
        r"unique|mode",
        holds=_non_finite,
    ),
    Fault(
        "matrix_exp of half numbers is NaN",
        "lib.tensor([[1.0, 2.0, 0.0], [0.5, -1.0, 2.0], [1.0, 1.0, 1.0]], dtype=lib.float16).matrix_exp()",
        r"matrix_exp",
        holds=_non_finite,
    ),
    Fault(
        "Fourier transforms of what is not finite",
        f"lib.fft.hfft(lib.tensor([{_INF}, 0.0, 0.0]), 4)",
        r"fft|stft",
        holds=_non_finite,
    ),
    Fault(
        "what is scattered into windows that overlap is seen in all of them, though they are copied",
        "lib.arange(4).unfold(0, 2, 1).select_scatter(lib.zeros(3, dtype=lib.int64), 1, 0)",
        r"(diagonal|select|slice)_scatter",
        holds=lambda program, *call: "unfold" in str(program.lines) or _expanded(program, *call),
    ),
    Fault(
        "any dimension of an empty tensor is accepted",
        "lib.ones(0).roll(1, -2).shape",
        r"roll|take_along|diff|cum|flip",
        holds=_refused_empty,
    ),
    Fault(
        "one complex number has an order",
        "lib.tensor(1j).cummin(0).values",
        r"mode|cummin|cummax|median|sort|argmax|argmin|kthvalue",
        holds=_refused_complex,
    ),
    Fault(
        "products of bools, pools of bytes and softmax of integers are accepted where they are empty",
        "lib.ones(0, 2, dtype=lib.bool) @ lib.ones(2, 0, dtype=lib.bool)",
        r"@|pool|baddbmm|addmm|softmax",
        holds=_refused_empty,
    ),
    Fault(
        "writes in place to windows that overlap",
        "lib.arange(6).unfold(0, 2, 1).floor_divide_(2)",
        r"unfold",
        holds=_writes,
    ),
    Fault(
        "soft_margin_loss overflows in low precision",
        "lib.nn.functional.soft_margin_loss(lib.tensor([-2.0], dtype=lib.bfloat16), lib.tensor([100.0], dtype=lib.float64))",
        r"soft_margin_loss",
        holds=_non_finite,
    ),
    Fault("special.ndtr loses its tail", "lib.special.ndtr(lib.tensor([-7]))", r"ndtr"),
    Fault("special.sinc of integers is not 0", "lib.special.sinc(lib.tensor([1.0])).item()", r"sinc"),
    Fault(
        "condition numbers, inverses and ranks of singular matrices",
        "lib.linalg.cond(lib.tensor([[0.5], [1.73]], dtype=lib.float64).expand(2, 3))",
        r"linalg\.(cond|inv|pinv|solve|matrix_rank|svdvals)",
    ),
    # ------------------------------------------------------------------------------------------ derivatives
    Fault(
        "2 to the power of an integer below zero is 0 in the derivative of ldexp",
        "(lambda x: lib.autograd.grad(lib.ldexp(x, lib.tensor([-1])), x)[0])(lib.tensor([1.0]).requires_grad_())",
        r"ldexp",
        True,
    ),
    Fault(
        "of equal values the median may have any index, and so may its derivative",
        _MEDIANS,
        r"median",
        True,
    ),
    Fault(
        "products of narrow integers wrap in derivatives",
        _GRADIENT.format("lib.atan2(x, lib.tensor([200], dtype=lib.uint8)).sum()", "lib.tensor([1.0])"),
        r"atan2|addcmul|addcdiv|hypot|\*|/|lerp|xlog",
        True,
        _narrow,
    ),
    Fault(
        "bessel_j0 and the like have no derivative, and results that need none",
        "lib.special.bessel_j0(lib.tensor([1.0], requires_grad=True)).requires_grad",
        r"bessel|_bessel",
        True,
    ),
    Fault(
        "the derivative of logit at NaN is 0 or NaN by the place in a vector",
        _GRADIENT.format("x.logit(0.1)[0]", "lib.tensor([float('nan'), 0.5] * 20)") + "[::16]",
        r"logit",
        True,
        _non_finite,
    ),
    Fault(
        "derivatives with respect to memory that elements share are divided among them",
        _GRADIENT.format("x.as_strided((2,), (1,)).sum()", "lib.tensor([[1.0], [2.0]]).expand(2, 3)"),
        r"as_strided",
        True,
        _expanded,
    ),
    Fault(
        "second derivatives at a kink",
        _SECOND.format(
            "(lib.nn.functional.prelu(x, lib.tensor([0.25])) ** 2 + x * x).sin().sum()", "lib.tensor([0.0])"
        ),
        r"huber_loss|prelu|smooth_l1|renorm|clamp|remainder|%",
        True,
        _second_only,
    ),
    Fault(
        "the derivative of logcumsumexp takes gradients that are NaN for zero",
        "(lambda x: lib.autograd.grad(x.logcumsumexp(0), x, lib.tensor([float('nan'), 1.0]), create_graph=True)[0])"
        "(lib.tensor([0.0, 1.0]).requires_grad_())",
        r"logcumsumexp",
        True,
        _non_finite,
    ),
    Fault(
        "the deviation of equal elements is zero or a rounding error, and its derivative follows",
        _GRADIENT.format("lib.std_mean(x.expand(1, 1, 3), correction=0)[0]", "lib.tensor([1.78])"),
        r"\b(std|std_mean)\b",
        True,
        _expanded,
    ),
    Fault(
        "the similarity of vectors of one element does not change; its derivatives are zero or rounding errors",
        _SECOND.format(
            "lib.nn.functional.cosine_similarity(x, lib.tensor([[1.7]]), dim=0).sum()", "lib.tensor([[1.3]])"
        ),
        r"cosine_similarity",
        True,
        lambda program, k, theirs, ours: _second_only(program, k, theirs, ours) and "1" in str(program.inputs),
    ),
    Fault(
        "derivatives of singular matrices",
        _GRADIENT.format("lib.linalg.cond(x)", "lib.tensor([[0.5], [1.73]], dtype=lib.float64).expand(2, 3)"),
        r"linalg\.(cond|det|slogdet|inv|pinv|solve|norm|matrix_norm)|logdet",
        True,
    ),
]


def known(program: Any, k: int, theirs: Any, ours: Any) -> str | None:
    """The reason for which outcomes may part at `k`, where there is one."""
    made = [n for n, line in enumerate(program.lines) if re.match(r"t\d+ = ", line)]
    if k < len(made):  # this line, and what was written before it
        lines = [line for n, line in enumerate(program.lines[: made[k] + 1]) if n == made[k] or n not in made]
    else:
        lines = program.lines
    for fault in FAULTS:
        right = fault.derivatives == (k > program.made) and re.search(fault.lines, "\n".join(lines))
        if right and fault.holds(program, k, theirs, ours):
            return fault.reason
    return None


def answer(lib: Any, example: str) -> str:
    """What a reproducer says, in one line."""
    try:
        return " ".join(str(eval(example, {"lib": lib})).replace("flambeau.", "torch.").split())
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:70]}"


def main() -> None:
    import flambeau as fl

    print(
        "# Where random calls differ from PyTorch 2.13\n\n"
        "Written by `python tests/parity/known_faults.py`. `tests/parity/values_fuzz.py` reports every other difference.\n\n"
        "| why | reproducer | PyTorch | flambeau |\n|---|---|---|---|"
    )
    for fault in FAULTS:
        cells = [
            fault.reason,
            f"`{fault.example}`",
            f"`{answer(torch, fault.example)}`",
            f"`{answer(fl, fault.example)}`",
        ]
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")


if __name__ == "__main__":
    main()
