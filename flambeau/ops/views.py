"""Views and the ops that reshape: windows on the same storage, written natively once for every device."""

from __future__ import annotations

from flambeau.ops.record import native

VIEW = ("view",)

native("view(Tensor self, int[] size) -> Tensor", tags=VIEW, function=False)
native("view.dtype(Tensor self, dtype dtype) -> Tensor", tags=VIEW, function=False)
native("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", tags=VIEW)
native("select(Tensor self, int dim, int index) -> Tensor", tags=VIEW)
native("slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor", tags=VIEW, module="_ops", method=False)
native("transpose(Tensor self, int dim0, int dim1) -> Tensor", tags=VIEW)
native("permute(Tensor self, int[] dims) -> Tensor", tags=VIEW)
native("expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor", tags=VIEW, function=False)
native("unsqueeze(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze(Tensor self) -> Tensor", tags=VIEW)
native("squeeze.dim(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze.dims(Tensor self, int[] dim) -> Tensor", tags=VIEW)
native("alias(Tensor self) -> Tensor", tags=VIEW, module="_ops", method=False)
native("unfold(Tensor self, int dimension, int size, int step) -> Tensor", tags=VIEW, function=False)
native("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", tags=VIEW)
