"""export beside PyTorch's: the same signature, the same refusals, the same operators for common layers."""

import importlib

import numpy
import pytest

import flambeau as fl
import flambeau.export

torch = pytest.importorskip("torch")
importlib.import_module("torch.export")


def model(lib):
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = lib.nn.Conv2d(3, 4, 3, padding=1), lib.nn.BatchNorm2d(4)
            self.head = lib.nn.Linear(4, 2)
            self.register_buffer("shift", lib.ones(2), persistent=False)

        def forward(self, x, extra, *, scale=2.0):
            y = lib.nn.functional.relu(self.norm(self.conv(x)))
            y = self.head(lib.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)) + self.shift
            return {"made": y * scale, "rest": (extra["bias"] + 1, None)}

    return Model()


def made(lib, tensor, twin=None):
    net = model(lib).eval()
    if twin is not None:
        net.load_state_dict({k: tensor(v.numpy()) for k, v in twin.state_dict().items()})
    batch = lib.export.Dim("batch", min=2, max=16)
    args = (tensor(numpy.ones((4, 3, 6, 6), "float32")), {"bias": tensor(numpy.ones(4, "float32"))})
    shapes = {"x": {0: batch}, "extra": {"bias": {0: batch}}, "scale": None}
    return net, lib.export.export(net, args, {"scale": 3.0}, dynamic_shapes=shapes)


def test_signature_and_results():
    theirs, their_program = made(torch, torch.from_numpy)
    _, program = made(fl, fl.from_numpy, theirs)
    assert [str(spec) for spec in program.graph_signature.input_specs] == [
        str(spec) for spec in their_program.graph_signature.input_specs
    ]
    for name in ("parameters", "buffers", "non_persistent_buffers", "user_inputs", "inputs_to_parameters"):
        assert getattr(program.graph_signature, name) == getattr(their_program.graph_signature, name), name
    x, bias = numpy.random.default_rng(0).standard_normal((7, 3, 6, 6)).astype("float32"), numpy.ones(7, "float32")
    found = program.module()(fl.from_numpy(x), {"bias": fl.from_numpy(bias)}, scale=3.0)
    wanted = their_program.module()(torch.from_numpy(x), {"bias": torch.from_numpy(bias)}, scale=3.0)
    assert numpy.allclose(found["made"].detach().numpy(), wanted["made"].detach().numpy(), atol=1e-5)
    assert found["rest"][1] is None and list(found) == list(wanted)
    assert [tuple(span) for span in program.range_constraints.values()] == [(2, 16)]


def test_operators_of_layers():
    programs = [made(lib, tensor)[1] for lib, tensor in ((fl, fl.from_numpy), (torch, torch.from_numpy))]
    ours, theirs = (
        [str(n.target).split(".")[1] for n in program.graph.nodes if str(n.target).startswith("aten.")]
        for program in programs
    )
    assert ours == theirs


CASES = {
    "specialized": (lambda lib, x: x + lib.ones(5, 1), "DIM"),
    "too wide": (lambda lib, x: x.view(-1, 2, x.shape[1]) if x.shape[0] > 3 else x.view(-1), "DIM"),
    "automatic": (lambda lib, x: x + lib.ones(6, 1), "AUTO"),
    "fixed": (lambda lib, x: x + lib.ones(6, 1), "DYNAMIC"),
    "holds": (lambda lib, x: x.view(x.shape[0], 2, -1).sum(0), "DIM"),
    "data": (lambda lib, x: x if x.sum() > 0 else -x, None),
    "raises": (lambda lib, x: x @ x, None),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused(name):
    function, dim = CASES[name]

    def attempt(lib, x):
        class Module(lib.nn.Module):
            def forward(self, x):
                return function(lib, x)

        chosen = lib.export.Dim("batch") if dim == "DIM" else getattr(lib.export.Dim, dim or "STATIC")
        try:
            lib.export.export(Module(), (x,), dynamic_shapes=None if dim is None else {"x": {0: chosen}})
        except Exception:
            return "refused"
        return "exported"

    rows = 5 if name == "specialized" else 6
    assert attempt(fl, fl.ones(rows, 4)) == attempt(torch, torch.ones(rows, 4))
