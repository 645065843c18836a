"""Operators beside PyTorch's, by the samples of PyTorch's own table of operators.

    python tools/parity/opinfo.py [--mode forward,grad] [--ops REGEX] [--samples 2] [--jobs 2] [--json FILE] [--verbose]

Every operator of the table brings samples. Each is rebuilt with the tensors of the library, called in both, and the
results are compared. An operator passes a mode when all samples that PyTorch itself accepts pass:

    forward   dtypes, shapes and values of the results
    meta      dtypes and shapes on the meta device
    inplace   the form that writes its first argument: what is returned, and what is written
    error     arguments that PyTorch refuses are refused, with an error of the same kind
    grad      gradients of a weighted sum of the results, in double precision
    compile   the compiled operator against PyTorch's eager one

Operators are called in processes of their own: one that crashes or hangs is counted and the next one goes on.
`--lib torch` compares PyTorch with itself, which checks this program.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from comparing import UNSPECIFIED, Different, agree
from torch.testing._internal.common_methods_invocations import op_db
from values import Translator, Untranslatable, find, flat, from_test_definitions, rebound, short, to_torch

MODES = ("forward", "meta", "inplace", "error", "grad", "compile")
STATUSES = ("pass", "fail", "missing", "crash", "timeout")
ERROR_KINDS = (NotImplementedError, IndexError, TypeError, ValueError, RuntimeError)
SPREAD = 256  # samples are picked evenly from the first ones that an operator has
# Not counted: private operators, those that only torch.ops or CUDA has, and those of sparse layouts.
LEFT_OUT = re.compile(
    r"_(?!_).*|torch\..*|slice|native_dropout_backward|max_pool2d_with_indices_backward|jiterator_.*|sparse\..*|to_sparse"
    r"|nn\.functional\.batch_norm\.without_cudnn|bmm\.triton_optimized"
)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def function_of(op: Any, library: Any, inplace: bool = False) -> Any:
    """The library's function or method for an operator, or None."""
    own = op.inplace_variant if inplace else op.op
    if from_test_definitions(own):
        return rebound(own, library)
    if library is torch:
        return own
    if inplace and isinstance(own, functools.partial):
        function = _public(library, op.name)
        return function and functools.partial(function, *own.args, **own.keywords)
    return find(library.Tensor, own.__name__) if inplace else _public(library, op.name)


def _public(library: Any, name: str) -> Any:
    member = find(library, name)
    return member if callable(member) and not isinstance(member, (type, library.dtype)) else find(library.Tensor, name)


def call(function: Any, library: Any, sample: Any, device: str = "cpu") -> tuple[Any, Translator]:
    translate = Translator(library, device)
    arguments = translate((sample.input, *sample.args))
    return function(*arguments, **translate(dict(sample.kwargs))), translate


