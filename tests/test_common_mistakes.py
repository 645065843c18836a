"""Mistakes that users often make: the message says what was expected, what came, and what to write instead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.utils.data import DataLoader

x = fl.ones(4, 8)
labels = fl.zeros(4, dtype=fl.int64)
leaf = fl.ones(3, requires_grad=True)


def layer(*sizes: int) -> nn.Linear:
    return nn.Linear(*sizes)


def heads(query: int = 16, mask: Any = None) -> Any:
    tokens = fl.ones(5, 2, query)
    return nn.MultiheadAttention(16, 4)(tokens, tokens, tokens, attn_mask=mask)


def batch_of(*samples: Any) -> Any:
    return next(iter(DataLoader(list(samples), batch_size=len(samples))))


def twice() -> None:
    loss = (leaf * leaf).sum()
    loss.backward()
    loss.backward()


def load(state: Any) -> None:
    layer(2, 2).load_state_dict(state)


MISTAKES: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    # layers
    "features": (RuntimeError, lambda: layer(10, 3)(x), "expected an input of 10 features"),
    "not flattened": (RuntimeError, lambda: layer(24, 3)(fl.ones(2, 4, 3, 2)), "flatten its trailing dimensions"),
    "dtype of an input": (RuntimeError, lambda: layer(8, 3)(x.double()), "float64 and float32; convert one"),
    "an array": (TypeError, lambda: layer(8, 3)(np.ones((4, 8))), "from_numpy()"),
    "a list": (TypeError, lambda: F.relu([1.0]), "make it a tensor with tensor()"),
    "channels last": (RuntimeError, lambda: nn.Conv2d(3, 8, 3)(fl.ones(2, 9, 9, 3)), "channels are last: permute"),
    "channels": (RuntimeError, lambda: nn.Conv2d(3, 8, 3)(fl.ones(2, 1, 9, 9)), "expected an input of 3 channels"),
    "bytes": (RuntimeError, lambda: nn.Conv2d(3, 8, 3)(fl.ones(2, 3, 9, 9).byte()), "convert the input with .to(float32)"),
    "kernel": (RuntimeError, lambda: nn.Conv2d(3, 8, 5)(fl.ones(2, 3, 4, 4)), "at least as large as the kernel"),
    "batch norm": (RuntimeError, lambda: nn.BatchNorm1d(16)(x), "expected an input of 16 channels"),
    "group norm": (RuntimeError, lambda: nn.GroupNorm(2, 6)(x), "got 8 channels in shape (4, 8)"),
    "one row in training": (ValueError, lambda: nn.BatchNorm1d(8)(x[:1]), "more than 1 value per channel"),
    "layer norm": (RuntimeError, lambda: nn.LayerNorm(10)(x), "expected an input that ends in (10)"),
    "query": (AssertionError, lambda: heads(12), "expected a query of embed_dim 16, got 12"),
    "attention mask": (RuntimeError, lambda: heads(mask=fl.zeros(4, 4)), "attn_mask of shape (5, 5), got (4, 4)"),
    "keys": (
        RuntimeError,
        lambda: F.scaled_dot_product_attention(fl.ones(1, 4, 8), fl.ones(1, 4, 6), fl.ones(1, 4, 6)),
        "key (..., keys, e)",
    ),
    "bilinear": (RuntimeError, lambda: nn.Bilinear(2, 3, 4)(fl.ones(5, 2), fl.ones(5, 4)), "input2 of 3 features"),
    "embedding range": (IndexError, lambda: nn.Embedding(10, 4)(fl.tensor([10])), "indices in [0, 9], got 10"),
    "embedding dtype": (RuntimeError, lambda: nn.Embedding(10, 4)(fl.ones(2)), "convert them with .long()"),
    "a list of layers": (TypeError, lambda: nn.Sequential([layer(2, 2)]), "Sequential(*layers)"),
    "a class as layer": (TypeError, lambda: nn.Sequential(nn.ReLU), "write its parentheses"),
    "ModuleList called": (NotImplementedError, lambda: nn.ModuleList([layer(2, 2)])(x), "iterate over its layers"),
    # losses
    "float labels": (RuntimeError, lambda: F.cross_entropy(x, labels.float()), "convert indices with .long()"),
    "int32 labels": (RuntimeError, lambda: F.cross_entropy(x, labels.int()), "convert them with .long()"),
    "a column of labels": (RuntimeError, lambda: F.cross_entropy(x, labels[:, None]), "squeeze(1) the target"),
    "integer one-hot": (RuntimeError, lambda: F.cross_entropy(x, x.long()), "argmax(1) of one-hot rows"),
    "batch of labels": (ValueError, lambda: F.cross_entropy(x, labels[:3]), "one batch size, got 4 and 3"),
    "a class too high": (IndexError, lambda: F.cross_entropy(x, labels + 8), "class indices in [0, 7], got 8"),
    "classes last": (RuntimeError, lambda: F.cross_entropy(fl.ones(4, 7, 9), fl.zeros(4, 7).long()), "movedim(-1, 1)"),
    "logits as probabilities": (RuntimeError, lambda: F.binary_cross_entropy(x * 2, x), "apply sigmoid first"),
    "integers in bce": (RuntimeError, lambda: F.binary_cross_entropy(x, x.long()), "target.to(input.dtype)"),
    "integers in bce with logits": (
        RuntimeError,
        lambda: F.binary_cross_entropy_with_logits(x, x.long()),
        "target.to(input.dtype)",
    ),
    # operators
    "product dtypes": (RuntimeError, lambda: x @ x.long().T, "float32 and int64; convert one of them"),
    "devices": (RuntimeError, lambda: x + x.to("meta"), "cpu and meta; move them to one with .to(device)"),
    "cat of one": (TypeError, lambda: fl.cat(x), "must be tuple of Tensors"),
    "stack shapes": (RuntimeError, lambda: fl.stack([x, x[:2]]), "(4, 8) and (2, 8) at position 1"),
    "a list of tensors": (ValueError, lambda: fl.tensor([x, x]), "join tensors with stack()"),
    "text": (TypeError, lambda: fl.tensor(["a"]), "expected numbers or nested sequences of numbers, got str"),
    "mean of integers": (RuntimeError, lambda: labels.mean(), "convert it with .float()"),
    "largest of none": (RuntimeError, lambda: x[:0].max(), "pass dim"),
    "condition": (RuntimeError, lambda: fl.where(x, 1.0, 0.0), "convert it with .bool()"),
    "mask": (RuntimeError, lambda: x.masked_fill(x, 0.0), "convert it with .bool()"),
    "view of a transpose": (RuntimeError, lambda: x.T.view(32), "use reshape()"),
    "an index too high": (IndexError, lambda: x[4], "index in [-4, 3] for dimension 0 of size 4, got 4"),
    "dtype in quotes": (TypeError, lambda: fl.ones(2, dtype="float32"), "without quotes"),
    "dtype as device": (RuntimeError, lambda: x.to("float32"), "a dtype is written without quotes"),
    "gpu": (RuntimeError, lambda: x.to("gpu"), "write 'cuda'"),
    "singular": (fl.linalg.LinAlgError, lambda: fl.linalg.inv(fl.zeros(2, 2)), "got a singular one: pivot 1"),
    "not definite": (fl.linalg.LinAlgError, lambda: fl.linalg.cholesky(-fl.eye(2)), "need a larger diagonal"),
    "NaN": (fl.linalg.LinAlgError, lambda: fl.linalg.svd(fl.full((2, 2), fl.nan)), "look for NaN"),
    "right-hand side": (RuntimeError, lambda: fl.linalg.solve(fl.eye(3), fl.ones(2)), "(..., n, n) and (..., n, k)"),
    # gradients
    "a leaf in place": (RuntimeError, lambda: leaf.add_(1), "wrap the write in no_grad()"),
    "backward twice": (RuntimeError, twice, "Specify retain_graph=True"),
    "backward of a vector": (RuntimeError, lambda: (leaf * 2).backward(), "reduce it with sum() or mean()"),
    "backward without grad": (RuntimeError, lambda: x.sum().backward(), "was it computed under no_grad()"),
    "numpy of a leaf": (RuntimeError, lambda: leaf.numpy(), "Use tensor.detach().numpy()"),
    # data, state and optimizers
    "samples of two sizes": (RuntimeError, lambda: batch_of(fl.ones(2), fl.ones(3)), "[default_collate] expected samples of one shape, got (2,), (3,)"),
    "samples of None": (TypeError, lambda: batch_of(None, None), "pass collate_fn"),
    "prefix of DataParallel": (
        RuntimeError,
        lambda: load({"module.weight": fl.ones(2, 2), "module.bias": fl.ones(2)}),
        "k.removeprefix('module.')",
    ),
    "a model as state": (TypeError, lambda: load(layer(2, 2)), "pass its state_dict()"),
    "a path as state": (TypeError, lambda: load("model.pt"), "load_state_dict(torch.load(path))"),
    "a model to optimize": (TypeError, lambda: fl.optim.Adam(layer(2, 2)), "write model.parameters()"),
    "names to optimize": (TypeError, lambda: fl.optim.SGD({"w": leaf}, lr=0.1), "pass the values() of a dict"),
    "nothing to optimize": (ValueError, lambda: fl.optim.SGD([], lr=0.1), "was model.parameters() used up"),
}  # fmt: skip


@pytest.mark.parametrize("kind, call, said", MISTAKES.values(), ids=MISTAKES)
def test_the_message_says_what_to_do(kind: type[Exception], call: Callable[[], Any], said: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert said in str(caught.value)


def test_python_suggests_methods_for_misspelt_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AttributeError) as caught:
        fl.ones(3).sqeeze()  # type: ignore[attr-defined]
    sys.__excepthook__(AttributeError, caught.value, None)
    assert "Did you mean: 'squeeze'?" in capsys.readouterr().err


@pytest.mark.skipif(fl.cuda.is_available(), reason="with a GPU there is no error")
@pytest.mark.parametrize("call", [lambda: x.cuda(), lambda: x.to("cuda"), lambda: layer(2, 2).cuda()])
def test_without_a_gpu_the_message_says_what_to_look_at(call: Callable[[], Any]) -> None:
    with pytest.raises((AssertionError, RuntimeError), match="`flambeau env`"):
        call()


def test_a_checkout_that_is_not_built_says_so(tmp_path: Path) -> None:
    package = tmp_path / "flambeau"
    package.mkdir()
    source = Path(fl.__file__).read_text()
    (package / "__init__.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", "import flambeau"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert "is not built in" in result.stderr and "`make dev`" in result.stderr
