"""What belongs to sparse, quantized or symbolic values is refused, or works on what a dense eager build has."""

import pytest

import flambeau as fl


@pytest.mark.parametrize("name", ["coalesce", "indices", "values", "crow_indices", "ccol_indices"])
def test_sparse_methods_refuse_dense(name):
    with pytest.raises(RuntimeError, match="strided"):
        getattr(fl.ones(2), name)()


@pytest.mark.parametrize("name", ["q_scale", "int_repr", "_nnz"])
def test_quantized_methods_refuse_dense(name):
    with pytest.raises(NotImplementedError, match="strided"):
        getattr(fl.ones(2), name)()


def test_symbols():
    assert not isinstance(fl.ones(2).shape[0], fl.SymInt)
    with pytest.raises(TypeError):
        fl.SymInt(3)
    assert fl.sym_max(2, 1.0) == 2.0 and isinstance(fl.sym_max(2, 1.0), float)
    assert fl.sym_int(-2.7) == -2 and fl.sym_sum([1, 2, 3]) == 6 and fl.sym_ite(False, 1, 2) == 2


def test_out_that_must_lie_apart():
    x = fl.arange(4.0)
    with pytest.raises(RuntimeError):
        fl.kthvalue(x, 2, out=(x, fl.empty((), dtype=fl.int64)))
    values, indices = fl.empty(0), fl.empty(0, dtype=fl.int64)
    fl.kthvalue(x, 2, out=(values, indices))
    assert values.item() == 1.0 and indices.item() == 1
    with pytest.raises(RuntimeError):
        fl.complex(x, x, out=fl.empty(4, dtype=fl.complex128))
    with pytest.raises(RuntimeError):
        fl.aminmax(x, dim=0, out=(fl.empty(()), fl.empty((), dtype=fl.float64)))
    with pytest.raises(RuntimeError, match="overlap"):
        fl.aminmax(x.reshape(2, 2), dim=0, out=(x[1:3], fl.empty(2)))
    low, high = fl.aminmax(x, out=(fl.empty(0), fl.empty(0)))
    assert (low.item(), high.item()) == (0.0, 3.0)
    assert fl.complex(x, x, out=fl.empty(0, dtype=fl.complex64)).tolist() == [0j, 1 + 1j, 2 + 2j, 3 + 3j]


def test_streams_need_an_accelerator(monkeypatch):
    monkeypatch.setattr(fl.accelerator, "_outside", lambda: None)  # another test may have registered one
    assert issubclass(fl.cuda.Stream, fl.Stream) and issubclass(fl.cuda.Event, fl.Event)
    for kind in (fl.Stream, fl.Event):
        with pytest.raises(RuntimeError, match="accelerator"):
            kind()


def test_products_named_for_sparse_matrices():
    a = fl.arange(6.0).reshape(2, 3)
    assert fl.equal(fl.spmm(a, a.t()), a @ a.t())


@pytest.mark.parametrize("name", ["lstsq", "symeig", "eig", "solve"])
def test_absent_functions_say_so(name):
    with pytest.raises(RuntimeError, match="expected"):
        getattr(fl.ones(2, 2), name)()


def test_out_on_another_device():
    x, where, index = fl.arange(4.0), fl.empty(0, dtype=fl.int64), fl.tensor([1])
    meta = fl.empty(0, device="meta")
    for call in (
        lambda: fl.kthvalue(x, 1, out=(meta, where)),
        lambda: fl.aminmax(x, out=(meta, meta)),
        lambda: fl.complex(x, x, out=fl.empty(0, dtype=fl.complex64, device="meta")),
        lambda: fl.take(x, index, out=meta),
        lambda: fl.gather(x, 0, index, out=meta),
    ):
        with pytest.raises(RuntimeError):
            call()
