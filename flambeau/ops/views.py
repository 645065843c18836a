"""Views and the ops that reshape: windows on the same storage, written natively once for every device.

Those that may have to copy, or are one of the others in disguise, are native decompositions (csrc/core/reshape.cpp).
"""

from __future__ import annotations

from flambeau.ops.record import native

VIEW = ("view",)

native("view(Tensor self, int[] size) -> Tensor", tags=VIEW, function=False)
native("view.dtype(Tensor self, dtype dtype) -> Tensor", tags=VIEW, function=False)
native("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", tags=VIEW)
native("select(Tensor self, int dim, int index) -> Tensor", tags=VIEW)
native(
    "slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    tags=VIEW,
    module="_ops",
    method=False,
)
native("transpose(Tensor self, int dim0, int dim1) -> Tensor", tags=VIEW)
native("permute(Tensor self, int[] dims) -> Tensor", tags=VIEW)
native("expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor", tags=VIEW, function=False)
native("unsqueeze(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze(Tensor self) -> Tensor", tags=VIEW)
native("squeeze.dim(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze.dims(Tensor self, int[] dim) -> Tensor", tags=VIEW)
native("alias(Tensor self) -> Tensor", tags=VIEW, module="_ops", method=False)
native("detach(Tensor self) -> Tensor", tags=("view", "no_grad"))
native("unfold(Tensor self, int dimension, int size, int step) -> Tensor", tags=VIEW, function=False)
native("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", tags=VIEW)
native("view_as_real(Tensor self) -> Tensor", tags=VIEW, method=False)
native("view_as_complex(Tensor self) -> Tensor", tags=VIEW, method=False)

# The same on the tensor itself.
native("as_strided_(Tensor(!) self, int[] size, int[] stride, int? storage_offset=None) -> Tensor")
native("transpose_(Tensor(!) self, int dim0, int dim1) -> Tensor", function=False)
native("unsqueeze_(Tensor(!) self, int dim) -> Tensor", function=False)
native("squeeze_(Tensor(!) self) -> Tensor", function=False)
native("squeeze_.dim(Tensor(!) self, int dim) -> Tensor", function=False)
native("squeeze_.dims(Tensor(!) self, int[] dim) -> Tensor", function=False)
native("t_(Tensor(!) self) -> Tensor", function=False)
native("swapaxes_(Tensor(!) self, int axis0, int axis1) -> Tensor", function=False)
native("swapdims_(Tensor(!) self, int dim0, int dim1) -> Tensor", function=False)

native("reshape(Tensor self, int[] shape) -> Tensor")
native("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor")
native("unflatten(Tensor self, int dim, int[] sizes) -> Tensor")
native("ravel(Tensor self) -> Tensor")
native("reshape_as(Tensor self, Tensor other) -> Tensor", function=False)
native("view_as(Tensor self, Tensor other) -> Tensor", function=False)
native("expand_as(Tensor self, Tensor other) -> Tensor", function=False)
native("t(Tensor self) -> Tensor")
native("adjoint(Tensor self) -> Tensor")
native("swapaxes(Tensor self, int axis0, int axis1) -> Tensor")
native("swapdims(Tensor self, int dim0, int dim1) -> Tensor")
native("movedim.int(Tensor self, int source, int destination) -> Tensor")
native("movedim.intlist(Tensor self, int[] source, int[] destination) -> Tensor")
native("moveaxis.int(Tensor self, int source, int destination) -> Tensor")
native("moveaxis.intlist(Tensor self, int[] source, int[] destination) -> Tensor")
native("real(Tensor self) -> Tensor", method=False)
native("imag(Tensor self) -> Tensor", method=False)
native("resolve_conj(Tensor self) -> Tensor")
native("resolve_neg(Tensor self) -> Tensor")
native("conj(Tensor self) -> Tensor")

# Behind the attributes of the same names.
native("_numpy_T(Tensor self) -> Tensor")
native("_mT(Tensor self) -> Tensor")
native("_H(Tensor self) -> Tensor")
native("_mH(Tensor self) -> Tensor")