def expected(op: Any, function: Any, sample: Any) -> tuple[list[Any], bool]:
    """PyTorch's results, and whether their values mean something: random ones differ from call to call."""

    def seeded(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [to_torch(value, torch) for value in flat(call(function, torch, sample)[0])]

    try:
        results = seeded(0)
        if UNSPECIFIED.fullmatch(name_of(op)):
            return results, False
        others = [seeded(seed) for seed in range(1, 7)]
    except Exception as error:
        raise Untranslatable(f"PyTorch refuses the sample: {error}") from None
    try:
        for other in others:
            agree(name_of(op), other, results)
    except Different:
        return results, False
    return results, True


def forward(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    wanted, meaningful = expected(op, reference, sample)
    results = [to_torch(value, library) for value in flat(call(function, library, sample)[0])]
    agree(name_of(op), results, wanted, values=meaningful)


def meta(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    try:
        wanted = [to_torch(value, torch) for value in flat(call(reference, torch, sample, "meta")[0])]
    except Exception as error:
        raise Untranslatable(f"PyTorch has no shapes for the sample: {error}") from None
    agree(name_of(op), [to_torch(v, library) for v in flat(call(function, library, sample, "meta")[0])], wanted)


def inplace(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    def written(of: Any, where: Any) -> list[Any]:
        translate = Translator(where)
        first, *rest = translate((sample.input, *sample.args))
        returned = of(first, *rest, **translate(dict(sample.kwargs)))
        return [to_torch(value, where) for value in (*flat(returned), *flat(first))]

    meaningful = expected(op, reference, sample)[1]
    agree(name_of(op), written(function, library), written(reference, torch), values=meaningful)


def error(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    def kind(of: Any, where: Any) -> Any:
        try:
            call(of, where, sample.sample_input)
        except Untranslatable:
            raise
        except Exception as raised:
            return next((kind for kind in ERROR_KINDS if isinstance(raised, kind)), type(raised))
        return None

    wanted = kind(reference, torch)
    if wanted is None:
        raise Untranslatable("PyTorch accepts the sample")
    got = kind(function, library)
    if got is not wanted:
        raise Different(f"{got and got.__name__}, expected {wanted.__name__}")


def gradients(op: Any, library: Any, function: Any, sample: Any) -> list[Any]:
    """Gradients of the results, each multiplied by fixed weights and summed."""
    if "masked" not in op.gradcheck_wrapper.__name__:  # those wrappers call private helpers of PyTorch
        function = functools.partial(rebound(op.gradcheck_wrapper, library), function)
    results, translate = call(function, library, sample)
    total: Any = None
    for result in flat(rebound(sample.output_process_fn_grad, library)(results)):
        if isinstance(result, library.Tensor) and result.requires_grad:
            places = np.arange(int(np.prod(tuple(result.shape)))).reshape(tuple(result.shape))
            weights = translate.constant(np.cos(1.7 * places + 0.3), short(result.dtype))
            part = (result * weights).sum()
            part = part.real if result.is_complex() else part
            total = part if total is None else total + part
    if total is None:
        raise Untranslatable("nothing has a gradient")
    total.backward()
    return [to_torch(leaf.grad, library) for leaf in translate.leaves]


def grad(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    if not expected(op, reference, sample)[1]:
        raise Untranslatable("the result is random")
    try:
        wanted = gradients(op, torch, reference, sample)
    except Exception as raised:
        raise Untranslatable(f"PyTorch has no gradient: {raised}") from None
    results = gradients(op, library, function, sample)
    pairs = [(a, b) for a, b in zip(results, wanted, strict=True) if a is not None or b is not None]
    zero = torch.zeros_like  # no gradient is a gradient of zero
    agree(
        op.name,
        [zero(b) if a is None else a for a, b in pairs],
        [zero(a) if b is None else b for a, b in pairs],
        slack=100,
    )


def compile(op: Any, library: Any, function: Any, reference: Any, sample: Any) -> None:
    library.compiler.reset()
    backend = {"backend": "eager"} if library is torch else {}
    compiled = library.compile(lambda *args, **kwargs: function(*args, **kwargs), **backend)
    forward(op, library, compiled, reference, sample)


RUN: dict[str, Callable[..., None]] = {
    "forward": forward, "meta": meta, "inplace": inplace, "error": error, "grad": grad, "compile": compile,
}  # fmt: skip


def dtypes_of(op: Any, mode: str, dtypes: list[str]) -> list[str]:
    """The dtypes in which an operator runs in a mode; none where the mode is not for it."""
    if mode == "error":
        return ["any"] if op.error_inputs_func else []
    if mode == "inplace" and op.inplace_variant is None:
        return []
    if mode == "grad":
        return ["float64"] if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu") else []
    usable = [name for name in dtypes if getattr(torch, name) in op.supported_dtypes("cpu")]
    return usable[:1] if mode == "compile" else usable


def samples_of(op: Any, mode: str, dtype: str, count: int) -> list[Any]:
    torch.manual_seed(0)
    np.random.seed(0)
    make = (
        op.error_inputs("cpu")
        if mode == "error"
        else op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=mode == "grad")
    )
    first: list[Any] = []
    for sample in make:
        first.append(sample)
        if len(first) == SPREAD:
            break
    step = max(1, len(first) // count)
    return first[::step][:count] if count else first


def measure(op: Any, mode: str, library: Any, options: argparse.Namespace) -> dict[str, Any] | None:
    """What became of an operator in a mode; None where nothing could be compared."""
    function = function_of(op, library, mode == "inplace")
    reference = function_of(op, torch, mode == "inplace")
    library.manual_seed(0)
    tried, failures = 0, []
    for dtype in dtypes_of(op, mode, options.dtypes.split(",")):
        for sample in samples_of(op, mode, dtype, options.samples):
            try:
                if function is None:
                    expected(op, reference, sample if mode != "error" else sample.sample_input)
                    raise Different("missing")
                RUN[mode](op, library, function, reference, sample)
            except Untranslatable:
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as raised:
                text = str(raised) if isinstance(raised, Different) else f"{type(raised).__name__}: {raised}"
                failures.append(f"{dtype}: {text.strip().splitlines()[0] if text.strip() else text}"[:300])
            tried += 1
    if not tried:
        return None
    status = "missing" if function is None else "fail" if failures else "pass"
    return {"status": status, "tried": tried, "failures": failures[:3]}


# ---------------------------------------------------------------------------------------------- processes


def serve(options: argparse.Namespace) -> None:
    """In a process of its own: measure operators by number, a line of JSON for each mode."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    library = importlib.import_module(options.lib)
    with open(options.serve, "a", encoding="utf-8", buffering=1) as out:
        for place, mode in json.loads(sys.stdin.read()):
            out.write(json.dumps(["begin", place, mode]) + "\n")
            out.write(json.dumps(["done", place, mode, measure(op_db[place], mode, library, options)]) + "\n")


def run_share(
    work: list[tuple[int, str]], options: argparse.Namespace
) -> Iterator[tuple[int, str, dict[str, Any] | None]]:
    """Results of a share of the work; a process that ends or stands still is replaced by one for the rest."""
    while work:
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as lines:
            command = [sys.executable, __file__, *options.forwarded, "--serve", lines.name]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps(work).encode())
            process.stdin.close()
            begun, since, unfinished = None, time.monotonic(), ""
            while True:
                ended = process.poll() is not None
                *whole, unfinished = (unfinished + lines.read()).split("\n")
                for line in whole:
                    what, place, mode, *result = json.loads(line)
                    begun, since = ((place, mode) if what == "begin" else None), time.monotonic()
                    if what == "done":
                        yield place, mode, result[0]
                        work = work[1:]
                late = time.monotonic() - since > options.timeout + (120 if begun is None else 0)
                if ended or late:
                    process.kill()
                    break
                time.sleep(0.05)
        if begun is not None:
            yield *begun, {"status": "timeout" if late else "crash", "tried": 1, "failures": []}
            work = work[1:]
        elif work and process.returncode not in (0, None):
            raise SystemExit(f"[parity] expected {options.lib} to be importable, got exit code {process.returncode}")


def run_all(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    import threading

    chosen = [
        i for i, op in enumerate(op_db) if not LEFT_OUT.fullmatch(name_of(op)) and re.search(options.ops, name_of(op))
    ]
    work = [
        (i, mode)
        for i in chosen
        for mode in options.mode.split(",")
        if dtypes_of(op_db[i], mode, options.dtypes.split(","))
    ]
    results: dict[str, dict[str, Any]] = collections.defaultdict(dict)

    def share(part: list[tuple[int, str]]) -> None:
        for place, mode, record in run_share(part, options):
            if record is not None:
                results[name_of(op_db[place])][mode] = record

    threads = [threading.Thread(target=share, args=(work[start :: options.jobs],)) for start in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def summary_of(results: dict[str, dict[str, Any]], mode: str) -> dict[str, int]:
    statuses = collections.Counter(record[mode]["status"] for record in results.values() if mode in record)
    return {"ops": sum(statuses.values()), **{status: statuses[status] for status in STATUSES}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="flambeau")
    parser.add_argument("--mode", default=",".join(MODES[:5]))
    parser.add_argument("--dtypes", default="float32,int64,bool,bfloat16")
    parser.add_argument("--ops", default="", help="a regular expression: operators whose names it finds")
    parser.add_argument("--samples", type=int, default=2, help="of an operator and dtype; 0: all")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for an operator in a mode")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("--verbose", action="store_true", help="say what failed")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.forwarded = [
        "--lib", options.lib, "--dtypes", options.dtypes, "--samples", str(options.samples)
    ]  # fmt: skip
    if options.serve:
        serve(options)
        return
    results = run_all(options)
    summary = {mode: summary_of(results, mode) for mode in options.mode.split(",")}
    for mode, counts in summary.items():
        print(f"{mode:8}", "  ".join(f"{name} {count}" for name, count in counts.items()))
        for name, record in sorted(results.items()) if options.verbose else ():
            if mode in record and record[mode]["status"] != "pass":
                print(f"  {record[mode]['status']:8} {name}  {'; '.join(record[mode]['failures'][:1])}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"summary": summary, "ops": results}, indent=1))


if __name__ == "__main__":
    main()
