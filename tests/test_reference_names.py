"""Names under which PyTorch's internals and tests reach operators."""

import inspect
import pickle
import types

import pytest

import flambeau as fl


def test_reference_names_are_the_operators():
    import flambeau._refs as refs

    assert refs.sum is fl.sum and refs.nn.functional.relu is fl.nn.functional.relu
    assert refs.special.xlogy is fl.special.xlogy and refs._conversions.bfloat16(fl.ones(1)).dtype is fl.bfloat16
    with pytest.raises(AttributeError):
        getattr(refs, "no_such_operator")  # noqa: B009


def test_functions_are_built_in_functions():
    assert isinstance(fl.add, types.BuiltinFunctionType) and inspect.isbuiltin(fl.mv)
    assert type(fl.add) is not types.BuiltinFunctionType


def test_families_say_their_native_names():
    assert (fl.special.xlogy.__module__, fl.special.xlogy.__name__) == ("torch._C._special", "special_xlogy")
    assert fl._C._linalg.linalg_solve is fl.linalg.solve and fl._C._fft.fft_rfft is fl.fft.rfft
    assert pickle.loads(pickle.dumps(fl.special.xlogy)) is fl.special.xlogy
    traced = fl.fx.symbolic_trace(lambda x: fl.special.xlogy(x, x) + fl.fft.fft(x).real)
    assert traced(fl.ones(2)).tolist() == [2, 0]


def test_hash_tensor_combines_bits():
    assert fl.hash_tensor(fl.tensor([1, 2], dtype=fl.int8)).item() == 3
    assert fl.hash_tensor(fl.tensor([1.0, 2.0])).item() == 0x7FF0000000000000
    x = fl.arange(6).reshape(2, 3)
    assert fl.hash_tensor(x, 1).tolist() == [3, 2] and fl.hash_tensor(x, 1, keepdim=True).shape == (2, 1)


def test_numbers_may_take_the_place_of_tensors():
    assert fl.add(2, 3).item() == 5 and fl.mul(2, fl.ones(2)).tolist() == [2, 2] and fl.true_divide(1, 2).item() == 0.5
    with pytest.raises(TypeError):
        fl.sin(2)
    with pytest.raises(TypeError):
        fl.hstack(fl.ones(3))
