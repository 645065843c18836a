"""`flambeau device-check`: whether a registered device does what the CPU does, operator by operator.

For each operator of the table: all samples forward, gradients, the in-place and out= forms; then views, random numbers,
memory, saving and loading, streams, and what a launch costs. A line for each; the status is 0 only if all of them pass.
"""

from __future__ import annotations

import argparse
import html
import importlib
import io
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

ALIASES = {"reference": "ref"}
TOLERANCES = {"float32": 1e-3, "float64": 1e-6, "int64": 0, "bool": 0, "bfloat16": 5e-2, "float16": 1e-2}
# Results that nothing determines, and arguments that have to be on the host.
EXCEPT = {
    "empty_like": "is not initialised", "new_empty": "is not initialised", "new_empty_strided": "is not initialised",
    "_pack_padded_sequence": "takes lengths on the host", "tensor_split": "takes indices on the host",
    "resize_": "leaves new elements undefined", "resize_as_": "leaves new elements undefined",
    "randperm": "draws in another order", "_scaled_mm": "takes 8-bit floats", "to": "goes to a device",
    "cpu": "goes to the host", "_to_cpu": "goes to the host", "linspace": "is among the factories",
    "logspace": "is among the factories",
}  # fmt: skip


@dataclass
class Result:
    """One line of the report."""

    name: str
    why: str = ""  # it failed
    lacks: str = ""  # the device says that it cannot do this
    launches: int = 0
    host_calls: int = 0
    host_reasons: str = ""  # why those were on the host
    samples: int = 0

    def line(self) -> str:
        if self.lacks:
            return f"lacks {self.name}: {self.lacks}"
        return f"FAIL {self.name}: {self.why}" if self.why else f"pass {self.name}"


@dataclass
class Kit:
    """The checks of one device."""

    name: str
    dtypes: list[str]
    results: list[Result] = field(default_factory=list)
    pending: list[tuple[Any, Any, float]] = field(default_factory=list)  # results whose values are to be compared

    @property
    def device(self) -> Any:
        from flambeau.backends import registered

        return registered[self.name]

    def run(self, name: str, check: Callable[[Result], None]) -> Result:
        """One check; what it raises is why it failed."""
        result = Result(name)
        device = self.device
        launches, host_calls = device.launches, device.host_calls
        device.host_reasons.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(result)
                self.settle()
        except Exception as error:
            result.lacks = excuse(error)
            result.why = "" if result.lacks else f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        finally:
            self.pending.clear()
        result.launches, result.host_calls = device.launches - launches, device.host_calls - host_calls
        result.host_reasons = "; ".join(f"{op}: {why}" for op, why in device.host_reasons.items())
        self.results.append(result)
        print(result.line(), flush=True)
        return result

    def compare(self, got: Any, want: Any, limit: float) -> None:
        """Raises where the kinds of results differ. Values are compared when the check ends, so that a device which records
        compiles one program for a check."""
        import flambeau as fl

        if isinstance(want, (tuple, list)):
            assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
            for g, w in zip(got, want):
                self.compare(g, w, limit)
        elif not isinstance(want, fl.Tensor):
            assert got == want or want != want, f"{got}, not {want}"
        else:
            assert got.device.type == self.name, f"a result on {got.device}"
            assert (got.dtype, got.shape) == (want.dtype, want.shape), (
                f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
            )
            exact = not (want.is_floating_point() or want.is_complex())
            if want.numel():
                self.pending.append((got.detach(), want.detach(), 0 if exact else max(limit, 1e-3)))

    def settle(self) -> None:
        """Raises where values differ."""
        import flambeau as fl

        for got, want, limit in self.pending:
            fl.testing.assert_close(got.cpu(), want, rtol=limit, atol=limit, equal_nan=True)

    def lacks(self, operator: str) -> str:
        """Why the device cannot have an operator, where it says so."""
        for pattern, why in getattr(self.device, "lacks", {}).items():
            if re.fullmatch(pattern, operator):
                return str(why)
        return ""


def excuse(error: Exception) -> str:
    """Why a device may lack what it refused: operators that no others define, and special functions."""
    from flambeau.backends import c99
    from flambeau.ops.rules import definition

    if not isinstance(error, NotImplementedError):
        return ""
    for name in re.findall(r"\[([\w.]+)\]", str(error)):
        why = definition.absent.get(name, "a primitive")
        if why != "a primitive":
            return f"{name}: {why}"
        if name in c99.SPECIAL:
            return f"the device has no function {name}"
    dtype = re.search(r"has no type for elements of torch\.(\w+)", str(error))
    if dtype is not None:
        return f"the device has no elements of {dtype[1]}"
    return ""


# ---------------------------------------------------------------- operators


