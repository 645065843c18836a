"""Results of einsum lie in memory as PyTorch's do, so that programs can view them."""

import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402

SIZES = {
    "b": 2,
    "i": 3,
    "j": 4,
    "k": 5,
    "h": 2,
    "w": 3,
    "c": 4,
    "d": 6,
    "n": 2,
    "t": 4,
    "e": 2,
    "f": 3,
    "o": 5,
    "l": 3,
    "q": 3,
}
EQUATIONS = (
    "ij,jk->ik ij,jk->ki bij,bjk->bki ij,kj->ki nhwc,kc->nkhw bld,dn->bldn btc,co->tbo btc,co->bot i,j->ji bi,bj->bji "
    "ijk->ki bedf,bte->btdf bhqk,bkhd->bqhd bqhd,bkhd->bhqk ij,bjk->bik ij,ij->ji bij->bji"
).split()


@pytest.mark.parametrize("equation", EQUATIONS)
def test_strides(equation):
    shapes = [[SIZES[letter] for letter in part] for part in equation.partition("->")[0].split(",")]
    theirs = [torch.arange(float(torch.Size(shape).numel())).reshape(shape) for shape in shapes]
    ours = [fl.from_numpy(t.numpy()) for t in theirs]
    want, got = torch.einsum(equation, *theirs), fl.einsum(equation, *ours)
    assert got.stride() == want.stride() and got.tolist() == want.tolist()
