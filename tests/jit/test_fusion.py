"""Programs that have run a few times are compiled: same results, gradients, other sizes, modes and errors."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import build
from flambeau.jit import _fusion

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="compiled programs need a C++ compiler")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(4, 8), nn.Linear(8, 2), nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.norm(self.first(x))
        if x.size(0) > 5:
            y = y * 2
        return self.last(self.drop(y.tanh()) + 1)


def warm(program, *args):
    for _ in range(_fusion.WARM_UP + 1):
        program(*args)
    return program


def region_of(module):
    return module._method("forward").function._region


@pytest.mark.parametrize("make", [fl.jit.script, lambda m: fl.jit.trace(m, fl.ones(3, 4))])
def test_modules_are_compiled_after_some_calls(make):
    model = Net().eval()
    module = warm(make(model), fl.ones(3, 4))
    assert region_of(module)
    traced = isinstance(module, fl.jit.TopLevelTracedModule)
    for rows in (3, 4) if traced else (3, 7):
        x = fl.randn(rows, 4, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        result, expected = module(x), model(other)
        fl.testing.assert_close(result, expected)
        result.square().sum().backward()
        expected.square().sum().backward()
        fl.testing.assert_close(x.grad, other.grad)


def test_parameters_are_those_of_the_module():
    model = Net().eval()
    module = warm(fl.jit.script(model), fl.ones(3, 4))
    with fl.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.5)
    fl.testing.assert_close(module(fl.ones(3, 4)), model(fl.ones(3, 4)))
    module.double()
    assert module(fl.ones(3, 4).double()).dtype == fl.float64


def test_training_with_dropout_is_not_compiled():
    module = warm(fl.jit.script(Net().eval()), fl.ones(3, 4))
    module.train()
    fl.manual_seed(0)
    first = module(fl.ones(3, 4))
    module.eval()
    module.train()
    fl.manual_seed(0)
    with fl.jit.optimized_execution(False):
        fl.testing.assert_close(module(fl.ones(3, 4)).shape, first.shape)
    assert module.norm.num_batches_tracked == 2


def test_branches_on_tensors_are_taken_at_run_time():
    @fl.jit.script
    def choose(x):
        if bool(x.sum() > 0):
            return (x * 2).tanh().exp()
        return (x * 3).tanh().sin()

    warm(choose, fl.ones(2))
    fl.testing.assert_close(choose(-fl.ones(2)), (-fl.ones(2) * 3).tanh().sin())
    assert len(choose.function._region.parts) == 2


def test_errors_show_the_line():
    @fl.jit.script
    def product(x, y):
        return (x @ y).tanh().exp() + 1

    warm(product, fl.ones(2, 3), fl.ones(3, 2))
    with pytest.raises(RuntimeError, match="failed in the TorchScript interpreter"):
        product(fl.ones(2, 3), fl.ones(2, 3))
    assert product.function._region, "one wrong call does not end compiling"


def test_a_failure_of_the_compiler_is_reported_once(monkeypatch):
    @fl.jit.script
    def chain(x):
        return (x * 2).tanh().exp() + 1

    for _ in range(_fusion.WARM_UP):
        chain(fl.ones(2))

    def broken(*args, **kwargs):
        def fail(*inputs):
            raise OSError("no space")

        return fail

    monkeypatch.setattr(fl, "compile", broken)
    with pytest.warns(RuntimeWarning, match=r"the script \S*chain could not be compiled: OSError: no space"):
        fl.testing.assert_close(chain(fl.ones(2)), (fl.ones(2) * 2).tanh().exp() + 1)
    assert chain.function._region is False


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: fl.Tensor, steps: int):
        for i in range(steps):
            h = self.norm(self.first(x)).relu().view(x.size(0), -1)
            if h.sum() > 0:
                x = x + self.second(h).tanh() * 2
            else:
                x = x - self.second(h).sigmoid() * 3 + i
        return x, x.size(0) * 2


def parts(scripted):
    return scripted.__dict__["_script_type"].methods["forward"]._region.parts


def test_lines_between_branches_on_tensors_are_compiled():
    model = Gate()
    scripted = fl.jit.script(model)
    for size in (4, 4, 4, 4, 4, 4, 4, 4, 6, 3):
        x = fl.randn(size, 8)
        actual, expected = scripted(x, 3), model(x, 3)
        fl.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]
    assert len(parts(scripted)) == 3 and any(part.compiled is not None for part in parts(scripted))


def test_gradients_flow_through_compiled_parts():
    model = Gate()
    scripted = fl.jit.script(model)
    for _ in range(9):
        x = fl.randn(4, 8, requires_grad=True)
        gradients = [fl.autograd.grad(f(x, 2)[0].sum(), [x, *model.parameters()]) for f in (model, scripted)]
    for expected, actual in zip(*gradients, strict=True):
        fl.testing.assert_close(actual, expected)


def test_errors_of_compiled_parts_show_the_line():
    scripted = fl.jit.script(Gate())
    for _ in range(9):
        scripted(fl.randn(4, 8), 2)
    with pytest.raises(RuntimeError, match=r"self\.first\(x\)"):
        scripted(fl.randn(4, 7), 2)
