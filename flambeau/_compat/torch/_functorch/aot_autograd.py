"""Forward and backward as two graphs, handed to compilers that the caller gives.

The function is traced with its backward for each geometry of its inputs; the joint graph is divided by a partitioner,
and what the compilers return runs as an autograd.Function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._compat import absent
from flambeau._functorch.partitioners import default_partition
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils import _pytree as pytree

__all__ = ["aot_function", "aot_module", "aot_module_simplified", "make_boxed_compiler", "make_boxed_func"]


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one of a list of arguments, which it may empty while it runs."""

    @functools.wraps(f)
    def boxed(args: Sequence[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose results take a list of arguments."""

    @functools.wraps(compiler)
    def boxed(gm: Any, example_inputs: Any) -> Any:
        return make_boxed_func(compiler(gm, example_inputs))

    return boxed


def _called(function: Any, args: list[Any]) -> list[Any]:
    results = function(args) if getattr(function, "_boxed_call", False) else function(*args)
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _geometry(x: Any) -> Any:
    if isinstance(x, fl.Tensor):
        return tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad
    return type(x), x


def _stand_in(x: Any) -> Any:
    """A tensor to trace with: what the function writes to it stays inside."""
    if not isinstance(x, fl.Tensor):
        return x
    return x.detach().clone().requires_grad_(x.requires_grad)


class _Flat:
    """A function over a flat list of arguments with a flat list of results, compiled for what it meets."""

    def __init__(
        self,
        function: Callable[..., list[Any]],
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        inference: Callable[..., Any] | None,
        partition: Callable[..., Any],
        decompositions: Any,
    ) -> None:
        self.function, self.forward = function, forward
        self.backward, self.inference = backward or forward, inference or forward
        self.partition, self.decompositions = partition, decompositions
        self.made: dict[Any, Callable[..., list[Any]]] = {}

    def __call__(self, args: list[Any]) -> list[Any]:
        recorded = fl.is_grad_enabled() and any(isinstance(a, fl.Tensor) and a.requires_grad for a in args)
        key = recorded, tuple(map(_geometry, args))
        if key not in self.made:
            self.made[key] = self._with_backward(args) if recorded else self._alone(args)
        return self.made[key](args)

    def _traced(self, function: Callable[..., Any], *lists: list[Any]) -> Any:
        graph = make_fx(function, decomposition_table=self.decompositions, _flat_inputs=True)(*lists)
        graph.graph.eliminate_dead_code()
        return graph

    def _alone(self, args: list[Any]) -> Callable[..., list[Any]]:
        at = [i for i, a in enumerate(args) if isinstance(a, fl.Tensor)]

        def traced(primals: list[Any]) -> list[Any]:
            return self.function(_filled(args, at, primals))

        with fl.no_grad():
            tensors = [_stand_in(args[i]) for i in at]
            graph = self._traced(traced, tensors)
            compiled = self.inference(graph, tensors)
        return lambda inputs: _called(compiled, [inputs[i] for i in at])

    def _with_backward(self, args: list[Any]) -> Callable[..., list[Any]]:
        at = [i for i, a in enumerate(args) if isinstance(a, fl.Tensor)]
        tensors = [_stand_in(args[i]) for i in at]
        with fl.enable_grad():
            probe = self.function(_filled(args, at, [t.view_as(t) for t in tensors]))
        followed = [i for i, o in enumerate(probe) if isinstance(o, fl.Tensor) and o.requires_grad]
        tangents = [fl.ones_like(probe[i]).detach() for i in followed]
        wanted = [i for i, t in enumerate(tensors) if t.requires_grad]

        def joint(primals: list[Any], tangents: list[Any]) -> Any:
            with fl.enable_grad():
                results = self.function(_filled(args, at, primals))
                gradients = fl.autograd.grad(
                    [results[i] for i in followed], [primals[i] for i in wanted], tangents, allow_unused=True
                )
            return results, list(gradients)

        graph = self._traced(joint, [_stand_in(args[i]) for i in at], tangents)
        for node, name in zip(
            graph.graph.find_nodes(op="placeholder"),
            [f"primals_{i + 1}" for i in range(len(tensors))] + [f"tangents_{i + 1}" for i in range(len(tangents))],
        ):
            node.name = node.target = name
        graph.recompile()
        forward, backward = self.partition(graph, [*tensors, *tangents], num_fwd_outputs=len(probe))
        saved_count = len(forward.graph.output_node().args[0]) - len(probe)
        run_forward = self.forward(forward, [t.detach() for t in tensors])
        run_backward = _Later(self.backward, backward)

        class CompiledFunction(fl.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, *arguments: Any) -> Any:
                results = _called(run_forward, list(arguments))
                count = len(results) - saved_count
                saved = results[count:]
                ctx.save_for_backward(*(s if isinstance(s, fl.Tensor) else None for s in saved))
                ctx.plain = [None if isinstance(s, fl.Tensor) else s for s in saved]
                ctx.mark_non_differentiable(
                    *(r for i, r in enumerate(results[:count]) if i not in followed and isinstance(r, fl.Tensor))
                )
                return tuple(results[:count])

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                saved = [s if p is None else p for s, p in zip(ctx.saved_tensors, ctx.plain)]
                gradients = run_backward([*saved, *(grads[i].contiguous() for i in followed)])
                out: list[Any] = [None] * len(tensors)
                for i, g in zip(wanted, gradients):
                    out[i] = g
                return tuple(out)

        return lambda arguments: list(CompiledFunction.apply(*[arguments[i] for i in at]))


class _Later:
    """A graph that is compiled when it is first run: many programs never go backward."""

    def __init__(self, compiler: Callable[..., Any], graph: Any) -> None:
        self.compiler, self.graph = compiler, graph
        self.compiled: Callable[..., Any] | None = None

    def __call__(self, args: list[Any]) -> list[Any]:
        if self.compiled is None:
            self.compiled = self.compiler(self.graph, args)
        return _called(self.compiled, args)


def _filled(args: list[Any], at: list[int], tensors: Sequence[Any]) -> list[Any]:
    full = list(args)
    for i, t in zip(at, tensors):
        full[i] = t
    return full


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: Any = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
) -> Callable[..., Any]:
    """The function with its forward and backward traced and compiled by the given compilers."""
    flats: dict[Any, tuple[_Flat, list[Any]]] = {}

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = repr(spec)
        if key not in flats:
            shape: list[Any] = []

            def flat(flat_inputs: list[Any]) -> list[Any]:
                positional, named = pytree.tree_unflatten(flat_inputs, spec)
                results, out = pytree.tree_flatten(fn(*positional, **named))
                shape[:] = [out]
                return results

            flats[key] = (
                _Flat(flat, fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions),
                shape,
            )
        compiled, shape = flats[key]
        results = compiled(leaves)
        return pytree.tree_unflatten(results, shape[0])

    return wrapper


def _called_with_state(mod: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    from flambeau.func import functional_call

    state = {**dict(mod.named_parameters(remove_duplicate=False)), **dict(mod.named_buffers(remove_duplicate=False))}
    return (lambda state, *args, **kwargs: functional_call(mod, state, args, kwargs)), state


def aot_module(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """A module that runs the given one traced and compiled; parameters and buffers are inputs of the graphs."""
    call, _ = _called_with_state(mod)
    compiled = aot_function(call, *args, **kwargs)

    class AOTModule(fl.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return compiled(_called_with_state(mod)[1], *args, **kwargs)

    return AOTModule()


def aot_module_simplified(
    mod: Any,
    args: Sequence[Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: Any = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """A module of flat arguments and results, such as `compile` captures, with its graphs compiled as it is called."""
    call, state = _called_with_state(mod) if hasattr(mod, "named_parameters") else (None, {})
    count = len(state)

    def flat(inputs: list[Any]) -> list[Any]:
        if call is None or not count:
            returned = mod(*inputs)
        else:
            returned = call(dict(zip(state, inputs[:count])), *inputs[count:])
        single[:] = [not isinstance(returned, (list, tuple))]
        return [returned] if single[0] else list(returned)

    single: list[bool] = []
    compiled = _Flat(flat, fw_compiler, bw_compiler, inference_compiler, partition_fn, decompositions)

    def forward(*inputs: Any) -> Any:
        current = _called_with_state(mod)[1].values() if count else ()
        results = compiled([*current, *inputs])
        return results[0] if single[0] else results

    forward.zero_grad = getattr(mod, "zero_grad", None)
    return forward


__getattr__ = absent.names_of(__name__)
