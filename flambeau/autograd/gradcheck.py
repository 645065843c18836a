"""Gradients against finite differences.

A function of tensors is checked through its whole Jacobian, the real and the imaginary part of a complex number being
two independent variables: with L = Re(sum(conj(v) * out)), the gradient of L by backward from v must be
dL/dRe(x) + i dL/dIm(x).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.autograd import grad

__all__ = ["gradcheck", "gradgradcheck", "GradcheckError"]


class GradcheckError(RuntimeError):
    """Gradients that differ from finite differences."""


def _outputs(result: Any) -> list[Tensor]:
    listed = result if isinstance(result, (tuple, list)) else (result,)
    return [
        o for o in listed if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex()) and o.requires_grad
    ]


def _flat(x: Tensor) -> Tensor:
    """All numbers of a tensor as one real vector."""
    x = x.detach()
    return (fl.view_as_real(x.resolve_conj().resolve_neg().contiguous()) if x.is_complex() else x).reshape(-1).clone()


def _call(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    return _outputs(func(*inputs))


def _numerical(func: Callable[..., Any], inputs: Sequence[Any], at: int, eps: float) -> list[list[Tensor]]:
    """For each number of input `at` the change of every output, as real vectors."""
    x = inputs[at]
    dense = x.detach().resolve_conj().resolve_neg().clone(memory_format=fl.contiguous_format)
    numbers = (fl.view_as_real(dense) if dense.is_complex() else dense).view(-1)
    rows = []
    for k in range(numbers.numel()):
        value = numbers[k].item()
        sides = []
        for step in (eps, -eps):
            numbers[k] = value + step
            sides.append(_call_at(func, inputs, at, dense))
        numbers[k] = value
        rows.append([_flat(d) for d in _differences(sides[0], sides[1], eps)])
    return rows


def _differences(ahead: list[Tensor], behind: list[Tensor], eps: float) -> list[Tensor]:
    """The slope of each output between two points, at both of which it has to be of one kind."""
    for a, b in zip(ahead, behind):
        for fact, ours, theirs in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
            if ours != theirs:
                raise AssertionError(
                    f"[gradcheck] expected outputs of one {fact} at nearby inputs, got {ours} and {theirs}: Expected `func` to "
                    f"return outputs with the same {fact} when inputs are perturbed on the order of {eps}"
                )
    return [(a - b) / (2 * eps) for a, b in zip(ahead, behind)]


def _call_at(func: Callable[..., Any], inputs: Sequence[Any], at: int, values: Tensor) -> list[Tensor]:
    """The outputs where input `at` has other values. They are written into the input itself, because the function may
    also reach it by another way than its arguments, as a module reaches its parameters. Expanded tensors (of gradients) and
    subclasses that wrap others cannot be written so, and are replaced."""
    x = inputs[at]
    moved = list(inputs)
    if _is_expanded(x) or type(x) not in (Tensor, fl.nn.Parameter):
        moved[at] = values.clone().requires_grad_()
        return _call(func, moved)
    original = x.detach().clone()
    x.data.copy_(values)
    try:
        return [o.detach().clone() for o in _call(func, moved)]
    finally:
        x.data.copy_(original)


def _analytical(output: Tensor, x: Tensor, allow_unused: bool = True) -> list[Tensor]:
    """For each number of the output the gradient of x, as real vectors."""
    rows = []
    count = output.numel()
    for k in range(count):
        for unit in (1, 1j) if output.is_complex() else (1,):
            v = fl.zeros_like(output, memory_format=fl.contiguous_format)
            v.view(-1)[k] = unit
            (g,) = grad(output, x, v, retain_graph=True, allow_unused=allow_unused)
            rows.append(fl.zeros_like(_flat(x)) if g is None else _flat(g))
    return rows


def _compare(
    func: Callable[..., Any], inputs: Sequence[Any], eps: float, atol: float, rtol: float, nondet_tol: float
) -> None:
    outputs = _call(func, inputs)
    for i, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.requires_grad):
            continue
        numerical = _numerical(func, inputs, i, eps)
        for j, output in enumerate(outputs):
            analytical = _analytical(output, x)
            if not analytical or not numerical:
                continue
            got = fl.stack(analytical)  # outputs by inputs
            want = fl.stack([row[j] for row in numerical], 1)
            v = _random_like(output, fl.Generator().manual_seed(0))
            (first,) = grad(output, x, v, retain_graph=True, allow_unused=True)
            if not _same_again(output, x, v, first, nondet_tol):
                raise GradcheckError(_not_reentrant(j, i))
            if not fl.allclose(got.to(want.dtype), want, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    "[gradcheck] expected the gradients of finite differences, got others: Jacobian mismatch for "
                    f"output {j} with respect "
                    f"to input {i},\nnumerical:{want}\nanalytical:{got}\n"
                )


def _random_like(x: Tensor, generator: Any) -> Tensor:
    """A random tensor of x's shape and dtype, of which the numbers are of size one together."""
    flat = fl.randn(_flat(x).shape, generator=generator, dtype=_flat(x).dtype, device="cpu").to(x.device)
    flat = flat / max(float(flat.norm()), 1e-30) if flat.numel() else flat
    return (fl.view_as_complex(flat.view(-1, 2)) if x.is_complex() else flat).reshape(x.shape)


