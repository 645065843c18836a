"""Products with Jacobians and Hessians, and the matrices themselves, over functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import flambeau as fl
from flambeau._C import Tensor
from flambeau.autograd import grad
from flambeau.autograd.transforming import refuse

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _as_tuple(x: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    if what == "inputs":
        refuse(f"torch.autograd.functional.{where}", f"Please use torch.func.{where} instead.")
    single = not isinstance(x, (tuple, list))
    listed = (x,) if single else tuple(x)
    for i, t in enumerate(listed):
        if not isinstance(t, Tensor):
            at = "" if single else f" at index {i}"
            subject = f"The {what} given to {where}"
            if what not in ("inputs", "v"):
                subject = f"The outputs of the user-provided function given to {where}"
            raise TypeError(
                f"[{where}] expected {what} to be a Tensor or a tuple of Tensors, got {type(t).__name__}{at}: {subject} "
                f"must be either a Tensor or a tuple of Tensors but the value{at} has type {type(t)}."
            )
    return not single, listed


def _fresh(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Inputs that require grad: connected to what they came from when the result is to be differentiated."""
    fresh = []
    for x in inputs:
        if create_graph and x.requires_grad:
            fresh.append(x.view_as(x))
        else:
            fresh.append(x.detach().requires_grad_(True))
    return tuple(fresh)


def _finish(x: Any, is_tuple: bool, create_graph: bool) -> Any:
    out = tuple(t if create_graph else t.detach() for t in x)
    return out if is_tuple else out[0]


_STRICT = "This is not allowed in strict mode"


def _refuse_strict(where: str, got: str, words: str) -> NoReturn:
    raise RuntimeError(f"[{where}] expected a result that depends on every input in strict mode, got {got}: {words}")


def _need_grad(tensors: tuple[Tensor, ...], strict: bool, where: str) -> None:
    """In strict mode outputs have to depend on an input."""
    for i, t in enumerate(tensors):
        if strict and not t.requires_grad:
            words = f"Output {i} of the user-provided function does not require gradients. "
            words += (
                "The outputs must be computed in a differentiable manner from the input when running in strict mode."
            )
            _refuse_strict(where, f"output {i} that depends on none", words)


def _need_second(gradients: tuple[Tensor, ...], strict: bool, where: str) -> None:
    """In strict mode gradients that are differentiated again have to depend on an input."""
    for i, g in enumerate(gradients):
        if strict and not g.requires_grad:
            words = (
                f"The jacobian of the user-provided function with respect to input {i} is independent of the input. "
            )
            _refuse_strict(where, f"a constant gradient of input {i}", f"{words}{_STRICT}.")