def walk(value: Any, function: Callable[[Any], Any]) -> Any:
    import flambeau as fl

    if isinstance(value, fl.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {k: walk(v, function) for k, v in value.items()}
    return [walk(v, function) for v in value] if isinstance(value, (list, tuple)) else value


def samples_of(record: Any, dtype: Any) -> list[Any]:
    from flambeau.ops import samples

    try:
        return list(samples.of(record)(samples.Make(dtype)))
    except (RuntimeError, NotImplementedError, TypeError, LookupError):
        return []


def check_records(kit: Kit, records: list[Any], result: Result) -> None:
    """The overloads of one operator."""
    for record in records:
        check_record(kit, result, record)


def check_record(kit: Kit, result: Result, record: Any) -> None:
    """Forward, gradient, in place and out= of one overload, for all dtypes."""
    import flambeau as fl

    op = fl._C._operator_object(record.name)
    for name in kit.dtypes:
        dtype = getattr(fl, name)
        if kit.device.dtypes is not None and dtype not in kit.device.dtypes:
            continue
        for call in samples_of(record, dtype):
            try:
                fl.manual_seed(0)
                want = call.result(_call(op, call, lambda t: t.clone()))
            except Exception:
                continue  # not defined for this dtype
            result.samples += 1
            fl.manual_seed(0)
            got = call.result(_call(op, call, lambda t: t.to(kit.name)))
            kit.compare(got, want, TOLERANCES[name])
            if dtype.is_floating_point and "no_grad" not in record.tags:
                check_gradient(kit, op, call, TOLERANCES[name])
            check_forms(kit, record, call, want, TOLERANCES[name])


def _call(op: Any, call: Any, place: Callable[[Any], Any]) -> Any:
    from flambeau.ops import samples

    args, kwargs = walk(samples.plain((list(call.args), call.kwargs)), place)
    return op(*args, **kwargs)


def check_gradient(kit: Kit, op: Any, call: Any, limit: float) -> None:
    """Gradients of the sum of all results, against the CPU's."""
    import flambeau as fl

    def gradients(device: str) -> list[Any] | None:
        leaves: list[Any] = []

        def leaf(t: Any) -> Any:
            moved = t.detach().to(device)
            if moved is t:
                moved = t.clone()
            if moved.is_floating_point():
                leaves.append(moved.requires_grad_())
                return moved * 1
            return moved

        fl.manual_seed(0)
        results = walk(call.result(_call(op, call, leaf)), lambda t: t)
        flat: list[Any] = []
        walk(results, flat.append)
        sums = [r.sum() for r in flat if r.requires_grad and r.is_floating_point() and r.numel()]
        if not sums or not leaves:
            return None
        return list(fl.autograd.grad(sum(sums[1:], sums[0]), leaves, allow_unused=True))

    try:
        want = gradients("cpu")
    except Exception:
        return  # not differentiable
    if want is None:
        return
    got = gradients(kit.name)
    assert got is not None, "results without a gradient"
    for g, w in zip(got, want):
        assert (g is None) == (w is None), "a gradient where the CPU has none, or the reverse"
        if w is not None:
            kit.compare(g, w, limit * 10)


def check_forms(kit: Kit, record: Any, call: Any, want: Any, limit: float) -> None:
    """`name_` and `out=`, where the record has them and the shapes fit."""
    import flambeau as fl

    if not isinstance(want, fl.Tensor) or "random" in record.tags:
        return
    from flambeau.ops import samples

    args, kwargs = walk(samples.plain((list(call.args), call.kwargs)), lambda t: t.to(kit.name))
    if record.out and record.schema.returns == "Tensor":
        out = fl.empty(want.shape, dtype=want.dtype, device=kit.name)
        written = fl._C._operator_object(_derived(record, "out"))(*args, **kwargs, out=out)
        assert written is out, "out= returned another tensor"
        kit.compare(out, want, limit)
    first = args[0] if args else None
    if record.inplace and isinstance(first, fl.Tensor) and (first.shape, first.dtype) == (want.shape, want.dtype):
        target = first.clone()
        fl._C._operator_object(_derived(record, "inplace"))(target, *args[1:], **kwargs)
        kit.compare(target, want, limit)


def _derived(record: Any, form: str) -> str:
    name, overload = record.schema.name, record.schema.overload
    if form == "inplace":
        return f"{name}_.{overload}" if overload else f"{name}_"
    import flambeau as fl

    for candidate in ([f"{name}.{overload}_out"] if overload else []) + [f"{name}.out"]:
        if fl._C._operator_exists(candidate):
            return candidate
    raise LookupError(f"no out= form of {record.name}")


def check_operators(kit: Kit, pattern: str) -> None:
    from flambeau.ops import samples

    by_name: dict[str, list[Any]] = {}
    for name, record in samples.load().items():
        takes_tensor = any("Tensor" in a.type for a in record.schema.args)
        if takes_tensor and name not in samples.WITHOUT and record.kind != "update":
            by_name.setdefault(record.schema.name, []).append(record)
    for name, records in sorted(by_name.items()):
        if name in EXCEPT or not re.fullmatch(pattern, name):
            continue
        why = kit.lacks(name)
        if why:
            kit.results.append(Result(name, lacks=why))
            print(kit.results[-1].line(), flush=True)
            continue
        kit.run(name, partial(check_records, kit, records))


# ---------------------------------------------------------------- the device as a whole


def check_views(kit: Kit, result: Result) -> None:
    import flambeau as fl

    x = fl.zeros(4, 6, device=kit.name)
    x.view(2, 2, 6)[1].t()[2:4].fill_(3)
    x[:, ::2] += 1
    want = fl.zeros(4, 6)
    want.view(2, 2, 6)[1].t()[2:4].fill_(3)
    want[:, ::2] += 1
    kit.compare(x, want, 0)


def check_random(kit: Kit, result: Result) -> None:
    import flambeau as fl

    for make in (fl.rand, fl.randn):
        fl.manual_seed(7)
        want = make(100)
        fl.manual_seed(7)
        kit.compare(make(100, device=kit.name), want, 1e-4)
    fl.manual_seed(7)
    first = fl.rand(10, device=kit.name).cpu()
    assert not bool((first == fl.rand(10, device=kit.name).cpu()).all()), "the same numbers again"


def check_factories(kit: Kit, result: Result) -> None:
    import flambeau as fl

    for make in (
        lambda d: fl.arange(5, device=d), lambda d: fl.linspace(0, 1, 5, device=d), lambda d: fl.ones(2, 3, device=d),
        lambda d: fl.full((2,), 7, device=d), lambda d: fl.eye(3, device=d), lambda d: fl.tensor([1, 2], device=d),
    ):  # fmt: skip
        kit.compare(make(kit.name), make("cpu"), 1e-6)  # type: ignore[no-untyped-call]


def check_memory(kit: Kit, result: Result) -> None:
    """Tensors that are gone give their blocks back: the same addresses come again."""
    import gc

    import flambeau as fl

    addresses = set()
    for _ in range(50):
        block = fl.empty(1 << 16, device=kit.name)
        addresses.add(block.data_ptr())
        del block
    gc.collect()
    assert len(addresses) < 50, "50 blocks for one tensor at a time: memory is not given back"


def check_saving(kit: Kit, result: Result) -> None:
    import flambeau as fl

    file = io.BytesIO()
    x = fl.arange(6.0).reshape(2, 3)
    fl.save({"x": x.to(kit.name)}, file)
    file.seek(0)
    kit.compare(fl.load(file)["x"], x, 0)
    file.seek(0)
    assert fl.load(file, map_location="cpu")["x"].tolist() == x.tolist()


def check_streams(kit: Kit, result: Result) -> None:
    import flambeau as fl

    module = getattr(fl, kit.name)
    stream, event = module.Stream(), module.Event(enable_timing=True)
    with module.stream(stream):
        x = fl.ones(4, device=kit.name) + 1
    event.record()
    event.synchronize()
    module.synchronize()
    assert x.tolist() == [2, 2, 2, 2] and module.device_count() >= 1


def check_training(kit: Kit, result: Result, compiled: bool = False) -> None:
    import flambeau as fl

    def losses(device: str) -> list[float]:
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(6, 16), fl.nn.GELU(), fl.nn.LayerNorm(16), fl.nn.Linear(16, 3)).to(device)
        optimizer = fl.optim.AdamW(model.parameters(), lr=0.01)
        x, y = fl.randn(8, 6).to(device), fl.randint(0, 3, (8,)).to(device)

        def loss_of(x: Any, y: Any) -> Any:
            return fl.nn.functional.cross_entropy(model(x), y)

        step = fl.compile(loss_of, fullgraph=True) if compiled and device != "cpu" else loss_of
        history = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = step(x, y)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        return history

    got, want = losses(kit.name), losses("cpu")
    assert all(abs(g - w) < 1e-3 for g, w in zip(got, want)), f"losses {got}, not {want}"


