"""Random graphs through random sequences of passes: they still keep all rules, and compute the same."""

import copy
import operator
import pickle
import random

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from flambeau.fx.passes import cse, inference
from flambeau.fx.passes.constant_folding import fold_constants
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.passes.utils import stable_topological_sort
from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions

WIDTH = 4
UNARY = [fl.sin, fl.tanh, fl.sigmoid, fl.relu, fl.abs, nn.functional.gelu]
BINARY = [operator.add, operator.mul, operator.sub, fl.maximum, fl.add]
METHODS = ["cos", "neg", "sigmoid", "exp2", "clone"]


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.norm.running_mean.uniform_()
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(), nn.Identity())
        self.register_buffer("shift", fl.rand(WIDTH))
        self.weight = nn.Parameter(fl.rand(WIDTH))


def random_module(rng: random.Random) -> fx.GraphModule:
    """A graph over tensors of one shape, with modules, attributes, methods, tuples, writes and dead code."""
    root = Root().eval()
    graph = fx.Graph()
    values = [graph.placeholder(name) for name in ("x", "y")]
    safe = []  # values made by an operator, which may be written in place
    for _ in range(rng.randint(4, 24)):
        kind = rng.choice(
            ["unary", "unary", "binary", "binary", "method", "module", "attribute", "split", "write", "keyword"]
        )
        pick = lambda: rng.choice(values)  # noqa: E731
        if kind == "unary":
            made = graph.call_function(rng.choice(UNARY), (pick(),))
        elif kind == "binary":
            other = pick() if rng.random() < 0.7 else rng.choice([1, 2.0, -1])
            made = graph.call_function(rng.choice(BINARY[:3]) if not isinstance(other, fx.Node) else rng.choice(BINARY), (pick(), other))  # fmt: skip
        elif kind == "method":
            made = graph.call_method(rng.choice(METHODS), (pick(),))
        elif kind == "module":
            made = graph.call_module(rng.choice(["linear", "norm", "block.0", "block.1", "block.2"]), (pick(),))
        elif kind == "attribute":
            attribute = graph.get_attr(rng.choice(["shift", "weight"]))
            made = graph.call_function(operator.mul, (pick(), graph.call_function(fl.cos, (attribute,))))
        elif kind == "split":
            parts = graph.call_method("chunk", (pick(), 2, 1))
            halves = [graph.call_function(operator.getitem, (parts, i)) for i in (0, 1)]
            rng.shuffle(halves)
            made = graph.call_function(fl.cat, (halves,), {"dim": 1})
        elif kind == "write" and safe:
            target = rng.choice(safe)
            made = graph.call_method("mul_", (target, 0.5))
        else:
            made = graph.call_function(fl.clamp, (pick(),), {"min": -1.0, "max": rng.choice([1.0, 2.0])})
        values.append(made)
        if kind in ("unary", "keyword") or (kind == "binary" and made.target is not fl.maximum):
            safe.append(made)
    graph.output(tuple(rng.sample(values, 2)) if rng.random() < 0.5 else values[-1])
    return fx.GraphModule(root, graph)


def eliminate_dead_code(module, rng):
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def merge(module, rng):
    cse.eliminate_common_subexpressions(module)
    return module


def fold(module, rng):
    fold_constants(module, fold_parameters=rng.random() < 0.5)
    return module


def fold_norm(module, rng):
    inference.fold_batch_norm(module)
    return module


def drop_dropout(module, rng):
    inference.remove_dropout(module)
    inference.remove_identities(module)
    return module


def rewrite(module, rng):
    pattern, replacement = rng.choice(
        [
            (lambda x: fl.sigmoid(x), lambda x: 1 / (1 + fl.exp(-x))),
            (lambda x, y: x - y, lambda x, y: x + y * -1),
            (lambda x: fl.relu(x), lambda x: fl.clamp(x, min=0.0)),
            (lambda x: x.neg(), lambda x: x * -1),
            (lambda x, y: fl.add(x, y), lambda x, y: y + x),
        ]
    )
    fx.replace_pattern(module, pattern, replacement)
    return module


def transform(module, rng):
    return fx.Transformer(module).transform()


def duplicate(module, rng):
    return copy.deepcopy(module)


def store(module, rng):
    return pickle.loads(pickle.dumps(module))


def retrace(module, rng):
    return fx.symbolic_trace(module)


def split(module, rng):
    # Only without writes: a part that writes to a value of another would need it as a result.
    if any(n.target == "mul_" for n in module.graph.nodes):
        return module
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    step = rng.randint(2, 6)
    return split_module(module, None, lambda n: order[n] // step)


def sort(module, rng):
    stable_topological_sort(module)
    module.recompile()
    return module


def propagate(module, rng):
    FakeTensorProp(module).propagate(fl.rand(3, WIDTH), fl.rand(3, WIDTH))
    return module


def group(module, rng):
    # As in split: a group with a write would have to return what it wrote to.
    calls = [n for n in module.graph.nodes if n.op.startswith("call")]
    if len(calls) < 2 or any(n.target == "mul_" for n in calls):
        return module
    start = rng.randrange(len(calls) - 1)
    chosen = calls[start : start + rng.randint(2, 5)]
    return fuse_by_partitions(module, [chosen], prefix=f"group_{len(module.graph.nodes)}_{start}_")


def by_keyword(module, rng):
    return NormalizeArgs(module, normalize_to_only_use_kwargs=rng.random() < 0.5).transform()


def operators_as_functions(module, rng):
    return NormalizeOperators(module).transform()


PASSES = [eliminate_dead_code, merge, fold, fold_norm, drop_dropout, rewrite, transform, duplicate, store, retrace, split,
          sort, propagate, group, by_keyword, operators_as_functions]  # fmt: skip


def run(module, x, y):
    result = module(x.clone(), y.clone())
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("seed", range(60))
def test_random_passes_on_random_graphs(seed):
    rng = random.Random(seed)
    fl.manual_seed(seed)
    module = random_module(rng)
    module.graph.lint()
    x, y = fl.rand(3, WIDTH), fl.rand(3, WIDTH)
    expected = run(module, x, y)
    history = []
    for _ in range(rng.randint(1, 6)):
        step = rng.choice(PASSES)
        history.append(step.__name__)
        module = step(module, rng)
        for _, child in module.named_modules():
            if isinstance(child, fx.GraphModule):
                child.graph.lint()
        found = run(module, x, y)
        for a, b in zip(found, expected, strict=True):
            assert fl.allclose(a, b, atol=1e-4, equal_nan=True), history