def _fill(
    grads: tuple[Any, ...],
    like: tuple[Tensor, ...],
    strict: bool,
    where: str,
    what: str = "The output of the user-provided function is independent of input",
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Zeros for missing gradients; in strict mode they, and constant ones that have a graph to be, are refused."""
    for i, g in enumerate(grads):
        if strict and g is None:
            _refuse_strict(where, f"none for input {i}", f"{what} {i}. {_STRICT}.")
        if strict and create_graph and not g.requires_grad:
            order = "hessian" if "jacobian" in what else "jacobian"
            words = f"The {order} of the user-provided function is independent of input {i}. {_STRICT} when create_graph=True."
            _refuse_strict(where, f"a constant for input {i}", words)
    return tuple(fl.zeros_like(x) if g is None else g for g, x in zip(grads, like))


_DOUBLE = "The jacobian of the user-provided function is independent of input"


def _check_v(v: Any, like: tuple[Tensor, ...], where: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            what = "user-provided function returns" if where == "vjp" else "input to the user-provided function is"
            words = f"The vector v can only be None if the {what} a single Tensor with a single element."
            raise RuntimeError(
                f"[{where}] expected v unless there is a single tensor of one element, got None: {words}"
            )
        return (fl.ones_like(like[0]),)
    _is_tuple, listed = _as_tuple(v, "v", where)
    if len(listed) != len(like):
        words = "v is a tuple of invalid length" if len(like) > 1 else "The given v should contain a single Tensor."
        raise RuntimeError(f"[{where}] expected {len(like)} tensors in v, got {len(listed)}: {words}")
    for i, (a, b) in enumerate(zip(listed, like)):
        if a.shape != b.shape:
            words = f"v has invalid size: should be {b.shape} but got {a.shape}."
            words = words if len(like) == 1 else f"Entry {i} in {words}"
            raise RuntimeError(
                f"[{where}] expected v of shape {tuple(b.shape)} at index {i}, got {tuple(a.shape)}: {words}"
            )
    return listed


def _grad(outputs: Any, inputs: Any, grads: Any = None, create_graph: bool = False) -> tuple[Any, ...]:
    """Like grad, with None for whatever does not depend."""
    grads = [None] * len(outputs) if grads is None else grads
    pairs = [(o, g) for o, g in zip(outputs, grads) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return grad(
        [o for o, _ in pairs],
        inputs,
        [g for _, g in pairs],
        create_graph=create_graph,
        retain_graph=True,
        allow_unused=True,
    )


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of func and the product of v with its Jacobian."""
    with fl.enable_grad():
        is_inputs_tuple, xs = _as_tuple(inputs, "inputs", "vjp")
        xs = _fresh(xs, create_graph)
        is_outputs_tuple, outputs = _as_tuple(func(*xs), "outputs of func", "vjp")
        vs = _check_v(v, outputs, "vjp")
        _need_grad(outputs, strict, "vjp")
        gradients = _fill(_grad(outputs, xs, vs, create_graph), xs, strict, "vjp", create_graph=create_graph)
    return _finish(outputs, is_outputs_tuple, create_graph), _finish(gradients, is_inputs_tuple, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of func and the product of its Jacobian with v, by differentiating the vjp, linear in its v."""
    with fl.enable_grad():
        _, xs = _as_tuple(inputs, "inputs", "jvp")
        xs = _fresh(xs, create_graph)
        vs = _check_v(v, xs, "jvp")
        is_outputs_tuple, outputs = _as_tuple(func(*xs), "outputs of func", "jvp")
        duals = tuple(fl.zeros_like(o, requires_grad=True) for o in outputs)
        _need_grad(outputs, strict, "jvp")
        back = _fill(_grad(outputs, xs, duals, create_graph=True), xs, strict, "jvp")
        trick = "The gradient with respect to the input is independent of entry"
        tangents = _fill(_grad(back, duals, vs, create_graph), outputs, strict, "jvp", trick, create_graph)
    return _finish(outputs, is_outputs_tuple, create_graph), _finish(tangents, is_outputs_tuple, create_graph)


def _construct_standard_basis_for(tensors: tuple[Tensor, ...], tensor_numels: tuple[int, ...]) -> tuple[Tensor, ...]:
    """For each tensor its columns of the identity matrix over the elements of all of them."""
    total, start, columns = sum(tensor_numels), 0, []
    for tensor, count in zip(tensors, tensor_numels, strict=True):
        column = fl.zeros(total, count, dtype=tensor.dtype, device=tensor.device)
        column.diagonal(-start).fill_(1)
        columns.append(column)
        start += count
    return tuple(columns)


def _need_loop(strict: bool, vectorize: bool, where: str) -> None:
    if strict and vectorize:
        words = f"torch.autograd.functional.{where}: `strict=True` and `vectorized=True` are not supported together."
        raise RuntimeError(f"[{where}] expected strict or vectorize, got both: {words}")


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of func: for each output and input a tensor of the output's sizes followed by the input's."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(f"[jacobian] expected strategy 'reverse-mode' or 'forward-mode', got {strategy!r}")
    _need_loop(strict, vectorize, "jacobian")
    with fl.enable_grad():
        is_inputs_tuple, xs = _as_tuple(inputs, "inputs", "jacobian")
        xs = _fresh(xs, create_graph)
        is_outputs_tuple, outputs = _as_tuple(func(*xs), "outputs of func", "jacobian")
        _need_grad(outputs, strict, "jacobian")
        rows = []
        for i, out in enumerate(outputs):
            what = f"Output {i} of the user-provided function is independent of input"
            columns: list[list[Tensor]] = [[] for _ in xs]
            for k in range(out.numel()):
                basis = fl.zeros_like(out, memory_format=fl.contiguous_format)
                basis.view(-1)[k] = 1
                gradients = _grad((out,), xs, (basis,), create_graph)
                for column, g in zip(columns, _fill(gradients, xs, strict, "jacobian", what, create_graph)):
                    column.append(g)
            rows.append(
                tuple(
                    fl.stack(column).view(tuple(out.shape) + tuple(x.shape))
                    if column
                    else fl.zeros(tuple(out.shape) + tuple(x.shape), dtype=x.dtype, device=x.device)
                    for column, x in zip(columns, xs)
                )
            )
    done = tuple(tuple(t if create_graph else t.detach() for t in row) for row in rows)
    shaped = tuple(row if is_inputs_tuple else row[0] for row in done)
    return shaped if is_outputs_tuple else shaped[0]


def _scalar(func: Callable[..., Any], where: str) -> Callable[..., Tensor]:
    def checked(*inputs: Tensor) -> Tensor:
        out = func(*inputs)
        is_tuple, listed = _as_tuple(out, "outputs of func", where)
        if is_tuple or listed[0].numel() != 1:
            got = f"{len(listed)} tensors" if is_tuple else f"shape {tuple(listed[0].shape)}"
            words = f"The Tensor returned by the function given to {where} should contain a single element"
            if is_tuple:
                words = f"The function given to {where} should return a single Tensor"
            raise RuntimeError(f"[{where}] expected func to return a single tensor of one element, got {got}: {words}")
        return listed[0].reshape(())

    return checked


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a scalar function."""
    _need_loop(strict, vectorize, "hessian")
    is_inputs_tuple, xs = _as_tuple(inputs, "inputs", "hessian")
    scalar = _scalar(func, "hessian")

    def gradients(*inner: Tensor) -> tuple[Tensor, ...]:
        out = scalar(*inner)
        _need_grad((out,), strict, "hessian")
        first = _fill(_grad((out,), inner, create_graph=True), inner, strict, "hessian")
        _need_second(first, strict, "hessian")
        return first

    second = jacobian(gradients, xs, create_graph=create_graph, strict=strict)
    return second if is_inputs_tuple else second[0][0]


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The value of a scalar function and the product of v with its Hessian."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def _hessian_product(
    where: str, func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    with fl.enable_grad():
        is_inputs_tuple, xs = _as_tuple(inputs, "inputs", where)
        xs = _fresh(xs, create_graph)
        vs = _check_v(v, xs, where)
        out = _scalar(func, where)(*xs)
        _need_grad((out,), strict, where)
        first = _fill(_grad((out,), xs, create_graph=True), xs, strict, where)
        _need_second(first, strict, where)
        product = _fill(_grad(first, xs, vs, create_graph), xs, strict, where, _DOUBLE, create_graph)
    return (out if create_graph else out.detach()), _finish(product, is_inputs_tuple, create_graph)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The value of a scalar function and the product of its Hessian with v; it is that of vhp, by symmetry."""
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)