def check_optimizers(kit: Kit, result: Result) -> None:
    """Every optimizer, with its state where each of its options has it."""
    import inspect

    import flambeau as fl

    def trained(make: Any, options: dict[str, bool], device: str) -> Any:
        weight = fl.nn.Parameter((fl.arange(12.0).reshape(4, 3) / 6 - 1).to(device))
        optimizer = make([weight], **options)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = weight.square().sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        return weight.detach().cpu()

    for name, make in sorted(vars(fl.optim).items()):
        if not inspect.isclass(make) or not issubclass(make, fl.optim.Optimizer) or name in ("Optimizer", "SparseAdam"):
            continue
        accepted = inspect.signature(make).parameters
        for options in ({}, *({option: True} for option in ("fused", "capturable", "amsgrad") if option in accepted)):
            got, want = trained(make, options, kit.name), trained(make, options, "cpu")
            fl.testing.assert_close(
                got, want, rtol=1e-2, atol=1e-3, msg=f"{name} {options}: {got.tolist()}, not {want.tolist()}"
            )


def check_launches(kit: Kit, result: Result) -> None:
    """What the host pays for an operator on one element."""
    import flambeau as fl

    x = fl.ones(1, device=kit.name)
    for _ in range(20):
        x + x
    started = time.perf_counter()
    for _ in range(200):
        x + x
    kit.overhead = (time.perf_counter() - started) / 200 * 1e6