def _not_reentrant(output: int, input: int) -> str:
    return (
        "[gradcheck] expected the same gradients from two backwards, got others: Backward is not reentrant, i.e., running backward "
        f"with same input and grad_output multiple times gives different values, for output {output} and input {input}"
    )


def _same_again(output: Tensor, x: Tensor, v: Tensor, first: Tensor | None, tolerance: float) -> bool:
    """Whether a second backward gives the gradient of the first."""
    (again,) = grad(output, x, v, retain_graph=True, allow_unused=True)
    if first is None or again is None:
        return (first is None) == (again is None)
    return bool(fl.allclose(_flat(first), _flat(again), atol=tolerance, rtol=0.0, equal_nan=True))


def _compare_fast(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float | None = None,
) -> None:
    """The Jacobian between random directions of each input and each output, instead of all its entries."""
    outputs = _call(func, inputs)
    wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not outputs or not wanted:
        return
    generator = fl.Generator().manual_seed(0)
    directions = [_random_like(inputs[i], generator) for i in wanted]
    slopes = []  # of every output along the direction of each input
    for i, u in zip(wanted, directions):
        sides = []
        for step in (eps, -eps):
            sides.append(_call_at(func, inputs, i, inputs[i].detach() + step * u))
        slopes.append(_differences(sides[0], sides[1], eps))
    for j, output in enumerate(outputs):
        v = _random_like(output, generator) * max(1.0, output.numel() ** 0.5)
        gradients = grad(output, [inputs[i] for i in wanted], v, retain_graph=True, allow_unused=True)
        for i, u, g, slope in zip(wanted, directions, gradients, slopes):
            if u.numel() == 0:
                continue
            want = float((_flat(slope[j]) * _flat(v)).sum())
            got = 0.0 if g is None else float((_flat(g) * _flat(u)).sum())
            if nondet_tol is not None and not _same_again(output, inputs[i], v, g, nondet_tol):
                raise GradcheckError(_not_reentrant(j, i))
            if not abs(got - want) <= atol + rtol * abs(want) and not (got != got and want != want):
                raise GradcheckError(
                    "[gradcheck] expected the gradients of finite differences, got others: Jacobian mismatch for "
                    f"output {j} with respect to input {i} between random directions (fast mode): numerical {want}, "
                    f"analytical {got}"
                )


