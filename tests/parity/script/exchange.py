"""Writes or reads the archives of `models.py` with one of the two libraries: `exchange.py save|check torch|flambeau FOLDER`.

`check native FOLDER` reads them with the machine that C++ programs use.
"""

import os
import pathlib
import pickle
import sys
import warnings

ACTION, LIBRARY, FOLDER = sys.argv[1:4]
if LIBRARY == "flambeau":
    import flambeau.as_torch  # noqa: F401

import features  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.jit.mobile import _load_for_lite_interpreter  # noqa: E402

warnings.simplefilter("ignore")
# PyTorch cannot call or write these itself.
SKIPPED = {"torch": {"lstm", "gru", "rnn", "trace_tenc", "lang", "fn"}, "flambeau": {"lang"}}
NOT_NATIVE = {"factors"}  # functions that are written in Python
NOT_LITE = {"iface", "dynidx", "prop", "enum", "enum2", "kept"}  # state, calls by interface, enumerations


def plain(value):
    """Results without tensors, to compare between libraries."""
    if isinstance(value, torch.Tensor):
        return np.array(value.detach().numpy())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and value != value:
        return "nan"
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return list(a) == list(b) and all(same(a[k], b[k]) for k in a) if isinstance(a, dict) else a == b


def save(name, make, inputs, path):
    model = make()
    if isinstance(model, torch.nn.Module):
        models.fill(model)
        model.eval()
    made = torch.jit.trace(model, inputs()) if name.startswith("trace_") else torch.jit.script(model)
    result = plain(made(*inputs()))
    if (name, make, inputs) not in features.CASES:  # these have parts that only scripts understand
        assert same(plain(model(*inputs())), result), "the script differs from the model"
    made.save(str(path))
    path.with_suffix(".out").write_bytes(pickle.dumps(result))
    if isinstance(model, torch.nn.Module) and name not in NOT_LITE and not name.startswith("trace_"):
        made._save_for_lite_interpreter(str(path.with_suffix(".ptl")))


def check(name, make, inputs, path):
    if LIBRARY == "native":
        import native

        result = plain(native.load(path)(*inputs()))
        assert same(pickle.loads(path.with_suffix(".out").read_bytes()), result), "the native result differs"
        return
    loaded = torch.jit.load(str(path))
    lite = path.with_suffix(".ptl")
    if lite.exists():
        result = _load_for_lite_interpreter(str(lite))(*inputs())
        assert same(pickle.loads(path.with_suffix(".out").read_bytes()), plain(result)), "the lite module differs"
    assert same(pickle.loads(path.with_suffix(".out").read_bytes()), plain(loaded(*inputs()))), (
        "the loaded module differs"
    )


def main():
    failures = []
    for name, make, inputs in [*models.CASES, *features.CASES]:
        path = pathlib.Path(FOLDER) / f"{name}.pt"
        if (ACTION == "save" and name in SKIPPED[LIBRARY]) or (
            ACTION == "check"
            and (not path.with_suffix(".out").exists() or (LIBRARY == "native" and name in NOT_NATIVE))
        ):
            continue
        try:
            (save if ACTION == "save" else check)(name, make, inputs, path)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error).strip()[:400]}")
    print("\n".join(failures), flush=True)
    # PyTorch's pool of threads that `fork` has started may abort the process where the interpreter ends it.
    (os._exit if LIBRARY == "torch" else sys.exit)(bool(failures))


main()