WHOLE: dict[str, Callable[[Kit, Result], None]] = {
    "views": check_views, "factories": check_factories, "random": check_random, "memory": check_memory,
    "save_and_load": check_saving, "streams": check_streams, "training": check_training,
    "optimizers": check_optimizers,
    "compiled_training": lambda kit, result: check_training(kit, result, True), "launch_overhead": check_launches,
}  # fmt: skip


def page(kit: Kit, passed: int, total: int) -> str:
    rows = "".join(
        f"<tr class='{'fail' if r.why else 'lacks' if r.lacks else 'pass'}'><td>{html.escape(r.name)}</td>"
        f"<td>{'FAIL' if r.why else 'lacks' if r.lacks else 'pass'}</td><td>{r.samples}</td><td>{r.launches}</td>"
        f"<td>{r.host_calls}</td><td>{html.escape(r.why or r.lacks or r.host_reasons)}</td></tr>"
        for r in kit.results
    )
    style = "body{font-family:sans-serif}td{padding:2px 8px}.fail{background:#fbb}.lacks{color:#777}"
    head = "<tr><th>operator</th><th></th><th>samples</th><th>launches</th><th>host calls</th><th></th></tr>"
    return (
        f"<!doctype html><title>device-check {kit.name}</title><style>{style}</style><h1>{kit.name}: {passed} of {total}</h1>"
        f"<p>{getattr(kit, 'overhead', 0.0):.1f} microseconds of host time for an operator</p><table>{head}{rows}</table>"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau device-check",
        description="Check a registered device against the CPU, operator by operator.",
        epilog="examples: flambeau device-check reference\n          flambeau device-check mychip --module mychip.device --ops 'add|mm'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="the device")
    parser.add_argument("--module", help="a module to import first, which registers the device")
    parser.add_argument(
        "--ops", default=".*", metavar="REGEX", help="check operators whose whole name fits (default: all)"
    )
    parser.add_argument("--dtypes", default="float32,int64,bool", help="of the samples (default float32,int64,bool)")
    parser.add_argument(
        "--html", nargs="?", const="", metavar="FILE", help="write a page (default device-check-NAME.html)"
    )
    options = parser.parse_args(arguments)
    import flambeau as fl

    if options.module:
        importlib.import_module(options.module)
    name = ALIASES.get(options.name, options.name)
    fl.device(name)
    kit = Kit(name, options.dtypes.split(","))
    check_operators(kit, options.ops)
    for check, function in WHOLE.items():
        if options.ops != ".*" and not re.fullmatch(options.ops, check):
            continue
        why = kit.lacks(check)
        if why:
            kit.results.append(Result(check, lacks=why))
            print(kit.results[-1].line())
        else:
            kit.run(check, partial(function, kit))
    return report(kit, options.name, options.html)


def report(kit: Kit, name: str, path: str | None) -> int:
    judged = [r for r in kit.results if not r.lacks]
    passed = sum(not r.why for r in judged)
    launches, samples = sum(r.launches for r in judged), max(sum(r.samples for r in judged), 1)
    hosts = [r for r in judged if r.host_calls]
    for result in hosts:
        print(f"host {result.name}: {result.host_reasons or 'its results depend on values'}".replace("\n", " "))
    print(f"{launches} launches in {samples} samples, {getattr(kit, 'overhead', 0.0):.1f} µs of host time an operator")
    if path is not None:
        path = path or f"device-check-{name}.html"
        with open(path, "w") as file:
            file.write(page(kit, passed, len(judged)))
        print(f"wrote {path}")
    print(f"device-check {name} {passed}/{len(judged)}")
    return 0 if judged and passed == len(judged) else 1
