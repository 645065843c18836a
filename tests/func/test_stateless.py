"""Modules as functions of lists of parameters: functorch's older interface."""

import pytest

import flambeau as fl
from flambeau import func, nn


def network():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with fl.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(fl.sin(fl.arange(p.numel()).float() + i).reshape(p.shape))
    return net.eval()


X = fl.cos(fl.arange(15.0)).reshape(5, 3)


def test_parameters_and_buffers_are_arguments():
    net = network()
    f, params, buffers = func.make_functional_with_buffers(net)
    assert isinstance(params, tuple) and len(params) == 6 and len(buffers) == 3
    assert fl.equal(f(params, buffers, X), net(X))
    assert fl.equal(f([p * 0 for p in params], buffers, X), fl.zeros(5, 2))
    gradients = func.grad(lambda p: f(p, buffers, X).square().sum())(params)
    net(X).square().sum().backward()
    for g, p in zip(gradients, net.parameters()):
        assert fl.allclose(g, p.grad)


def test_without_buffers():
    net = nn.Linear(3, 2)
    f, params = func.make_functional(net, disable_autograd_tracking=True)
    assert fl.equal(f(params, X), net(X)) and not params[0].requires_grad and net.weight.requires_grad
    assert params[0].data_ptr() != net.weight.data_ptr() and "(stateless_model): Linear" in repr(f)
    with pytest.raises(RuntimeError, match="buffers"):
        func.make_functional(network())


def test_ensembles():
    nets = [network(), network()]
    f, params, buffers = func.combine_state_for_ensemble(nets)
    out = func.vmap(f, in_dims=(0, 0, None))(params, buffers, X)
    assert fl.allclose(out, fl.stack([net(X) for net in nets]), atol=1e-6)
    assert callable(func.make_fx)
