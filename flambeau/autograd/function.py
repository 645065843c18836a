"""autograd.Function: operations whose derivative the user writes."""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._C import Tensor
from flambeau.autograd import transforming
from flambeau.autograd.grad_mode import enable_grad, no_grad
from flambeau.ops.recording import state as recording

__all__ = [
    "FunctionCtx",
    "BackwardCFunction",
    "FunctionMeta",
    "Function",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


class FunctionCtx:
    """What forward leaves for backward."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    _materialize_non_diff_grads = True  # of outputs that were marked as non-differentiable
    to_save: tuple[Any, ...] | None = None
    saved_for_forward: tuple[Any, ...] | None = None
    dirty_tensors: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()
    _saved: tuple[Any, ...] | None = None
    _node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    "[save_for_backward] expected Tensors or None: save_for_backward can only save "
                    f"variables, got {type(t).__name__}"
                )
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        self.non_differentiable = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Accepted for compatibility: shared storage is found by itself."""

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self._unpack(self._node)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        """What was saved as objects that can be given hooks."""
        for saved in self._saved or ():
            if saved is not None and saved.released:
                saved.unpack(None, self.name())  # which says that it is gone
        return tuple(_C._save_tensor(None, False) if s is None else s for s in self._saved or ())

    def _unpack(self, node: Any) -> tuple[Any, ...]:
        if self._saved is None:
            return tuple(self.to_save or ())
        return tuple(None if s is None else s.unpack(node, self.name()) for s in self._saved)

    def name(self) -> str:
        return type(self).__name__

    # ---------------------------------------------------------------- called by the engine

    def _release(self) -> None:
        for s in self._saved or ():
            if s is not None:
                s.release()

    def _backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        cls = self._forward_cls
        if self.materialize_grads:
            grads = tuple(
                _zeros(meta) if g is None and meta is not None else g for g, meta in zip(grads, self._outputs)
            )
        outer, self._node = self._node, node
        try:
            if _forward_mode[0] and cls.jvp is not Function.jvp:
                gradients = self._transposed_jvp(grads)
            else:
                derivative, derive = cls._derivative(), recording.derive
                gradients = derivative(self, *grads) if derive is None else derive(self, derivative, grads)
        finally:
            self._node = outer
        if not isinstance(gradients, (tuple, list)):
            gradients = (gradients,)
        n = len(self._positions)
        if len(gradients) < n or any(x is not None for x in gradients[n:]):
            raise RuntimeError(
                f"[{self.name()}] expected as many gradients as forward has inputs: function {self.name()} returned an "
                "incorrect number "
                f"of gradients (expected {n}, got {len(gradients)})"
            )
        out = []
        for i, (g, is_tensor) in enumerate(zip(gradients, self._positions)):
            if is_tensor:
                out.append(g)
            elif g is not None:
                raise RuntimeError(
                    f"[{self.name()}] expected None for inputs that are not Tensors: function {self.name()} returned a "
                    "gradient "
                    f"different from None at position {i + 1}, but the corresponding forward input was not a Variable"
                )
        return tuple(out)

    def _transposed_jvp(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the inputs by `jvp`, which is linear in the tangents: its own backward at tangents of zero."""
        # jvp may take things off its context, and is called for every backward.
        ctx = copy.copy(self)
        if self.saved_for_forward is not None:
            ctx._saved, ctx.to_save = None, self.saved_for_forward
        with enable_grad():
            seeds = [None if meta is None else _zeros(meta).requires_grad_() for meta in self._inputs]
            writable = [SameMemory.apply(s) if isinstance(s, Tensor) and s.requires_grad else s for s in seeds]
            moved = self._forward_cls.jvp(ctx, *writable)
        moved = moved if isinstance(moved, tuple) else (moved,)
        pairs = [(m, g) for m, g in zip(moved, grads) if m is not None and g is not None and m.requires_grad]
        wanted = [s for s in seeds if s is not None]
        if not pairs or not wanted:
            return (None,) * len(seeds)
        gradients = iter(
            fl.autograd.grad(
                [m for m, _ in pairs],
                wanted,
                [g for _, g in pairs],
                create_graph=_C.is_grad_enabled(),
                allow_unused=True,
            )
        )
        return tuple(None if s is None else next(gradients) for s in seeds)


BackwardCFunction = FunctionCtx

_forward_mode = [0]  # how many backwards run that serve to find tangents; a list, so that capture can follow it


class finding_tangents:
    """Inside, backward is a step of forward mode: functions that define `jvp` are differentiated by it."""

    def __enter__(self) -> None:
        _forward_mode[0] += 1

    def __exit__(self, *error: Any) -> None:
        _forward_mode[0] -= 1


def _zeros(meta: tuple[Any, Any, Any]) -> Tensor:
    shape, dtype, device = meta
    return fl.zeros(shape, dtype=dtype, device=device)


class FunctionMeta(type):
    """Gives each Function the class of its contexts, which is also what its nodes are called after."""

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        cls._backward_cls = type(name + "Backward", (FunctionCtx,), {"_forward_cls": cls})
        super().__init__(name, bases, attributes)


class Function(metaclass=FunctionMeta):
    """An operation with a derivative of one's own: write the static methods forward, setup_context (or a ctx argument) and backward.

    >>> class Cube(flambeau.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         (x,) = ctx.saved_tensors
    ...         return gradient * 3 * x**2
    >>> x = flambeau.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = type(self).__name__
        raise RuntimeError(
            f"[{name}] expected {name}.apply(...), got a call of an instance: Legacy autograd function with non-static forward method "
            "is deprecated. Please use new-style autograd function with static forward method."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "[Function] expected a subclass with a static method forward, got none: You must implement the forward function for custom "
            "autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        raise NotImplementedError("[Function] expected a static method setup_context, got none")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "[Function] expected a static method backward or vjp to go backward, got neither: You must implement either the backward or "
            "vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "[Function] expected a static method jvp for forward mode, got none: You must implement the jvp function for custom "
            "autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise NotImplementedError(
            "[Function] expected a static method vmap or generate_vmap_rule=True under vmap, got neither"
        )

    @classmethod
    def _derivative(cls) -> Callable[..., Any]:
        own_backward = cls.backward is not Function.backward
        own_vjp = cls.vjp is not Function.vjp
        if own_backward and own_vjp and cls.backward is not cls.vjp:
            raise RuntimeError(
                f"[{cls.__name__}] expected backward or vjp, got both: Implementing both 'backward' and 'vjp' for a custom Function is "
                "not allowed. You should only implement one of them."
            )
        return cls.vjp if own_vjp and not own_backward else cls.backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if cls.setup_context is Function.setup_context:
                raise TypeError(f"[{cls.__name__}] expected positional arguments: apply() takes no keyword arguments")
            import inspect

            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                names = ", ".join(bound.kwargs)
                raise NotImplementedError(
                    f"[{cls.__name__}] expected arguments that can be given by position, got {names}: autograd.Function does not "
                    "take kwarg-only Tensor args"
                )
            args = bound.args
        if cls.setup_context is Function.setup_context and transforming.is_inside() and not _is_own(cls):
            raise RuntimeError(
                f"[{cls.__name__}] expected a static method setup_context inside of a transform, got none: In order to use an "
                "autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context "
                "staticmethod."
            )
        if cls.setup_context is not Function.setup_context:
            args = _with_defaults(cls, args)
        if cls.generate_vmap_rule and cls.vmap is not Function.vmap:
            raise RuntimeError(
                f"[{cls.__name__}] expected one way to batch it, got two: generate_vmap_rule=True and a vmap staticmethod; please set "
                "generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity."
            )
        batched = None
        if cls.vmap is not Function.vmap:
            batched = next((a for a in args if hasattr(type(a), "_call_function")), None)
        ctx = cls._backward_cls()
        positions = tuple(isinstance(a, Tensor) for a in args)
        ctx.needs_input_grad = tuple(is_tensor and a.requires_grad for a, is_tensor in zip(args, positions))
        recorded = _C.is_grad_enabled() and any(ctx.needs_input_grad)
        if batched is not None:
            outputs = batched._call_function(cls, args)
        with no_grad():
            if batched is not None:
                cls.setup_context(ctx, args, outputs)
            elif cls.setup_context is Function.setup_context:
                outputs = cls.forward(ctx, *args)
            else:
                outputs = cls.forward(*args)
                cls.setup_context(ctx, args, outputs)
                _check_returned_inputs(ctx, args, outputs)
        single = not isinstance(outputs, tuple)
        listed = (outputs,) if single else outputs
        results = ctx._record(args, positions, listed, recorded)
        if single:
            return results[0]
        return type(outputs)(*results) if hasattr(outputs, "_fields") else tuple(results)


def _with_defaults(cls: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments and the defaults of forward's further ones: setup_context is given all of its inputs."""
    forward = cls.forward
    defaults = getattr(forward, "__defaults__", None)
    if not defaults:
        return args
    count = forward.__code__.co_argcount - isinstance(forward, types.MethodType)
    missing = count - len(args)
    return args + defaults[-missing:] if 0 < missing <= len(defaults) else args


def _check_returned_inputs(ctx: Any, args: tuple[Any, ...], outputs: Any) -> None:
    """Refuses to save an input that forward returned as it is: the output is another tensor, with a history."""
    saved = [*(ctx.to_save or ()), *(ctx.saved_for_forward or ())]
    if not saved:
        return
    dirty = {id(t) for t in ctx.dirty_tensors}
    returned = {id(o) for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if isinstance(o, Tensor)}
    returned = {i for i in returned if any(a is not None and id(a) == i for a in args)} - dirty
    if any(id(t) in returned for t in saved):
        raise RuntimeError(
            f"[{type(ctx).__name__}] expected other tensors to be saved, got one that forward was given and returns: A input that "
            "has been returned as-is as output is being saved for backward. This is not supported if you override setup_context(). "
            "You should return and save a view of the input instead, e.g. with x.view_as(x) or setup ctx inside the forward "
            "function itself."
        )


def _is_own(cls: type) -> bool:
    """Whether a Function is a part of the package, whose modules a program may know as torch."""
    return cls.__module__.partition(".")[0] in ("flambeau", "torch")


def _record(self: FunctionCtx, args: Any, positions: Any, outputs: Any, recorded: bool) -> list[Any]:
    """Hangs the node on the outputs."""
    tensors = [a for a, is_tensor in zip(args, positions) if is_tensor]
    dirty = {id(t) for t in self.dirty_tensors}
    fixed = {id(t) for t in self.non_differentiable}
    if dirty - {id(t) for t in tensors}:
        raise RuntimeError(
            "[mark_dirty] expected inputs of forward to be marked dirty, got another tensor: mark_dirty "
            "received a tensor that was not an input."
        )
    if dirty - {id(o) for o in outputs}:
        raise RuntimeError(
            "[mark_dirty] expected dirty tensors among the outputs: Some elements marked as dirty during the forward "
            "method were not "
            "returned as output. The inputs that are modified inplace must all be outputs of the Function."
        )
    inputs = {id(t) for t in tensors}
    fake = next((t for t in outputs if type(t) is not Tensor and hasattr(type(t), "_record_function")), None)
    if fake is not None:
        self._positions = positions
        self._outputs = [(o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in outputs]
        return fake._record_function(self, tensors, outputs, fixed, recorded)
    node = None
    if recorded:
        for t in self.dirty_tensors:
            _C._check_inplace(t, self.name())
        self._positions = positions
        if self._forward_cls.jvp is not Function.jvp:
            self._inputs = [
                (a.shape, a.dtype, a.device) if is_tensor and (a.is_floating_point() or a.is_complex()) else None
                for a, is_tensor in zip(args, positions)
            ]
        if recording.derive is not None:
            self._geometry = [
                (tuple(a.shape), a.stride(), a.dtype) if is_tensor else None for a, is_tensor in zip(args, positions)
            ]
        node = _C._make_node(self.name(), self._backward, self._release, tensors)
        self._outputs = []
    results = []
    for out in outputs:
        if not isinstance(out, Tensor):
            if recorded:
                _C._attach_output(node, None)
                self._outputs.append(None)
            results.append(out)
            continue
        differentiable = recorded and id(out) not in fixed and (out.is_floating_point() or out.is_complex())
        if id(out) in inputs and id(out) not in dirty:
            with no_grad():
                out = out.view_as(out) if differentiable else out.detach()
        if not recorded:
            results.append(out)
            continue
        if not differentiable:
            _C._add_output(node, out)
        else:
            _C._attach_output(node, out, id(out) in dirty)
        materialized = differentiable or (self._materialize_non_diff_grads and out.is_floating_point())
        self._outputs.append((out.shape, out.dtype, out.device) if materialized else None)
        results.append(out)
    if recorded and self.to_save is not None:
        own_outputs = {
            id(o) for o, r in zip(outputs, results) if isinstance(o, Tensor) and r is o and id(o) not in fixed
        }
        self._saved = tuple(
            None if t is None else _C._save_tensor(t, id(t) in own_outputs and t.grad_fn is node) for t in self.to_save
        )
        self.to_save = None
    return results


FunctionCtx._record = _record


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a backward as one that cannot be differentiated itself."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not _C.is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        single = not isinstance(outputs, tuple)
        tensors = [a for a in args if isinstance(a, Tensor)]

        def refuse(node: Any, grads: Any) -> Any:
            raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

        node = _C._make_node("DelayedErrorBackward", refuse, None, tensors)
        results = []
        for out in (outputs,) if single else outputs:
            if isinstance(out, Tensor):
                out = out.detach()
                _C._attach_output(node, out)
            results.append(out)
        return results[0] if single else tuple(results)

    return wrapper


class SameMemory(Function):
    """The tensor itself, over the same memory, as the result of an operation: unlike a leaf it may be written in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class InplaceFunction(Function):
    """Kept for compatibility."""


def _nested_map(condition: Callable[[Any], bool], fn: Callable[[Any], Any], condition_msg: str | None = None) -> Any:
    """A function over nested lists, tuples and dicts that replaces what the condition accepts."""

    def mapped(obj: Any) -> Any:
        if condition(obj):
            return fn(obj)
        if obj is None:
            return None
        if isinstance(obj, tuple) and hasattr(obj, "_fields"):
            return type(obj)(*map(mapped, obj))
        if isinstance(obj, (list, tuple)):
            return type(obj)(mapped(x) for x in obj)
        if isinstance(obj, dict):
            return {key: mapped(value) for key, value in obj.items()}
        hint = f" ({condition_msg})" if condition_msg else ""
        raise ValueError(f"Auto nesting doesn't know how to process an input object of type {type(obj).__name__}{hint}")

    return mapped


class NestedIOFunction(Function):
    """Kept for compatibility."""


def traceable(fn_cls: Any) -> Any:
    return fn_cls
