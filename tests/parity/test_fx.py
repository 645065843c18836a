"""fx against PyTorch's: the same program gives the same graph and the same printed code, and rewrites the same way."""

import importlib

import pytest

torch = pytest.importorskip("torch")
import flambeau  # noqa: E402

LIBRARIES = {"torch": torch, "flambeau": flambeau}
# PyTorch's Python functions hand on defaults that were not given.
DEFAULTS = (
    ", inplace = False",
    ", _stacklevel = 3, dtype = None",
    "'inplace': False",
    ", '_stacklevel': 3, 'dtype': None",
)


def without_defaults(text):
    for part in DEFAULTS:
        text = text.replace(part, "")
    return text


def models(lib):
    """The same models in either library."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(o)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(o)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o)) if stride != 1 else None

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += x if self.down is None else self.down(x)
            return self.relu(y)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3)
            self.layers = nn.ModuleList([Block(8, 8, 1), Block(8, 16, 2)])
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(16, 10)

        def forward(self, x):
            x = F.relu(self.stem(x))
            for layer in self.layers:
                x = layer(x)
            return self.fc(lib.flatten(self.pool(x), 1))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.qkv = nn.Linear(16, 48)
            self.scale = nn.Parameter(lib.ones(16))
            self.register_buffer("mask", lib.zeros(4, 4))

        def forward(self, x, dropout: float = 0.0):
            B, T, C = x.size()
            q, k, v = self.qkv(self.norm(x)).split(C, dim=2)
            q = q.view(B, T, 2, C // 2).transpose(1, 2)
            k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in (k, v))
            scores = (q @ k.transpose(-2, -1)) * (1.0 / 4) + self.mask
            y = F.softmax(scores, dim=-1) @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C) * self.scale
            return {"out": x + y, "last": y[:, -1, 1:], "power": (y.abs() + 1) ** 0.5, "neg": -y}

    class Misc(nn.Module):
        def forward(self, x, y=None, *, flag=True):
            z = lib.cat([x, x], dim=0).to(lib.float64)
            z = z.clamp(min=0.0, max=1.0) + lib.zeros(3) - 2.5e-3
            a, b = lib.max(z, 1)
            return a.float().sum(), b, z.shape[0], lib.stack((a, a)).permute(1, 0)

    return {"resnet": (ResNet, [(2, 3, 12, 12)]), "attention": (Attention, [(2, 4, 16)]), "misc": (Misc, [(2, 3)])}


def rows(graph):
    return [
        (
            n.op,
            n.name,
            n.target if isinstance(n.target, str) else n.target.__name__,
            str(n.args),
            without_defaults(str(n.kwargs)),
        )
        for n in graph.nodes
    ]


@pytest.mark.parametrize("name", ["resnet", "attention", "misc"])
def test_same_graph_and_code(name):
    found = {}
    for library, lib in LIBRARIES.items():
        fx = importlib.import_module(f"{library}.fx")
        make, _ = models(lib)[name]
        module = fx.symbolic_trace(make())
        found[library] = (rows(module.graph), without_defaults(module.code.strip()))
    assert found["flambeau"][0] == found["torch"][0]
    assert found["flambeau"][1] == found["torch"][1]


@pytest.mark.parametrize("name", ["resnet", "attention"])
def test_same_numbers_with_the_same_weights(name):
    make, sizes = models(torch)[name]
    reference = torch.fx.symbolic_trace(make().eval())
    own = flambeau.fx.symbolic_trace(models(flambeau)[name][0]().eval())
    own.load_state_dict({k: flambeau.from_numpy(v.detach().numpy().copy()) for k, v in reference.state_dict().items()})
    inputs = [torch.randn(*size) for size in sizes]
    expected = reference(*inputs)
    result = own(*(flambeau.from_numpy(x.numpy()) for x in inputs))
    pairs = [(result[k], expected[k]) for k in expected] if isinstance(expected, dict) else [(result, expected)]
    for a, b in pairs:
        assert torch.allclose(torch.from_numpy(a.detach().numpy()), b.detach(), atol=1e-5)


PROGRAMS = {
    "operators": lambda lib: lambda a, b: (a + b, 1 - a, a / 2, a // b, a % 3, a**b, 2**a, a @ b, -a, +a, ~a, a & b, abs(a), a < b, a[0], a[1:, None]),
    "methods": lambda lib: lambda x: x.relu().view(x.size(0), -1).sum(dim=1, keepdim=True),
    "attributes": lambda lib: lambda x: (x.shape[0], x.dtype, x.T),
    "containers": lambda lib: lambda x: {"a": [x, (x + 1,)], "b": slice(0, 1)},
    "literals": lambda lib: lambda x: lib.full_like(x, float("inf"), dtype=lib.float32, device=lib.device("cpu")),
    "writes": lambda lib: lambda x: x.add_(1).mul_(x),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_nodes_for_small_programs(name):
    graphs = {}
    for library, lib in LIBRARIES.items():
        graphs[library] = rows(importlib.import_module(f"{library}.fx").symbolic_trace(PROGRAMS[name](lib)).graph)
    assert graphs["flambeau"] == graphs["torch"]


def test_same_names_for_wishes():
    wishes = [
        "x",
        "x",
        "x_1",
        "sum",
        "sum",
        "class",
        "layers.0",
        "layers.0",
        "a-b",
        "1x",
        "*args",
        "fooBar",
        "x_1_1",
        "len",
    ]
    names = {}
    for library in LIBRARIES:
        graph = importlib.import_module(f"{library}.fx").Graph()
        names[library] = [graph.placeholder(w).name for w in wishes]
    assert names["flambeau"] == names["torch"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 1 if x > 0 else 2,
        lambda x: [y for y in x],  # noqa: C416
        lambda x: len(x),
        lambda x: range(x),
        lambda x: x in [1],
    ],
)
def test_refused_in_both(function):
    for library in LIBRARIES:
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            importlib.import_module(f"{library}.fx").symbolic_trace(function)


def rewritten(fx, lib):
    def f(x, w):
        a = lib.relu(x) + 1
        b = lib.relu(x) * w
        return lib.relu(a + b) + 1, lib.relu(b)

    module = fx.symbolic_trace(f)
    matches = fx.replace_pattern(module, lambda x: lib.relu(x) + 1, lambda x: lib.sigmoid(x))
    return len(matches), sorted(n.name for n in module.graph.nodes)


def test_replace_pattern_finds_the_same_places():
    assert rewritten(flambeau.fx, flambeau) == rewritten(torch.fx, torch)


def test_split_module_makes_the_same_parts():
    parts = {}
    for library in LIBRARIES:
        fx = importlib.import_module(f"{library}.fx")
        split = importlib.import_module(f"{library}.fx.passes.split_module").split_module
        module = fx.symbolic_trace(lambda x, y: ((x + 1) * y, (x + 1).sin() - y))
        order = {n: i for i, n in enumerate(module.graph.nodes)}
        made = split(module, module, lambda n, order=order: order[n] // 4)
        parts[library] = {name: [n.name for n in child.graph.nodes] for name, child in made.named_children()}
    assert parts["flambeau"] == parts["torch"]


def with_constants(lib):
    constant = lib.ones(3)
    return lambda x: x + constant + lib.zeros(3)


def test_constants_are_in_the_state_dict():
    found = {}
    for library, lib in LIBRARIES.items():
        module = importlib.import_module(f"{library}.fx").symbolic_trace(with_constants(lib))
        found[library] = sorted(module.state_dict())
    assert found["flambeau"] == found["torch"]


def test_text_of_modules():
    def build(lib):
        class Scaled(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = lib.nn.Linear(2, 2)

            def forward(self, x, scale: float = 2.0):
                return {"y": self.linear(x).relu() * scale, "n": x.shape[0]}

        return lib.fx.symbolic_trace(Scaled())

    ours, theirs = build(flambeau), build(torch)
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)
    assert str(ours) == str(theirs)
    assert ours.print_readable(print_output=False) == theirs.print_readable(print_output=False)
