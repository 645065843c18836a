"""Tensors of the two libraries in one process: conversions share memory, mixing them by mistake is one clear error."""

from __future__ import annotations

import pytest
import torch

import flambeau as fl

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_conversions_share_memory(name):
    theirs = torch.ones(3, 2).to(getattr(torch, name)).t()
    ours = fl.from_torch(theirs)
    assert ours.dtype is getattr(fl, name)
    assert ours.data_ptr() == theirs.data_ptr() and ours.stride() == theirs.stride()
    assert ours.to_torch().data_ptr() == theirs.data_ptr() and ours.to_torch().dtype is theirs.dtype


def test_conversions_keep_whether_a_gradient_is_required():
    theirs = torch.ones(2, requires_grad=True)
    assert fl.from_torch(theirs).requires_grad and not fl.from_torch(theirs.detach()).requires_grad
    assert fl.from_torch(theirs * 2).is_leaf
    assert fl.ones(2, requires_grad=True).to_torch().requires_grad


def test_conjugates_are_computed():
    assert fl.from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert fl.tensor([1 + 2j]).conj().to_torch().tolist() == [1 - 2j]


def test_from_torch_refuses_other_things():
    with pytest.raises(TypeError, match=r"\[from_torch\] expected a torch.Tensor, got list"):
        fl.from_torch([1])


@pytest.mark.parametrize("make", [fl.tensor, fl.as_tensor, fl.asarray])
def test_factories_take_tensors_of_pytorch(make):
    assert make(torch.tensor([1, 2]), dtype=fl.float64).tolist() == [1.0, 2.0]


OURS, THEIRS = fl.ones(2), torch.ones(2)
MIXED = {
    "ours + theirs": lambda: OURS + THEIRS,
    "theirs + ours": lambda: THEIRS + OURS,
    "our function": lambda: fl.add(OURS, THEIRS),
    "their function": lambda: torch.add(THEIRS, OURS),
    "their function of ours": lambda: torch.sin(OURS),
    "their Python function": lambda: torch.einsum("i,i", OURS, OURS),
    "their list": lambda: torch.stack([OURS, OURS]),
    "our list": lambda: fl.cat([OURS, THEIRS]),
    "their method": lambda: THEIRS.mul_(OURS),
    "our method": lambda: OURS.copy_(THEIRS),
    "our layer": lambda: fl.nn.Linear(2, 2)(THEIRS),
    "their layer": lambda: torch.nn.Linear(2, 2)(OURS),
    "our comparison": lambda: OURS == THEIRS,
    "our index": lambda: OURS[torch.tensor([0])],
    "their index": lambda: THEIRS[fl.tensor([0])],
    "our assignment": lambda: OURS.__setitem__(0, THEIRS[0]),
    "our compiled function": lambda: fl.compile(lambda x: x + THEIRS)(OURS),
    "our parameter": lambda: fl.nn.Parameter(THEIRS),
    "our optimizer": lambda: fl.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1),
    "our batch": lambda: fl.utils.data.default_collate([THEIRS, THEIRS]),
}


@pytest.mark.parametrize("case", MIXED)
def test_mixing_is_one_clear_error(case):
    with pytest.raises(TypeError, match=r"flambeau\.from_torch"):
        MIXED[case]()


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fl.nn.Sequential(torch.nn.ReLU()), "a ReLU of PyTorch: make the layer of flambeau"),
        (lambda: fl.ones(2, dtype=torch.float64), "a dtype of PyTorch; write flambeau's"),
        (lambda: fl.ones(2, device=torch.device("cpu")), "a device of PyTorch; write its name"),
    ],
)
def test_other_things_of_pytorch_are_named(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_optimizers_take_the_state_of_pytorch():
    theirs, ours = torch.nn.Linear(2, 3), fl.nn.Linear(2, 3)
    ours.load_state_dict(theirs.state_dict())
    before, after = torch.optim.Adam(theirs.parameters()), fl.optim.Adam(ours.parameters())
    theirs(torch.ones(1, 2)).sum().backward()
    before.step()
    ours.load_state_dict(theirs.state_dict())
    after.load_state_dict(before.state_dict())
    for model, optimizer, library in ((theirs, before, torch), (ours, after, fl)):
        optimizer.zero_grad()
        model(library.ones(1, 2)).square().sum().backward()
        optimizer.step()
    assert ours.weight.flatten().tolist() == pytest.approx(theirs.weight.flatten().tolist(), abs=1e-6)


def test_subclasses_of_ours_work_beside_pytorch():
    class Marked(fl.Tensor):
        pass

    marked = fl.ones(2).as_subclass(Marked)
    for result in (marked.sin(), marked.T, marked[0], marked + 1, fl.stack([marked, marked]), marked.real):
        assert type(result) is Marked
    assert marked.shape == (2,) and not marked.requires_grad


def test_load_state_dict_takes_tensors_of_pytorch():
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    ours = fl.nn.Sequential(fl.nn.Linear(2, 3), fl.nn.BatchNorm1d(3))
    assert str(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    assert ours[0].weight.tolist() == theirs[0].weight.tolist()
    assert ours[0].weight.data_ptr() != theirs[0].weight.data_ptr()
