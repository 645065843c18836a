"""Samples of views."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Constant, Make, call, samples


@samples("view", "reshape", "view_copy")
def view(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [3, 2])
    yield call(make(2, 3), [-1])
    yield call(make(), [1, 1])
    yield call(make(0, 3), [3, 0])


@samples("permute", "permute_copy")
def permute(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 2), [2, 0, 1])
    yield call(make.strided(2, 3), [-1, 0])


@samples("expand", "broadcast_to", "expand_copy")
def expand(make: Make) -> Iterator[Call]:
    yield call(make(1, 3), [4, 3])
    yield call(make(3), [2, 2, 3])
    yield call(make(), [2])


@samples("unflatten")
def unflatten(make: Make) -> Iterator[Call]:
    yield call(make(2, 6), 1, [2, 3])
    yield call(make(4), 0, [2, -1])


@samples("view_as_real", "view_as_real_copy", "imag", "_conj")
def of_complex(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.complex(make.real(2, 3), make.real(2, 3)))


@samples("view_as_complex", "view_as_complex_copy")
def as_complex(make: Make) -> Iterator[Call]:
    yield call(make.real(2, 3, 2))


@samples("view.dtype", "view_copy.dtype")
def view_dtype(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(make(2, 4), fl.int64)


@samples("as_strided", "as_strided_copy", "as_strided_")
def as_strided(make: Make) -> Iterator[Call]:
    yield call(make(6), [2, 2], [1, 2], 1)
    yield call(make(5), [3, 3], [1, 1])  # elements that are read more than once
    yield call(make(2, 3), [], [], 4)


@samples("select", "select_copy")
def select(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, -1)
    yield call(make.strided(2, 3), 0, 1)


@samples("slice", "slice_copy")
def slice_(make: Make) -> Iterator[Call]:
    yield call(make(2, 5), 1, 1, 5, 2)
    yield call(make.strided(4, 2), 0, None, -1)


@samples("unfold", "unfold_copy")
def unfold(make: Make) -> Iterator[Call]:
    yield call(make(5), 0, 3, 1)
    yield call(make(2, 5), 1, 2, 2)
    yield call(make(), 0, 1, 1)


@samples("diagonal", "diagonal_copy")
def diagonal(make: Make) -> Iterator[Call]:
    yield call(make(3, 4))
    yield call(make(2, 3, 3), 1, 1, 2)
    yield call(make.strided(3, 3), -1)


@samples("movedim.intlist", "moveaxis.intlist")
def movedim(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 2), [0, 1], [2, 0])


@samples("movedim.int", "moveaxis.int", "transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0, 1)
    yield call(make(2, 3, 2), 0, -1)


@samples("transpose_", "swapaxes_", "swapdims_")
def transpose_in_place(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0, 1)


@samples("squeeze.dim", "squeeze_copy.dim", "squeeze_.dim")
def squeeze(make: Make) -> Iterator[Call]:
    yield call(make(2, 1, 3), 1)
    yield call(make(2, 3), 0)


@samples("squeeze", "squeeze_copy", "squeeze_")
def squeeze_all(make: Make) -> Iterator[Call]:
    yield call(make(2, 1, 3))
    yield call(make(1, 1))


@samples("squeeze.dims", "squeeze_copy.dims", "squeeze_.dims")
def squeeze_dims(make: Make) -> Iterator[Call]:
    yield call(make(2, 1, 1), [0, 1])


@samples("_select_backward")
def select_backward(make: Make) -> Iterator[Call]:
    yield call(make(2), [2, 3], 1, 2)


@samples("_slice_backward")
def slice_backward(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), [2, 5], 1, 1, 5, 2)


@samples("_diagonal_backward")
def diagonal_backward(make: Make) -> Iterator[Call]:
    yield call(make(3), [3, 4], 1, 0, 1)


@samples("t", "t_", "t_copy", "_numpy_T")
def t(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(3))
    yield call(make())


@samples("adjoint", "_H", "_mH", "_mT")
def adjoint(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))


@samples("real")
def real(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))


@samples("split.Tensor", "unsafe_split.Tensor", "split_copy.Tensor")
def split(make: Make) -> Iterator[Call]:
    yield call(make(5), 2)
    yield call(make.strided(2, 3), 1, 1)


@samples("split.sizes", "split_with_sizes", "unsafe_split_with_sizes", "split_with_sizes_copy")
def split_sizes(make: Make) -> Iterator[Call]:
    yield call(make(5), [2, 0, 3])
    yield call(make.strided(2, 3), [1, 2], -1)


@samples("split.function")
def split_function(make: Make) -> Iterator[Call]:
    yield call(make(5), 2)
    yield call(make(5), [2, 3])


@samples("chunk", "unsafe_chunk")
def chunk(make: Make) -> Iterator[Call]:
    yield call(make(5), 2)
    yield call(make.strided(2, 3), 3, 1)


@samples("tensor_split.tensor_indices_or_sections")
def tensor_split_tensor(make: Make) -> Iterator[Call]:
    yield call(make(5), make.index([1, 3]).cpu())
    yield call(make(5), make.index(2).cpu())


@samples("tensor_split.sections", "tensor_split.indices_or_sections")
def tensor_split(make: Make) -> Iterator[Call]:
    yield call(make(5), 2)


@samples("tensor_split.indices")
def tensor_split_indices(make: Make) -> Iterator[Call]:
    yield call(make(5), [1, 3])


@samples("hsplit.int", "vsplit.int")
def hsplit(make: Make) -> Iterator[Call]:
    yield call(make(2, 2), 2)


@samples("hsplit.array", "vsplit.array")
def hsplit_at(make: Make) -> Iterator[Call]:
    yield call(make(3, 3), [1])


@samples("dsplit.int")
def dsplit(make: Make) -> Iterator[Call]:
    yield call(make(2, 1, 4), 2)


@samples("dsplit.array")
def dsplit_at(make: Make) -> Iterator[Call]:
    yield call(make(2, 1, 4), [1, 3])


@samples("unbind.int", "unbind_copy.int")
def unbind(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make.strided(3, 2))


@samples("unbind_copy.int_out")
def unbind_into(make: Make) -> Iterator[Call]:
    yield call(Constant(make(2, 3)), 0, out=[Constant(make(3)), Constant(make(1, 3))])


@samples("split_copy.Tensor_out")
def split_into(make: Make) -> Iterator[Call]:
    yield call(Constant(make(2, 3)), 1, 0, out=[Constant(make(1, 3)), Constant(make(3))])


@samples("split_with_sizes_copy.out")
def split_sizes_into(make: Make) -> Iterator[Call]:
    yield call(Constant(make(2, 3)), [1, 2], 1, out=[Constant(make(2, 1)), Constant(make(3))])


@samples("narrow", "narrow_copy")
def narrow(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), 1, 1, 2)


@samples("narrow.Tensor")
def narrow_tensor(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), 1, make.index(1), 2)


@samples("broadcast_tensors")
def broadcast_tensors(make: Make) -> Iterator[Call]:
    yield call([make(2, 1), make(3)])