def _check_inputs(inputs: Sequence[Any]) -> None:
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        raise ValueError(
            "[gradcheck] expected at least one input tensor that requires grad: gradcheck expects at "
            "least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor) and x.requires_grad and x.dtype not in (fl.float64, fl.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely "
                "fail if all the inputs are not of double precision floating point or complex.",
                stacklevel=3,
            )
        if isinstance(x, Tensor) and x.requires_grad and _is_expanded(x):
            raise RuntimeError(
                f"[gradcheck] expected inputs whose elements lie apart, got one that is expanded: The {i}th input has a dimension "
                "with stride 0; call contiguous() on it first, so that each of its numbers can be changed alone"
            )


def _is_expanded(x: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape))


def _check_constant(func: Callable[..., Any], inputs: Sequence[Any], eps: float, atol: float) -> None:
    """A function without differentiable results must not depend on its inputs."""

    def results(*args: Any) -> list[Tensor]:
        listed = func(*args)
        return [
            o
            for o in (listed if isinstance(listed, (tuple, list)) else (listed,))
            if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex())
        ]

    if _call(func, inputs):
        return
    for i, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.requires_grad):
            continue
        sides = []
        for step in (eps, -eps):
            moved = list(inputs)
            moved[i] = (x.detach() + step).requires_grad_()
            sides.append(results(*moved))
        if any(float((_flat(a) - _flat(b)).abs().max()) / (2 * eps) > atol for a, b in zip(*sides) if a.numel()):
            raise GradcheckError(
                f"[gradcheck] expected results that require grad, got constants that change with input {i}: Numerical gradient for "
                "function expected to be zero"
            )


def _check_forward(func: Callable[..., Any], inputs: Sequence[Any], eps: float, atol: float, rtol: float) -> None:
    """Tangents of forward mode against differences, along random directions of each input."""
    from flambeau.autograd import forward_ad

    generator = fl.Generator().manual_seed(0)
    for i, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.requires_grad):
            continue
        direction = _random_like(x, generator)
        sides = [_call_at(func, inputs, i, x.detach() + step * direction) for step in (eps, -eps)]
        with forward_ad.dual_level():
            moved = [
                forward_ad.make_dual(a.detach(), direction if k == i else fl.zeros_like(a))
                if isinstance(a, Tensor) and a.requires_grad
                else a
                for k, a in enumerate(inputs)
            ]
            listed = func(*moved)
            results = [
                o
                for o in (listed if isinstance(listed, (tuple, list)) else (listed,))
                if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex())
            ]
            tangents = [forward_ad.unpack_dual(o).tangent for o in results]
        if len(tangents) != len(sides[0]):
            continue  # some results have no derivative
        for j, (tangent, above, below) in enumerate(zip(tangents, *sides)):
            want = (_flat(above) - _flat(below)) / (2 * eps)
            got = fl.zeros_like(want) if tangent is None else _flat(tangent).to(want.dtype)
            if not fl.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    "[gradcheck] expected the tangents of finite differences, got others: Jacobian computed with forward mode "
                    f"mismatch for output {j} with respect to input {i},\nnumerical:{want}\nanalytical:{got}\n"
                )


