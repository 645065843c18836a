"""Reverse-mode differentiation: the entry points over the engine in csrc/autograd.

`backward` and `grad` are here; modes, Function, graph tools, the functional API and the checkers are in the modules of
this package, imported on first use.
"""

from __future__ import annotations

from importlib import import_module

from flambeau import _C
from flambeau._C import SavedTensor, Tensor  # noqa: F401
from flambeau.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from flambeau.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
    from flambeau.autograd.function import Function, NestedIOFunction

__all__ = [
    "backward", "grad", "Variable", "Function", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode",
    "set_multithreading_enabled", "detect_anomaly", "set_detect_anomaly", "gradcheck", "gradgradcheck",
    "NestedIOFunction", "forward_ad", "functional", "graph", "profiler", "variable",
]  # fmt: skip

_LAZY = {
    "Function": "function", "NestedIOFunction": "function", "detect_anomaly": "anomaly_mode",
    "set_detect_anomaly": "anomaly_mode", "draw": "drawing", "is_multithreading_enabled": "grad_mode",
    "is_view_replay_enabled": "grad_mode", "_force_original_view_tracking": "grad_mode",
    "_unsafe_preserve_version_counter": "grad_mode",
}  # fmt: skip
_MODULES = frozenset(
    "function functional graph anomaly_mode forward_ad profiler variable drawing profiler_util".split()
)


_BATCHED_GRADIENTS = (
    " If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of the remaining "
    "dimensions are expected to match the shape of corresponding output, but a mismatch was detected."
)


def _first_gradient(out: Any) -> Tensor:
    """The gradient of an output for which none was given: one."""
    if not isinstance(out, Tensor):
        import flambeau as fl

        shape, dtype, device = _C._node_outputs(out[0])[out[1]]
        out = fl.empty(shape, dtype=dtype, device=device)
    if out.numel() != 1:
        raise RuntimeError(
            f"[backward] expected a scalar, got a tensor of shape {tuple(out.shape)}: grad can be implicitly created "
            "only for "
            "scalar outputs; pass the gradient of this output, or reduce it with sum() or mean()"
        )
    if not out.dtype.is_floating_point:
        raise RuntimeError(
            f"[backward] expected a real scalar, got {out.dtype}: grad can be implicitly created only for real scalar "
            "outputs"
        )
    return _ones_like(out)


def _ones_like(out: Tensor) -> Tensor:
    import flambeau as fl

    with no_grad():
        return fl.ones_like(out, memory_format=fl.preserve_format)


def _check_gradient(g: Tensor, out: Any, i: int, is_grads_batched: bool) -> None:
    shape, dtype = (out.shape, out.dtype) if isinstance(out, Tensor) else _C._node_outputs(out[0])[out[1]][:2]
    gradient_shape = g.shape[1:] if is_grads_batched else g.shape
    if tuple(gradient_shape) != tuple(shape):
        raise RuntimeError(
            f"[backward] expected a gradient of the output's shape, got another: Mismatch in shape: grad_output[{i}] has a shape of "
            f"{tuple(g.shape)} and output[{i}] has a shape of {tuple(shape)}."
            + (_BATCHED_GRADIENTS if is_grads_batched else "")
        )
    if g.is_complex() != dtype.is_complex:
        raise RuntimeError(
            "[backward] expected complex gradients of complex outputs and real ones of real outputs: for complex Tensors, both "
            f"grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} "
            f"and output[{i}] has a dtype of {dtype}."
        )


def _make_grads(outputs: Sequence[Any], grads: Sequence[Any], is_grads_batched: bool = False) -> list[Any]:
    if len(grads) != len(outputs):
        raise RuntimeError(f"[backward] expected {len(outputs)} gradients, one for each output, got {len(grads)}")
    gradients = []
    for i, (out, g) in enumerate(zip(outputs, grads)):
        if isinstance(g, Tensor):
            _check_gradient(g, out, i, is_grads_batched)
            gradients.append(g)
        elif g is None and not isinstance(out, Tensor) and not _is_edge(out):
            raise TypeError(f"[backward] expected Tensors or edges of a graph, got {type(out).__name__}")
        elif g is None:
            gradients.append(_first_gradient(out) if not isinstance(out, Tensor) or out.requires_grad else None)  # type: ignore[arg-type]
        else:
            raise TypeError(f"[backward] expected gradients that are Tensors or None, got {type(g).__name__}")
    return gradients


def _is_edge(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) >= 2 and isinstance(x[0], _C.Node)


def _listed(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Tensor) or _is_edge(x) or not hasattr(x, "__iter__") else tuple(x)


