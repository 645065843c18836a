"""Reverse-mode transformations of functions, and forward-mode products by differentiating reverse mode."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import autograd
from flambeau._C import Tensor
from flambeau.autograd import transforming
from flambeau.autograd.function import SameMemory, finding_tangents
from flambeau.autograd.transforming import call_inside
from flambeau.func.batching import Batched, same_value
from flambeau.utils import _pytree as pytree


class _level:
    """Inside a transformation: what backward does is recorded for the levels around it, unless they are in no_grad."""

    def __init__(self, with_hooks: bool = False) -> None:
        self.with_hooks = with_hooks  # whether tensors may be saved by hooks

    def __enter__(self) -> _level:
        if transforming.hooks[0] and not self.with_hooks:
            raise RuntimeError(transforming.NO_HOOKS)
        transforming.levels[0] += not self.with_hooks
        self.recorded = fl.is_grad_enabled()
        self.mode = fl.enable_grad()
        self.mode.__enter__()
        return self

    def leave(self, tree: Any, own: list[Tensor]) -> Any:
        """Results for outside the level: without a graph unless something outside takes part in it."""
        return _leave(tree, own) if self.recorded else _detached(tree)

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)
        transforming.levels[0] -= not self.with_hooks


def _fresh(tree: Any) -> Any:
    """The tensors of a tree as inputs of this level."""

    def one(x: Any) -> Any:
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
            return x
        return x.view_as(x) if x.requires_grad else Tensor.requires_grad_(same_value(x))

    return pytree.tree_map(one, tree)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, Tensor) and x.requires_grad]


def _reaches(results: list[Tensor], own: set[int], inside: set[Any]) -> bool:
    """Whether the graph of the results ends at leaves that are not this level's own. Nodes found to lead to own leaves
    alone are noted as inside, where the next search ends."""
    seen = set(inside)
    stack = [t.grad_fn for t in results if t.requires_grad and t.grad_fn is not None]
    if any(t.requires_grad and t.grad_fn is None and id(t) not in own for t in results):
        return True
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() == "AccumulateGrad":
            if id(node.variable) not in own:
                return True
            continue
        stack.extend(n for n, _ in node.next_functions if n is not None)
    inside |= seen
    return False


def _detached(tree: Any) -> Any:
    def bare(x: Any) -> Any:
        if isinstance(x, Batched):
            return Batched(bare(x.value), x.axis, x.level)
        return x.detach() if isinstance(x, Tensor) else x

    return pytree.tree_map(bare, tree)


def _leave(tree: Any, own: list[Tensor]) -> Any:
    tensors = [x for x in pytree.tree_leaves(tree) if isinstance(x, Tensor)]
    leaves = {id(x) for x in own if x.is_leaf}
    inside: set[Any] = set()
    if _reaches(tensors, leaves, inside):
        return tree

    def bare(x: Any) -> Any:
        if not isinstance(x, Batched):
            return x.detach() if isinstance(x, Tensor) else x
        value = x.value
        if value.requires_grad and not _reaches([value], leaves, inside):
            value = bare(value)
        return Batched(value, x.axis, x.level)

    return pytree.tree_map(bare, tree)


def _chosen(argnums: Any, args: tuple[Any, ...], op: str) -> tuple[int, ...]:
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(
            f"[{op}] expected argnums to be an int or a tuple of ints, got {type(argnums).__name__}: argnum must be int or Tuple[int]"
        )
    listed = (argnums,) if isinstance(argnums, int) else argnums
    for a in listed:
        if not isinstance(a, int):
            raise RuntimeError(f"[{op}] expected argnums of ints, got {a!r}: argnum must be int")
    if not listed:
        raise RuntimeError(f"[{op}] expected argnums to name an argument: argnums must be non-empty")
    positions = tuple(a + len(args) if a < 0 else a for a in listed)
    for a, asked in zip(positions, listed):
        if not 0 <= a < len(args):
            raise RuntimeError(
                f"[{op}] expected argnums below {len(args)}, the number of positional inputs, got {argnums}: Got argnum="
                f"{asked}, but only {len(args)} positional inputs"
            )
    if len(set(positions)) != len(positions):
        raise RuntimeError(f"[{op}] expected distinct argnums, got {argnums}: argnums elements must be unique")
    return positions


def _gradients(out: Any, inputs: list[Tensor], v: Any, recorded: bool = True) -> list[Tensor]:
    outs = [out] if isinstance(out, Tensor) else list(out)
    vs = [v] if isinstance(v, Tensor) or v is None else list(v)
    pairs = [(o, g) for o, g in zip(outs, vs) if o.requires_grad]
    if not pairs or not inputs:
        return [fl.zeros_like(x) for x in inputs]
    gradients = autograd.grad(
        [o for o, _ in pairs],
        inputs,
        [g for _, g in pairs],
        create_graph=recorded,
        retain_graph=True,
        allow_unused=True,
    )
    return [fl.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs)]


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function and its value.

    - func, argnums, has_aux: as for grad.

    >>> flambeau.func.grad_and_value(lambda x: x**2)(flambeau.tensor(3.0))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _level() as level:
            at = _chosen(argnums, args, "grad")
            args = tuple(_fresh(a) if i in at else a for i, a in enumerate(args))
            picked = args[at[0]] if isinstance(argnums, int) else tuple(args[i] for i in at)
            flat, spec = pytree.tree_flatten(picked)
            inputs = [x for x in flat if isinstance(x, Tensor) and x.requires_grad]
            out = call_inside(func, *args, **kwargs)
            aux = None
            if has_aux:
                out, aux = _with_aux(out, "grad_and_value(f)(*args)")
            if not isinstance(out, Tensor):
                raise RuntimeError(f"[grad] expected func to return a Tensor, got {type(out).__name__}")
            if out.dim() != 0:
                raise RuntimeError(
                    f"[grad] expected func to return a scalar tensor, got a tensor with {out.dim()} "
                    "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            gradients = iter(_gradients(out, inputs, None))
            grads = pytree.tree_unflatten(
                [next(gradients) if isinstance(x, Tensor) and x.requires_grad else x for x in flat], spec
            )
            grads, out, aux = level.leave((grads, out, aux), inputs)
        return (grads, (out, aux)) if has_aux else (grads, out)

    return wrapper


def value_and_grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The value of a function and its gradient.

    - func, argnums, has_aux: as for grad.

    >>> flambeau.func.value_and_grad(lambda x: x**2)(flambeau.tensor(3.0))
    (tensor(9.), tensor(6.))
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return value, grads

    return wrapper


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function that returns one number.

    - func: the function; argnums: with respect to which arguments; has_aux: it returns (number, something else).

    >>> flambeau.func.grad(lambda x: x**2)(flambeau.tensor(3.0))
    tensor(6.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """A function's results, and the function that takes gradients of them to gradients of the arguments.

    - func, primals: the function and its arguments; has_aux.

    >>> result, pull = flambeau.func.vjp(flambeau.sin, flambeau.tensor(0.0))
    >>> pull(flambeau.tensor(1.0))
    (tensor(1.),)
    """
    with _level() as level:
        inner = _fresh(primals)
        flat, spec = pytree.tree_flatten(inner)
        out = call_inside(func, *inner)
        aux = None
        if has_aux:
            out, aux = _with_aux(out, "vjp(f, *primals)")
        outputs, out_spec = _checked_outputs(out, "vjp", "vjp(f, *primals)")
    inputs = [x for x in flat if isinstance(x, Tensor) and x.requires_grad]

    def pull(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        values = cotangents[0] if len(cotangents) == 1 else cotangents
        if len(cotangents) > 1 and all(isinstance(c, bool) for c in cotangents[1:]):
            values = cotangents[0]  # the switches by position
        vs, given_spec = pytree.tree_flatten(values)
        if len(vs) != len(outputs) or (given_spec != out_spec and len(outputs) > 1):
            raise RuntimeError(
                f"[vjp] expected cotangents for {len(outputs)} outputs, got {len(vs)}: Expected pytree structure of cotangents to be "
                f"the same as pytree structure of outputs to the function. cotangents: {given_spec}, primal output: {out_spec}"
            )
        with _level() as level:
            gradients = iter(_gradients(outputs, inputs, vs))
            tree = pytree.tree_unflatten(
                [next(gradients) if isinstance(x, Tensor) and x.requires_grad else x for x in flat], spec
            )
            tree = level.leave(tree, inputs)
        return tree

    shown = level.leave(pytree.tree_unflatten(list(outputs), out_spec), inputs)
    return (shown, pull, level.leave(aux, inputs)) if has_aux else (shown, pull)


def _with_aux(out: Any, call: str) -> tuple[Any, Any]:
    """The value and what else a function returned, which must be tensors."""
    if not (isinstance(out, tuple) and len(out) == 2):
        raise RuntimeError(
            f"[func] expected func to return (value, aux) with has_aux=True, got another result: {call}: output of function f should "
            "be a tuple: (output, aux) if has_aux is True"
        )
    for x in pytree.tree_leaves(out[1]):
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"[func] expected tensors in aux, got {type(x).__name__}: Expected tensors, got unsupported type {type(x)}"
            )
    return out


def _checked_outputs(out: Any, op: str, call: str) -> tuple[list[Any], Any]:
    outputs, spec = pytree.tree_flatten(out)
    if not outputs or out is None:
        raise RuntimeError(
            f"[{op}] expected func to return Tensors, got none: {call}: Expected f to be a function that has non-empty output"
        )
    for x in outputs:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"[{op}] expected func to return Tensors, got {type(x).__name__}: {call}: expected f(*primals) to "
                f"return only tensors, got unsupported type {type(x)}"
            )
    return outputs, spec


def _check_primals(primals: Any, tangents: Any) -> None:
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"[jvp] expected a tuple of primals, got {type(primals).__name__}: jvp(f, primals, tangents): Expected primals to be a "
            "tuple"
        )
    flat, spec = pytree.tree_flatten(primals)
    others, other_spec = pytree.tree_flatten(tangents)
    if spec != other_spec:
        raise RuntimeError(
            "[jvp] expected tangents of the structure of the primals, got another: jvp(f, primals, tangents): Expected primals and "
            "tangents to have the same python structure"
        )
    if not flat:
        raise RuntimeError(
            "[jvp] expected primals, got none: jvp(f, primals, tangents): Expected at least one Tensor in primals"
        )
    for name, leaves in (("primals", flat), ("tangents", others)):
        for x in leaves:
            if not isinstance(x, Tensor):
                raise RuntimeError(
                    f"[jvp] expected Tensors in {name}, got {type(x).__name__}: jvp(f, primals, tangents): Expected {name} to "
                    "only contain Tensors"
                )


def _writable(x: Any) -> Any:
    return SameMemory.apply(x) if type(x) is Tensor and x.requires_grad and x.is_leaf else x


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """A function's results, and their change for a change of the arguments.

    - func, primals, tangents: the function, its arguments and their change; has_aux.

    >>> flambeau.func.jvp(flambeau.sin, (flambeau.tensor(0.0),), (flambeau.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    _check_primals(primals, tangents)
    with _level(with_hooks=True) as level:
        roots = _fresh(primals)
        inputs = _tensors(roots)
        out = call_inside(func, *pytree.tree_map(_writable, roots))
        aux = None
        if has_aux:
            out, aux = _with_aux(out, "jvp(f, primals, tangents)")
        outputs, spec = _checked_outputs(out, "jvp", "jvp(f, primals, tangents)")
        if strict and not all(o.requires_grad for o in outputs):
            raise RuntimeError(
                "[jvp] expected every result to depend on the primals in strict mode, got one that does not: jvp(f, primals, tangents, "
                "strict=True): The output of f is independent of the inputs. This is not allowed with strict=True."
            )
        duals = [fl.zeros_like(o, requires_grad=True) for o in outputs]
        with finding_tangents():
            back = _gradients(outputs, inputs, duals)
        pairs = [(b, t) for b, t in zip(back, pytree.tree_leaves(tangents)) if b.requires_grad]
        if pairs:
            output_tangents = autograd.grad(
                [b for b, _ in pairs], duals, [t for _, t in pairs], create_graph=True, allow_unused=True
            )
        else:
            output_tangents = [None] * len(duals)  # type: ignore[assignment]
        moved = [fl.zeros_like(o) if g is None else g for g, o in zip(output_tangents, outputs)]
        results = level.leave(
            (pytree.tree_unflatten(list(outputs), spec), pytree.tree_unflatten(moved, spec), aux), inputs + duals
        )
    return results if has_aux else results[:2]


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """A function's results, and the linear function of a change of its arguments, computed without the function again.

    - func, primals.

    >>> result, push = flambeau.func.linearize(flambeau.sin, flambeau.tensor(0.0))
    >>> push(flambeau.tensor(2.0))
    tensor(2.)
    """
    out = func(*primals)
    return out, lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable[..., Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of a function, row by row in reverse mode: best for few results.

    - func, argnums, has_aux; chunk_size: rows at a time.

    >>> flambeau.func.jacrev(flambeau.square)(flambeau.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(
            f"[jacrev] expected rows at a time, got {chunk_size}: jacrev: `chunk_size` should be greater than 0."
        )
    return _jacobian("jacrev", func, argnums, has_aux, contextlib.nullcontext)


def _jacobian(
    op: str, func: Callable[..., Any], argnums: Any, has_aux: bool, mode: Callable[[], Any]
) -> Callable[..., Any]:
    call = "vjp(f, *primals)" if op == "jacrev" else "jvp(f, primals, tangents)"

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _level() as level:
            at = _chosen(argnums, args, op)
            args = tuple(_fresh(a) if i in at else a for i, a in enumerate(args))
            picked = args[at[0]] if isinstance(argnums, int) else tuple(args[i] for i in at)
            flat, spec = pytree.tree_flatten(picked)
            _check_real(op, "inputs", flat)
            out = call_inside(func, *args, **kwargs)
            aux = None
            if has_aux:
                out, aux = _with_aux(out, call)
            outputs, out_spec = _checked_outputs(out, op, call)
            _check_real(op, "outputs", outputs)
            with mode():
                rows = [_rows(o, flat) for o in outputs]
            tree = pytree.tree_unflatten([pytree.tree_unflatten(row, spec) for row in rows], out_spec)
            tree, aux = level.leave((tree, aux), flat)
        return (tree, aux) if has_aux else tree

    return wrapper


def _check_real(op: str, what: str, tensors: list[Any]) -> None:
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(
                f"[{op}] expected real tensors, got {x.dtype}: {op}: Expected all {what} to be real but received complex tensor at "
                f"flattened input idx: {i}"
            )


def _rows(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    columns: list[list[Tensor]] = [[] for _ in inputs]
    for k in range(output.numel()):
        basis = fl.zeros_like(output, memory_format=fl.contiguous_format)
        basis.view(-1)[k] = 1
        for column, g in zip(columns, _gradients(output, inputs, basis)):
            column.append(g)
    return [
        fl.stack(column).reshape(tuple(output.shape) + tuple(x.shape))
        if column
        else fl.zeros(tuple(output.shape) + tuple(x.shape), dtype=x.dtype, device=x.device)
        for column, x in zip(columns, inputs)
    ]


def jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """The Jacobian of a function, column by column in forward mode: best for few arguments.

    - func, argnums, has_aux, randomness.

    >>> flambeau.func.jacfwd(flambeau.square)(flambeau.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    return _jacobian("jacfwd", func, argnums, has_aux, finding_tangents)


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a function that returns one number.

    - func, argnums.

    >>> flambeau.func.hessian(lambda x: (x**3).sum())(flambeau.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function with the results of `func`, and its effects on the arguments.

    A plain call runs the function as it is. A recorder such as make_fx sees calls that write to nothing, and at the end copies into
    the arguments that the function changed; with remove="mutations_and_views", no views either.

    >>> flambeau.func.functionalize(lambda x: x.clone().add_(1))(flambeau.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"[functionalize] expected remove='mutations' or 'mutations_and_views', got {remove!r}")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        modes = [fl._C._get_dispatch_stack_at(i) for i in range(fl._C._len_torch_dispatch_stack())]
        if any(hasattr(mode, "enable_tracing") for mode in modes):
            from importlib import import_module

            return import_module("flambeau.export._functionalize").recorded(
                func, remove == "mutations_and_views", args, kwargs
            )
        return func(*args, **kwargs)

    return call