def _check_batched(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Gradients for several vectors at once, by vmap, against those for each."""
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    generator = fl.Generator().manual_seed(0)
    for j, output in enumerate(_call(func, inputs)):
        vectors = fl.stack([_random_like(output, generator) for _ in range(2)])

        def gradients(v: Tensor, output: Tensor = output) -> tuple[Any, ...]:
            computed = grad(output, wanted, v, retain_graph=True, allow_unused=True)
            return tuple(g for g in computed if g is not None)

        want = [fl.stack(column) for column in zip(*(gradients(v) for v in vectors))]
        try:
            got = fl.func.vmap(gradients)(vectors) if want else ()
        except Exception as error:
            raise GradcheckError(
                "[gradcheck] expected a backward that vmap can follow, got an error: gradcheck or gradgradcheck failed while testing "
                f"batched gradient computation: {type(error).__name__}: {error}"
            ) from error
        if not all(fl.allclose(_flat(a), _flat(b), equal_nan=True) for a, b in zip(got, want)):
            raise GradcheckError(
                "[gradcheck] expected the same gradients with and without vmap, got others: gradcheck or gradgradcheck failed while "
                f"testing batched gradient computation, for output {j}"
            )


def _check_undefined(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Backward must cope with outputs of which no gradient arrives."""
    outputs = _call(func, inputs)
    if len(outputs) < 2:
        return
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    for skipped in range(len(outputs)):
        rest = [o for i, o in enumerate(outputs) if i != skipped]
        grad(rest, wanted, [fl.zeros_like(o) for o in rest], retain_graph=True, allow_unused=True)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether derivatives agree with differences of nearby values.

    - func, inputs: a function and its arguments, in double precision; eps, atol, rtol.
    - raise_exception, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, check_forward_ad, fast_mode, masked.

    >>> x = flambeau.ones(2, dtype=flambeau.double, requires_grad=True)
    >>> flambeau.autograd.gradcheck(flambeau.sin, (x,))
    True
    """
    if not check_forward_ad and not check_backward_ad:
        raise AssertionError(
            "[gradcheck] expected a mode to check, got none: Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    listed = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if any(isinstance(x, Tensor) and x.layout is not fl.strided for x in listed):
        func, listed = _of_values(func, listed)
    _check_inputs(listed)
    try:
        _check_constant(func, listed, eps, atol)
        if check_backward_ad and fast_mode:
            _compare_fast(func, listed, eps, atol, rtol, nondet_tol)
        elif check_backward_ad:
            _compare(func, listed, eps, atol, rtol, nondet_tol)
        if check_batched_grad:
            _check_batched(func, listed)
        if check_forward_ad:
            _check_forward(func, listed, eps, atol, rtol)
        if check_undefined_grad and check_backward_ad:
            _check_undefined(func, listed)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _of_values(func: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of the values of sparse inputs, and those values: what sparse tensors do not hold is not perturbed."""
    from flambeau.sparse.construction import is_sparse, with_values

    def values_of(x: Any) -> Any:
        values = fl._ops._sparse_values(x).detach().clone()
        return values.requires_grad_() if x.requires_grad else values

    patterns = [x.detach() if is_sparse(x) else None for x in inputs]

    def on_values(*args: Any) -> Any:
        result = func(*[x if t is None else with_values(t, x) for t, x in zip(patterns, args)])
        listed = result if isinstance(result, (tuple, list)) else (result,)
        dense = tuple(x.to_dense() if is_sparse(x) else x for x in listed)
        return dense if isinstance(result, (tuple, list)) else dense[0]

    return on_values, tuple(x if t is None else values_of(x) for t, x in zip(patterns, inputs))


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether second derivatives agree with differences of first ones.

    - func, inputs, grad_outputs and the rest: as for gradcheck.

    >>> x = flambeau.ones(2, dtype=flambeau.double, requires_grad=True)
    >>> flambeau.autograd.gradgradcheck(flambeau.sin, (x,))
    True
    """
    listed = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if any(isinstance(x, Tensor) and x.layout is not fl.strided for x in listed):
        func, listed = _of_values(func, listed)
    outputs = _call(func, listed)
    if grad_outputs is None:
        generator = fl.Generator().manual_seed(0)
        random_gradients = []
        for o in outputs:
            parts = fl.randn(_flat(o).shape, generator=generator, dtype=_flat(o).dtype, device="cpu").to(o.device)
            v = (fl.view_as_complex(parts.view(-1, 2)) if o.is_complex() else parts).reshape(o.shape)
            random_gradients.append(v.requires_grad_())
    else:
        random_gradients = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(listed)
    places = [i for i, x in enumerate(listed) if isinstance(x, Tensor) and x.requires_grad]

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        inner, vs = args[:count], args[count:]
        gradients = grad(_call(func, inner), [inner[i] for i in places], vs, create_graph=True, allow_unused=True)
        return tuple(g for g in gradients if isinstance(g, Tensor) and g.requires_grad)

    return gradcheck(
        gradients,
        (*listed, *random_gradients),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
    )