def _run(
    roots: Any, grads: Any, wanted: Any, retain_graph: bool, create_graph: bool, accumulate: bool
) -> tuple[Any, ...]:
    """The engine's run; tensors that keep a history of their own (fake ones) run theirs."""
    for root in roots:
        if type(root) is not Tensor and isinstance(root, Tensor) and hasattr(type(root), "_run_backward"):
            return type(root)._run_backward(roots, grads, wanted, create_graph, accumulate)
    return _C._run_backward(roots, grads, wanted, retain_graph, create_graph, accumulate)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Gradients of tensors with respect to the leaves of their graph, added to `.grad`.

    - tensors; grad_tensors: gradients of these, for tensors of more than one element.
    - retain_graph: keep the graph for another call; create_graph: record the gradients themselves; inputs: only these leaves.

    >>> x = flambeau.tensor(3.0, requires_grad=True)
    >>> flambeau.autograd.backward(x**2)
    >>> x.grad
    tensor(6.)
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "[backward] expected grad_tensors or grad_variables, got both; grad_variables is deprecated"
            )
        grad_tensors = grad_variables
    wanted = None
    if inputs is not None:
        wanted = _listed(inputs)
        if not wanted:
            raise RuntimeError(
                "[backward] expected at least one input, got none: `inputs` argument to `backward` cannot be empty."
            )
    roots = _listed(tensors)
    grads = (None,) * len(roots) if grad_tensors is None else _listed(grad_tensors)
    grads = _make_grads(roots, grads)  # type: ignore[assignment]
    if retain_graph is None:
        retain_graph = create_graph
    gradients = _run(roots, grads, wanted, retain_graph, create_graph, True)
    if wanted is not None:
        for x, g in zip(wanted, gradients):
            if isinstance(x, Tensor) and not x.is_leaf and not x.retains_grad and g is not None:
                x._grad = g if x._grad is None else x._grad + g


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of outputs with respect to inputs, returned and not stored.

    - outputs, inputs: tensors; grad_outputs: gradients of the outputs; retain_graph, create_graph.
    - allow_unused, materialize_grads: None or zeros for inputs that play no part; is_grads_batched.

    >>> x = flambeau.tensor(3.0, requires_grad=True)
    >>> flambeau.autograd.grad(x**2, x)
    (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "[grad] expected no allow_unused=False with materialize_grads=True, got it: Expected allow_unused to be True or not passed "
            "when materialize_grads=True"
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    if not only_inputs:
        import warnings

        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True).", FutureWarning, stacklevel=2
        )
    roots, wanted = _listed(outputs), _listed(inputs)
    if _C._has_torch_function((*roots, *wanted)):
        from flambeau.overrides import handle_torch_function

        options = {"retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": allow_unused}
        options |= {"is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads}
        return handle_torch_function(
            grad, (*roots, *wanted), roots, wanted, grad_outputs=grad_outputs, only_inputs=only_inputs, **options
        )
    if retain_graph is None:
        retain_graph = create_graph
    grads = (None,) * len(roots) if grad_outputs is None else _listed(grad_outputs)
    grads = _make_grads(roots, grads, is_grads_batched)  # type: ignore[assignment]
    if is_grads_batched:
        gradients = _batched(roots, wanted, grads, retain_graph, create_graph, allow_unused)
    else:
        gradients = _run(roots, grads, wanted, retain_graph, create_graph, False)
        if not allow_unused and any(g is None for g in gradients):
            _complain_unused(gradients)
    if materialize_grads:
        import flambeau as fl

        if any(g is None and not isinstance(x, Tensor) for g, x in zip(gradients, wanted)):
            raise RuntimeError(
                "[grad] expected inputs that are Tensors with materialize_grads=True, got a GradientEdge: "
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        gradients = tuple(
            fl.zeros_like(x, requires_grad=create_graph) if g is None else g for g, x in zip(gradients, wanted)
        )
    return gradients


def _complain_unused(gradients: Any) -> None:
    at = next(i for i, g in enumerate(gradients) if g is None)
    raise RuntimeError(
        f"[grad] expected outputs that depend on every input, got none for input {at}: One of the differentiated "
        "Tensors appears to "
        "not have been used in the graph. Set allow_unused=True if this is the desired behavior."
    )


def _batched(roots: Any, wanted: Any, grads: Any, retain: bool, create: bool, allow_unused: bool) -> tuple[Any, ...]:
    """One backward for each element of the gradients' first dimension, stacked."""
    import flambeau as fl

    sizes = {g.shape[0] for g in grads if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(
            f"[grad] expected gradients of one batch size with is_grads_batched=True, got {sorted(sizes)}"
        )
    n = sizes.pop()
    rows = []
    for k in range(n):
        picked = [None if g is None else g[k] for g in grads]
        rows.append(_run(roots, picked, wanted, retain or k + 1 < n, create, False))
        if not allow_unused and any(g is None for g in rows[-1]):
            _complain_unused(rows[-1])
    return tuple(None if column[0] is None else fl.stack(column) for column in zip(*rows))


class _VariableMeta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class _Engine:
    """What programs ask of the backward engine."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Calls a function at the end of the backward that runs now."""
        _C._queue_callback(callback)

    def __call__(self) -> _Engine:
        return self


class Variable(metaclass=_VariableMeta):
    """The old name of tensors that take part in a graph."""

    def __new__(cls, data: Any = None, requires_grad: bool = False) -> Any:
        import flambeau as fl

        tensor = fl.empty(0) if data is None else data.detach()
        return tensor.requires_grad_(requires_grad)

    _execution_engine: Any = _Engine()


def _calculate_shape(output: Any, grad: Tensor, is_grads_batched: bool) -> Any:
    return output.shape, grad.shape


def _is_checkpoint_valid() -> bool:
    """Whether a checkpoint's backward may run now: it needs one that accumulates into all leaves."""
    return not _C._backward_is_partial()


def _profiler_enabled() -> bool:
    """Whether a profiler records."""
    from flambeau.autograd import profiler

    return bool(profiler._active)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    elif name in _MODULES:
        return import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


from flambeau.autograd import _methods  # noqa: E402,F401

# Imported at once: the first import of a module sets its name here, which must stay the function.
from flambeau.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck  # noqa: E402,F401
