"""Runs the corpus: every program compiled and in plain Python, with equal results, side effects and exceptions."""

import contextlib
import copy
import importlib
import io
import math
import os
import pkgutil
import types
import warnings

import pytest

import flambeau as fl
from flambeau._dynamo.compile import Report, Settings
from flambeau.compiler import compile_with

corpus = importlib.import_module("tests.dynamo.corpus") if __package__ else None
if corpus is None:
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    corpus = importlib.import_module("corpus")
for part in pkgutil.iter_modules(corpus.__path__):
    importlib.import_module(f"{corpus.__name__}.{part.name}")
PROGRAMS = corpus.PROGRAMS
SINGLE = 0.9  # of the programs must be captured in one graph


def same(a, b, seen=None, equal=fl.equal):
    """Equal in value and kind, to the bit unless `equal` says otherwise of tensors."""
    seen = {} if seen is None else seen
    if id(a) in seen:
        return seen[id(a)][0] is b
    if type(a) is not type(b):
        return False
    if isinstance(a, fl.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad or a.stride() != b.stride():
            return False
        if (a.grad is None) != (b.grad is None) or (a.grad is not None and not same(a.grad, b.grad, seen, equal)):
            return False
        return equal(a.detach().nan_to_num(7), b.detach().nan_to_num(7))
    if type(a).__module__ == "numpy" and hasattr(a, "dtype"):
        return same_arrays(a, b)
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (int, str, bytes, complex, type(None), type, fl.dtype, fl.device, range, slice)):
        return a == b
    seen[id(a)] = (b, a)  # kept alive: an address may not be used again meanwhile
    if type(a).__name__ == "Registry" and all(isinstance(key, int) for key in a):
        a, b = list(a.values()), list(b.values())  # hooks: their numbers count up in the process
    if isinstance(a, dict):
        plain = len(a) == len(b) and all(same(x, y, seen, equal) for x, y in zip(a.items(), b.items()))
        return plain and same(getattr(a, "__dict__", None), getattr(b, "__dict__", None), seen, equal)
    if isinstance(a, (set, frozenset)):
        return a == b or (len(a) == len(b) and sorted(map(str, a)) == sorted(map(str, b)))
    if hasattr(a, "__len__") and hasattr(a, "__iter__") and not hasattr(a, "forward"):
        return len(a) == len(b) and all(same(x, y, seen, equal) for x, y in zip(a, b))
    if isinstance(a, types.FunctionType):
        return a.__code__ is b.__code__ and same(a.__defaults__, b.__defaults__, seen, equal)
    if isinstance(a, BaseException):
        return same(a.args, b.args, seen, equal)
    if isinstance(a, types.MethodType):
        return same(a.__func__, b.__func__, seen, equal) and same(a.__self__, b.__self__, seen, equal)
    if isinstance(a, types.GeneratorType):
        return a.gi_code is b.gi_code
    if hasattr(a, "__dict__"):
        return same(a.__dict__, b.__dict__, seen, equal)
    if hasattr(a, "__slots__"):
        return all(same(getattr(a, name, None), getattr(b, name, None), seen, equal) for name in a.__slots__)
    return a == b


def same_arrays(a, b):
    """Equal in dtype and shape; floats up to the order of additions, which NumPy does not promise."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return a.tolist() == b.tolist()
    digits = {2: 10, 4: 23, 8: 52}[a.real.itemsize]
    exact = (a == b) | ((a != a) & (b != b))
    return bool((exact | (abs(a - b) <= abs(a) * 8 * 2.0**-digits)).all())


def snapshot(names):
    return {name: copy.deepcopy(value) for name, value in names.items()}


def outcome(function, program):
    """What a call does: result or exception, inputs afterwards, output, module-level state."""
    inputs = program.make_inputs()
    names = program.function.__globals__
    before = snapshot({k: names.get(k) for k in program.state or ()})
    written = io.StringIO()
    result, error = None, None
    mode = fl.is_grad_enabled()
    try:
        with contextlib.redirect_stdout(written):
            result = function(*inputs)
    except Exception as raised:
        error = raised
    after_mode = fl.is_grad_enabled()
    fl.set_grad_enabled(mode)
    state = snapshot({k: names.get(k) for k in program.state or ()})
    for name, value in before.items():
        if value is None:
            names.pop(name, None)
        else:
            names[name] = value
    return [result, error, inputs, written.getvalue(), state, after_mode]


def close(a, b):
    """Equal up to the order of additions."""
    return fl.allclose(a, b, rtol=1e-4, atol=1e-5) if a.is_floating_point() else fl.equal(a, b)


def check(program, backend="eager"):
    equal = fl.equal if backend == "eager" and not program.rounding else close
    settings = Settings(backend)
    settings.report = Report()
    compiled = compile_with(program.function, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = outcome(program.function, program)
        if isinstance(wanted[1], TypeError) and "[numpy] expected a CPU tensor" in str(wanted[1]):
            raise wanted[1]  # the tests run on a device whose tensors have no arrays
        for attempt in ("first", "second"):
            got = outcome(compiled, program)
            for what, a, b in zip(("result", "exception", "inputs", "output", "globals", "grad mode"), wanted, got):
                if what == "output" and backend != "eager" and a != b:
                    continue  # digits of numbers may differ
                assert same(a, b, equal=equal), f"{attempt} call: {what} of plain Python {a!r}, compiled {b!r}"
    return settings.report


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program):
    report = check(program)
    # A graph is of one device: where tensors are not on the CPU, going there or coming from there ends it.
    ways = {"cpu", "as_tensor", "asarray"} & set(program.function.__code__.co_names)
    leaves = fl.get_default_device().type != "cpu" and ways
    if not program.breaks and not leaves:
        assert not report.breaks and not report.skips, "\n".join(map(str, [*report.breaks, *report.skips]))


# With the compiler, all programs where the environment asks for it, and a few otherwise: each takes a second.
EVERY = 1 if os.environ.get("FLAMBEAU_CORPUS") == "all" else 12


@pytest.mark.parametrize("program", PROGRAMS[::EVERY], ids=lambda program: program.name)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_program_compiled(backend, program):
    if backend == "inductor" and EVERY > 1 and PROGRAMS.index(program) % 60:
        pytest.skip("only where FLAMBEAU_CORPUS is all")
    check(program, backend)


def test_most_programs_are_one_graph():
    assert sum(not program.breaks for program in PROGRAMS) >= SINGLE * len(PROGRAMS)


if __name__ == "__main__":  # prints failures in short
    import sys as _sys
    import traceback

    bad = 0
    chosen = [p for p in PROGRAMS if len(_sys.argv) < 2 or _sys.argv[1] in p.name]
    for p in chosen:
        try:
            r = check(p)
            if not p.breaks and (r.breaks or r.skips):
                bad += 1
                print(
                    "BREAK",
                    p.name,
                    *[f"{b.record.name} {b.record.title}: {b.detail} (line {b.line})" for b in r.breaks],
                    *r.skips,
                    sep="\n    ",
                )
        except BaseException as error:
            bad += 1
            print("FAIL ", p.name, type(error).__name__, str(error)[:300])
            if len(_sys.argv) > 1:
                traceback.print_exc()
    print(f"{len(chosen)} programs, {bad} bad; {sum(not p.breaks for p in PROGRAMS)} single")
