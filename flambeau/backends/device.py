"""A registered device: its memory, its hooks, its kernels, and what happens with operators that it lacks.

An operator on the device runs, in this order: the kernel registered under its name; for pointwise, reduction, update and
random records the front in C++ (csrc/ops/outside.cpp), which settles shapes and dtypes and calls the hook with an
expression; the operator's definition by others. What is left, or what the device refuses with NotImplementedError, is a
matter of policy: it raises, or it runs on the host and is counted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import flambeau
from flambeau import _C

__all__ = ["RegisteredDevice", "tensors_in"]

Kernel = Callable[..., Any]
_POINTWISE, _REDUCTION, _UPDATE, _RANDOM = 1, 2, 4, 8  # as in csrc/ops/outside.h
_FRONT = 1  # the dispatch key whose kernels of records check, allocate and then ask the device of the tensors


class RegisteredDevice:
    """A device type and everything it brings; `register_device` explains the arguments."""

    host_calls = 0  # operators that ran on the host because the device lacks them

    def __init__(self, name: str, key: int, host_fallback: bool, **properties: Any) -> None:
        self.name, self.key, self.host_fallback = name, key, host_fallback
        self._launches = 0
        self.host_reasons: dict[str, str] = {}  # of the operators that ran on the host
        self.native_launches = ctypes.c_int64()  # of native programs, which count in memory
        self.host_readable: bool = properties.get("host_readable", False)
        self.dtypes: frozenset[Any] | None = properties.get("dtypes")
        self.host_draws: bool = properties.get("host_draws", False)  # rejection sampling may run on the host
        self.count: int = properties.get("count", 1)
        self.synchronize: Callable[[], None] = properties.get("synchronize") or (lambda: None)
        self.accelerator: bool = properties.get("accelerator", False)
        self.lacks: dict[str, str] = dict(
            properties.get("lacks") or {}
        )  # patterns of operators it cannot have, and why
        self.pin: Callable[[int, int], None] | None = properties.get("pin")
        self.unpin: Callable[[int, int], None] | None = properties.get("unpin")
        self.pinned: dict[int, int] = {}  # addresses of locked host memory, and how many bytes
        self.copy: Kernel | None = None
        self.printer: Any = None
        self.module: Any = None
        self.claims: set[str] = set()  # operators with a kernel of their own
        self._hooks: dict[str, Kernel | None] = {"pointwise": None, "reduction": None, "update": None}
        self._expressions: dict[Any, Any] = {}
        self._indices: Any = None
        _C._set_fallback(key, self._serve)

    @property
    def launches(self) -> int:
        """Kernels run so far: hooks, kernels by name, and kernels of compiled programs."""
        return self._launches + self.native_launches.value

    @launches.setter
    def launches(self, count: int) -> None:
        self._launches = count - self.native_launches.value

    # ---------------------------------------------------------------- hooks

    @property
    def pointwise(self) -> Kernel | None:
        return self._hooks["pointwise"]

    @pointwise.setter
    def pointwise(self, hook: Kernel | None) -> None:
        self._set_hook("pointwise", hook, _POINTWISE | _UPDATE | _RANDOM)

    @property
    def reduction(self) -> Kernel | None:
        return self._hooks["reduction"]

    @reduction.setter
    def reduction(self, hook: Kernel | None) -> None:
        self._set_hook("reduction", hook, _REDUCTION)

    @property
    def update(self) -> Kernel | None:
        return self._hooks["update"]

    @update.setter
    def update(self, hook: Kernel | None) -> None:
        self._set_hook("update", hook, _UPDATE)

    def _set_hook(self, kind: str, hook: Kernel | None, fronts: int) -> None:
        self._hooks[kind] = hook
        if hook is not None:
            _C._serve_device(self.name, self, fronts)

    def evaluate(self, name: str, expr: Any, operands: Mapping[str, Any], out: Any, dtype: Any) -> None:
        """One launch of the pointwise hook with an expression of one's own, which is known by its name."""
        kernel = self._expressions.get(name)
        if kernel is None:
            from flambeau.ops.device_plans import keyed

            kernel = self._expressions[name] = keyed(name, expr)
        if out.numel():
            self.launches += 1
            assert self.pointwise is not None
            self.pointwise(kernel, dict(operands), out, dtype)

    def indices(self, n: int) -> Any:
        """0 to n - 1 on the device, as int64: a view of a tensor that is kept."""
        if self._indices is None or self._indices.numel() < n:
            length = 1 << max(n - 1, 1).bit_length()
            numbers = flambeau.empty(length, dtype=flambeau.int64, device=self.name)
            numbers.narrow(0, 0, 1).fill_(0)
            done = 1
            while done < length:
                numbers.narrow(0, done, done).copy_(numbers.narrow(0, 0, done) + done)
                done *= 2
            self._indices = numbers
        return self._indices.narrow(0, 0, n)

    # ---------------------------------------------------------------- what fronts in C++ call

    def _pointwise(self, record: str, variant: str | None, operands: tuple[Any, ...], out: Any, dtype: Any) -> None:
        at = (record, variant, dtype)
        kernel = self._expressions.get(at)
        if kernel is None:
            from flambeau.ops.device_plans import pointwise_kernel

            kernel = self._expressions[at] = pointwise_kernel(record, variant, dtype)
        named = dict(zip(kernel.names, operands))
        try:
            hook = self._hooks["pointwise"]
            if hook is not None and self.pairs_up(dtype):
                self._pointwise_of_pairs(hook, kernel, named, out, dtype)
                return
            if hook is None or not self.has(dtype):
                raise NotImplementedError(f"no pointwise hook for {dtype}")
            hook(kernel, named, out, dtype)
            self.launches += 1
        except NotImplementedError as refusal:
            if kernel.select is not None:
                named[kernel.select] = variant
            self._on_host_into(record, named, (out,), refusal)

    def pairs_up(self, dtype: Any) -> bool:
        """Whether kernels compute with complex numbers as pairs of real ones."""
        if not dtype.is_complex or self.has(dtype):
            return False
        from flambeau.ops.complex_pairs import PART

        return self.has(PART[dtype])

    def _reduction_of_pairs(self, hook: Kernel, plan: Any, source: Any, out: Any, dtype: Any) -> None:
        """Sums are those of the parts; others are reductions of what they read of an element, where that is real."""
        from flambeau.ops.complex_pairs import PART, joined, parts_of, split
        from flambeau.ops.device_plans import of_loaded

        loaded, imaginary = split(plan.load, ("x",))
        if plan.is_linear:
            sources: tuple[Any, ...] = parts_of(source)
        elif imaginary is None:
            operands = dict(zip(("x_re", "x_im"), parts_of(source)), **plan.parameters)
            counted = {"int": flambeau.int64, "bool": flambeau.bool}
            wide = counted.get(plan.accumulate, PART[dtype])
            read = flambeau.empty(source.shape, dtype=wide, device=source.device)
            self.evaluate(f"{plan.name}.load", loaded, operands, read, PART[dtype])
            sources = (read,)
        else:
            raise NotImplementedError(f"complex {plan.name}")
        values = []
        for part in sources:
            values.append(flambeau.empty(out.shape, dtype=PART.get(out.dtype, out.dtype), device=out.device))
            hook(of_loaded(plan, part.dtype), part, values[-1])
            self.launches += 1
        out.copy_(joined(*values) if plan.is_linear else values[0])

    def _pointwise_of_pairs(self, hook: Kernel, kernel: Any, named: dict[str, Any], out: Any, dtype: Any) -> None:
        """A launch for the real and one for the imaginary part."""
        from flambeau.ops.complex_pairs import PART, parts_of, split

        is_tensor = {name: isinstance(value, flambeau.Tensor) for name, value in named.items()}
        complexes = [
            name for name, v in named.items() if (v.dtype.is_complex if is_tensor[name] else isinstance(v, complex))
        ]
        at = (kernel.name, kernel.key, dtype, *complexes)
        expressions = self._expressions.get(at)
        if expressions is None:
            from flambeau.ops.device_plans import keyed

            parts = split(kernel, complexes)
            expressions = self._expressions[at] = [None if p is None else keyed(kernel.name, p) for p in parts]
        operands = {name: value for name, value in named.items() if name not in complexes}
        for name in complexes:
            value = named[name]
            re, im = parts_of(value) if is_tensor[name] else (value.real, value.imag)
            operands |= {f"{name}_re": re, f"{name}_im": im}
        targets = parts_of(out) if out.dtype.is_complex else (out,)
        # Both parts are computed before either is written: the result may be an operand, too.
        shared = len(targets) > 1 and any(is_tensor[n] and named[n].data_ptr() == out.data_ptr() for n in complexes)
        values = [flambeau.empty_like(t) for t in targets] if shared else targets
        for expression, value in zip(expressions, values):
            if expression is None:
                value.zero_()
            else:
                hook(expression, operands, value, PART[dtype])
                self.launches += 1
        if shared:
            for target, value in zip(targets, values):
                target.copy_(value)

    def _reduction(
        self, record: str, parameters: tuple[Any, ...], dims: list[int], source: Any, out: Any, dtype: Any
    ) -> None:
        from flambeau.ops.device_plans import reduction_plan

        plan = reduction_plan(self._expressions, record, parameters, dims, dtype)
        try:
            hook = self._hooks["reduction"]
            if hook is not None and self.pairs_up(dtype):
                self._reduction_of_pairs(hook, plan, source, out, dtype)
                return
            if hook is None or not self.has(dtype):
                raise NotImplementedError(f"no reduction hook for {dtype}")
            hook(plan, source, out)
            self.launches += 1
        except NotImplementedError as refusal:
            named = {"self": source, **plan.parameters}
            if source.dim() and plan.has_dim:
                named |= {"dim": dims if plan.takes_dims else dims[0], "keepdim": True}
            if plan.takes_dtype and not (source.is_complex() and not out.is_complex()):
                named["dtype"] = out.dtype
            self._on_host_into(record, named, (out,), refusal)

    def _update(
        self, record: str, lists: tuple[list[Any], ...], states: list[tuple[float, ...]], numbers: tuple[float, ...]
    ) -> None:
        from flambeau.ops.device_plans import update_plan

        plan = update_plan(self._expressions, record)
        parameters = [{**dict(zip(plan.states, s)), **dict(zip(plan.numbers, numbers))} for s in states]
        named = dict(zip(plan.lists, lists))
        hook = self._hooks["update"]
        if hook is not None:
            try:
                hook(plan, named, parameters)
                self.launches += 1
                return
            except NotImplementedError:
                pass  # by the pointwise hook, one launch for each new value
        for at, numbers_here in enumerate(parameters):
            operands = {name: tensors[at] for name, tensors in named.items()} | numbers_here
            fresh = []
            for name, expr in plan.outputs.items():
                out = flambeau.empty_like(operands[name])
                dtype = flambeau.float64 if out.dtype is flambeau.float64 else flambeau.float32
                self.evaluate(f"{record}.{name}", expr, operands, out, dtype)
                fresh.append((operands[name], out))
            for target, out in fresh:
                target.copy_(out)

    def _random(self, out: Any, *call: Any) -> None:
        from flambeau.ops import philox

        philox.fill(self, out, *call)

    def has(self, dtype: Any) -> bool:
        """Whether kernels compute with a dtype."""
        return self.dtypes is None or dtype in self.dtypes

    # ---------------------------------------------------------------- kernels by name

    def kernel(self, *names: str, any_device: bool = False) -> Callable[[Kernel], Kernel]:
        """Decorator: the kernel of one or more operators. Its tensors are on this device unless any_device says so."""

        def register(function: Kernel) -> Kernel:
            from flambeau import _ops

            for name in names:
                full = _ops.resolve(name)
                _C._set_kernel(full, self.key, self._counted(full, function, any_device))
                self.claims.add(full)
            return function

        return register

    def claim(self, names: Iterable[str]) -> None:
        """These operators are the device's own, also where compile() would take them apart."""
        from flambeau import _ops

        self.claims.update(map(_ops.resolve, names))

    def _counted(self, name: str, function: Kernel, any_device: bool) -> Kernel:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not any_device:
                self.check(name, (*args, *kwargs.values()))
            try:
                result = function(*args, **kwargs)
            except NotImplementedError as refusal:
                return self._without_kernel(_C._operator_object(name), args, kwargs, refusal)
            self.launches += 1
            return result

        return call

    def check(self, name: str, values: Any, zero_dim: bool = False) -> None:
        """Raise when a tensor is elsewhere; zero-dim CPU tensors may be let through."""
        for tensor in tensors_in(values):
            if tensor.device.type != self.name and not (zero_dim and tensor.dim() == 0 and tensor.is_cpu):
                raise RuntimeError(f"[{name}] expected all tensors on one device, got {self.name} and {tensor.device}")

    # ---------------------------------------------------------------- operators without a kernel

    def _serve(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """What the dispatcher calls for an operator that has neither a kernel here nor a decomposition."""
        return self._without_kernel(op, args, kwargs, None)

    def _without_kernel(self, op: Any, args: Any, kwargs: Any, refusal: NotImplementedError | None) -> Any:
        from flambeau.backends import records
        from flambeau.ops.rules import definition

        function = definition.find(op._full_name)
        if function is None:
            record = records.find(op)
            if refusal is not None and record is not None and self._hooks.get(record.kind) is not None:
                return _C._call_with_keys(op, _FRONT, *args, **kwargs)  # what the kernel refused is the hook's
            return self._on_host(op, args, kwargs, refusal)
        try:
            return self._by_definition(op, records.find(op), function, args, kwargs)
        except NotImplementedError as reason:
            if not self.host_fallback or op._schema.is_mutable:
                raise
            return self._on_host(op, args, kwargs, reason)

    def _by_definition(self, op: Any, record: Any, function: Kernel, args: Any, kwargs: Any) -> Any:
        """The definition, with the checks that the operator's own kernel makes and results laid out as its are: both come
        from the kernel for the meta device, so that definitions need neither."""
        from flambeau.backends import records

        values = (*args, *kwargs.values())
        factory = next(tensors_in(values), None) is None
        if record is None or factory or "mixed_devices" in record.tags:
            return function(*args, **kwargs)
        self._check_one_device(op, values)
        if "data_dependent" in record.tags or record.schema.returns == "bool":  # the meta device cannot answer
            return function(*args, **kwargs)
        expected = records.shape_of(op, args, kwargs)
        result = function(*args, **kwargs)
        return result if op._schema.is_mutable else records.laid_out(result, expected)

    def _check_one_device(self, op: Any, values: Any) -> None:
        """Raise when tensors lie on several devices; numbers as CPU tensors may stand beside them, not in lists."""
        first = None
        for value in values:
            for tensor in tensors_in((value,)):
                if tensor.is_cpu and tensor.dim() == 0 and tensor is value:
                    continue
                first = tensor.device if first is None else first
                if tensor.device != first:
                    raise RuntimeError(
                        f"[{op._opname}] expected all tensors on one device, got {first} and {tensor.device}"
                    )

    # ---------------------------------------------------------------- the host

    def draw_on_host(self, op: Any, args: Any, kwargs: Any) -> Any:
        """An operator that draws numbers until they fit, on the host."""
        return self._on_host(op, args, kwargs, allowed=self.host_draws)

    def _count_on_host(self, name: str, refusal: NotImplementedError | None, allowed: bool = False) -> None:
        """Counts an operator that the host is about to run; raises where the policy is against it."""
        if not self.host_fallback and not allowed:
            why = f" ({refusal})" if refusal is not None else ""
            raise NotImplementedError(
                f"[{name}] expected a device with a kernel or decomposition for it, got {self.name}{why}"
            ) from refusal
        self.host_calls += 1
        self.host_reasons[name] = str(refusal) if refusal is not None else _absence(name)

    def _on_host_into(self, record: str, named: dict[str, Any], outs: tuple[Any, ...], refusal: Any) -> None:
        """A record on the host, its result copied into tensors of the device."""
        self._count_on_host(record, refusal)
        op = _C._operator_object(record)
        wants_tensor = {a.name for a in op._schema.arguments if str(a.type) == "Tensor"}

        def to_host(name: str, value: Any) -> Any:
            if isinstance(value, flambeau.Tensor):
                return value.cpu()
            if name not in wants_tensor or value is None:
                return value
            dtypes = {bool: flambeau.bool, int: flambeau.int64, float: flambeau.float64}
            dtype = dtypes.get(type(value), flambeau.complex128)
            return flambeau.scalar_tensor(value, dtype=dtype, device="cpu")._mark_wrapped_number()

        taken = {a.name for a in op._schema.arguments}
        result = op(**{name: to_host(name, value) for name, value in named.items() if name in taken})
        for out in outs:
            out.copy_(result.reshape(out.shape))

    def _on_host(
        self,
        op: Any,
        args: Any,
        kwargs: dict[str, Any],
        refusal: NotImplementedError | None = None,
        allowed: bool = False,
    ) -> Any:
        """The operator on the CPU, with its tensors copied there, and its results copied back."""
        self._count_on_host(op._opname, refusal, allowed)
        here = next((t.device for t in tensors_in((*args, *kwargs.values()))), flambeau.device(self.name))
        kwargs = {k: flambeau.device("cpu") if isinstance(v, flambeau.device) else v for k, v in kwargs.items()}
        pairs: list[tuple[Any, Any]] = []

        def to_host(value: Any) -> Any:
            if isinstance(value, flambeau.Tensor):
                pairs.append((value, value.cpu()))
                return pairs[-1][1]
            return [to_host(v) for v in value] if isinstance(value, (list, tuple)) else value

        def back(value: Any) -> Any:
            if isinstance(value, flambeau.Tensor):
                return value.to(here)
            return type(value)([back(v) for v in value]) if isinstance(value, (list, tuple)) else value

        result = op(*map(to_host, args), **{k: to_host(v) for k, v in kwargs.items()})
        if op._schema.is_mutable:
            for device_side, host_side in pairs:
                device_side.copy_(host_side)
        return back(result)


def _absence(name: str) -> str:
    """Why an operator has no definition by others."""
    from flambeau.ops.rules import definition

    return definition.absent.get(name, "no kernel and no definition by other operators")


def tensors_in(values: Any) -> Iterator[Any]:
    """Tensors among arguments and inside lists of them."""
    for value in values:
        if isinstance(value, flambeau.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
