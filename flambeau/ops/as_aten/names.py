"""Names in `ops.aten` that are no operators of the table: a few answered in Python, others that only have to be there.

Libraries look ATen's operators up when they are imported, to register or recognise them. Attributes of tensors, which
ATen has as operators, work; an operator of ATen that has no counterpart here can be looked up and compared, and says so
when it is called. A name that ATen has not either raises AttributeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_WHY = "this operator of ATen has no counterpart here"

# name -> (arguments -> result); the values are looked up in the package when they are called.
_ANSWERED: dict[str, Callable[..., Any]] = {
    "sym_size": lambda self, dim=None: self.size() if dim is None else self.size(dim),
    "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
    "sym_numel": lambda self: self.numel(),
    "sym_storage_offset": lambda self: self.storage_offset(),
    "sym_is_contiguous": lambda t, *a, **k: t.is_contiguous(),
    "size": lambda t, dim=None: t.size() if dim is None else t.size(dim),
    "stride": lambda t, dim=None: t.stride() if dim is None else t.stride(dim),
    "numel": lambda t: t.numel(),
    "dim": lambda t: t.dim(),
    "storage_offset": lambda t: t.storage_offset(),
    "item": lambda t: t.item(),
    "is_contiguous": lambda t, **k: t.is_contiguous(**k),
    "is_complex": lambda t: t.is_complex(),
    "is_floating_point": lambda t: t.is_floating_point(),
    "is_nonzero": lambda t: t.is_nonzero(),
    "is_pinned": lambda t, *a: t.is_pinned(),
    "is_same_size": lambda t, other: t.size() == other.size(),
    "detach_": lambda t: t.detach_(),
    "requires_grad_": lambda t, requires_grad=True: t.requires_grad_(requires_grad),
    "pin_memory": lambda t, *a: t.pin_memory(),
    "_pin_memory": lambda t, *a: t.pin_memory(),
    "set_": lambda t, *a: t.set_(*a),
    "_unsafe_view": lambda t, size: t.view(size),
    "_reshape_alias": lambda t, size, stride: t.as_strided(size, stride),
    "lift": lambda t: t,
    "lift_fresh": lambda t: t,
    "lift_fresh_copy": lambda t: t.clone(),
    "record_stream": lambda t, stream: None,
    "sym_constrain_range": lambda size, *, min=None, max=None: _check_range(size, min, max),
    "sym_constrain_range_for_size": lambda size, *, min=None, max=None: _check_range(size, min or 0, max),
    "_assert_async": lambda self, assert_msg=None: None if bool(self) else _fail(*filter(None, [assert_msg])),
    "_assert_scalar": lambda self, assert_msg: _package()._check(_as_condition(self), lambda: assert_msg),
    "unique_consecutive": lambda t, *a, **k: _runs(t, *a, **k),
    "cross_entropy_loss": lambda *a, **k: _losses("cross_entropy", *a, **k),
    "nll_loss_nd": lambda *a, **k: _losses("nll_loss", *a, **k),
    "_foreach_zero": lambda tensors: [_package().zeros_like(t) for t in tensors],
    "copy": lambda t, source, non_blocking=False: source.expand_as(t).to(t.dtype).clone(),
    "zero": lambda t: _package().zeros_like(t),
    "resize": lambda t, size, **k: t.clone().resize_(size, **k),
    "normal_functional": lambda t, mean=0.0, std=1.0, generator=None: t.clone().normal_(mean, std, generator=generator),
}

_ABSENT = frozenset(
    (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d _addmm_activation _aminmax _assert_tensor_metadata _cdist_forward "
        "_coalesce _coalesced _coalesced_ _conj_physical _convolution_mode _copy_from _copy_from_and_resize "
        "_convert_weight_to_int4pack _cslt_compress _cslt_sparse_mm _cudnn_attention_forward _cudnn_rnn "
        "_dyn_quant_matmul_4bit _dyn_quant_pack_4bit_weight _efficient_attention_backward "
        "_efficient_attention_forward _efficientzerotensor _flash_attention_forward _functional_sym_constrain_range "
        "_functional_sym_constrain_range_for_size _functional_assert_async _fused_adagrad _fused_adam _fused_adamw "
        "_fused_dropout _fused_moving_avg_obs_fq_helper _fused_sdp_choice _fused_sgd _grouped_mm "
        "_has_same_storage_numel _index_put_impl _index_put_impl_ _jagged_to_padded_dense_forward _lazy_clone "
        "_linalg_eigvals _masked_softmax _mixed_dtypes_linear _native_batch_norm_legit "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_with_update "
        "_batch_norm_no_update _native_multi_head_attention _nested_from_padded_tensor _nested_get_jagged_dummy "
        "_nested_get_lengths _nested_get_offsets _nested_get_ragged_idx _nested_get_values _nested_tensor_from_mask "
        "_nested_tensor_from_tensor_list _nested_view_from_buffer _nested_view_from_jagged "
        "_padded_dense_to_jagged_forward _pdist_forward _print _prelu_kernel_backward _resize_output_ _safe_softmax "
        "_scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_fused_attention_overrideable _scaled_grouped_mm _sparse_addmm _sparse_coo_tensor_unsafe "
        "_sparse_coo_tensor_with_dims_and_tensors _sparse_csr_tensor_unsafe _sparse_compressed_tensor_unsafe "
        "_sparse_mm_reduce_impl _sparse_semi_structured_addmm _sparse_semi_structured_linear "
        "_sparse_semi_structured_mm _sparse_semi_structured_apply _sparse_semi_structured_apply_dense "
        "_sparse_semi_structured_tile _thnn_fused_gru_cell _thnn_fused_lstm_cell _to_dense _to_sparse _to_sparse_csr "
        "_transformer_encoder_layer_fwd _trilinear _unsafe_index_put _unsafe_masked_index "
        "_unsafe_masked_index_put_accumulate _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa "
        "_weight_int4pack_mm _weight_norm_interface _weight_norm_interface_backward adaptive_max_pool2d "
        "adaptive_max_pool3d cudnn_batch_norm cudnn_convolution dequantize embedding_renorm empty_quantized "
        "exponential geometric uniform log_normal random cauchy fractional_max_pool2d fractional_max_pool3d gelu_ "
        "hspmm int_repr masked_select_backward max_unpool2d max_unpool3d miopen_batch_norm mkldnn_convolution "
        "mkldnn_rnn_layer nll_loss2d_forward nll_loss_forward nonzero_numpy numpy_T q_scale q_zero_point qscheme "
        "quantize_per_channel quantize_per_tensor quantized_gru quantized_lstm rrelu_with_noise "
        "rrelu_with_noise_functional slice_inverse sparse_coo_tensor sparse_csr_tensor sparse_resize_ "
        "sparse_resize_and_clear_ to_mkldnn to_padded_tensor to_sparse to_sparse_csr unique_dim_consecutive"
    ).split()
)
# ATen has an operator of its own for the backward of each of these.
_WITH_BACKWARD = frozenset(
    (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d _cdist _ctc_loss _embedding_bag adaptive_max_pool2d "
        "adaptive_max_pool3d avg_pool2d avg_pool3d binary_cross_entropy convolution elu embedding embedding_dense gelu "
        "glu grid_sampler_2d grid_sampler_3d hardsigmoid hardswish hardtanh huber_loss leaky_relu log_sigmoid logit "
        "max_pool2d_with_indices max_pool3d_with_indices mish mse_loss native_batch_norm native_dropout "
        "native_group_norm native_layer_norm _fused_rms_norm nll_loss nll_loss2d reflection_pad1d reflection_pad2d "
        "replication_pad1d replication_pad2d rrelu_with_noise select sigmoid silu slice smooth_l1_loss soft_margin_loss "
        "softplus softshrink tanh threshold unfold upsample_bicubic2d upsample_bilinear2d upsample_nearest2d "
        "upsample_nearest3d upsample_trilinear3d value_selecting_reduction index_select diagonal cumprod linear matmul"
    ).split()
)


def _package() -> Any:
    import flambeau

    return flambeau


def _runs(t: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> tuple[Any, ...]:
    """Three results always, of which those that are not asked for are empty."""
    values, inverse, counts = _package().unique_consecutive(t, True, True, dim)
    nothing = counts[:0]
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing


def _fail(*message: Any) -> None:
    raise RuntimeError(str(message[0]) if message else "[_assert_async] expected a value that is not zero, got zero")


def _as_condition(value: Any) -> Any:
    """A boolean, or a condition on sizes, of what is given as one."""
    return value if isinstance(value, _package().SymBool) else bool(value)


def _check_range(size: Any, least: Any, most: Any) -> None:
    check = _package()._check
    if least is not None:
        check(
            size >= least, lambda: f"[sym_constrain_range] expected at least {least}, got {size}: Invalid value range"
        )
    if most is not None:
        check(size <= most, lambda: f"[sym_constrain_range] expected at most {most}, got {size}: Invalid value range")


def _losses(
    name: str, input: Any, target: Any, weight: Any = None, reduction: int = 1, *rest: Any, **named: Any
) -> Any:
    """ATen numbers the reductions and puts them before the other options."""
    from flambeau.nn import functional

    for key, value in zip(("ignore_index", "label_smoothing"), rest):
        named[key] = value
    kind = reduction if isinstance(reduction, str) else ("none", "mean", "sum")[reduction]
    return getattr(functional, name)(input, target, weight, reduction=kind, **named)


class Overload:
    """An overload of a packet below; there is one object for each."""

    def __init__(self, packet: Packet, overload: str) -> None:
        self.overloadpacket, self._overloadname, self.namespace = packet, overload, "aten"
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__module__ = packet.__module__
        self.tags: list[Any] = []
        if packet.__dict__.get("__absent__"):
            self.__absent__ = packet.__absent__

    def name(self) -> str:
        return f"aten::{self.overloadpacket.__name__}" + (
            "" if self._overloadname == "default" else f".{self._overloadname}"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = _core(f"{self.overloadpacket.__name__}.{self._overloadname}")
        return self.overloadpacket(*args, **kwargs) if own is None else own(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"


class Packet:
    """Such an operator with all its overloads."""

    def __init__(self, name: str, function: Callable[..., Any] | None, module: str = "torch._ops.aten") -> None:
        self.__name__ = name
        self.__module__ = module  # where printed programs find it; elsewhere they hold the object
        self._qualified_op_name = f"aten::{name}"
        self._function = function
        if function is None:
            self.__absent__ = f"flambeau has no torch.ops.aten.{name} yet: {_WHY}"

    def overloads(self) -> list[str]:
        return ["default"]

    def __getattr__(self, overload: str) -> Overload:
        if overload.startswith("_"):
            raise AttributeError(overload)
        self.__dict__[overload] = operator = Overload(self, overload)
        return operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function or _core(self.__name__) or _core(f"{self.__name__}.default")
        if function is None:
            raise NotImplementedError(self.__absent__)
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"


def parameter_names(target: Any) -> list[str] | None:
    """The names of the parameters of such an operator; None of other functions."""
    function = target.overloadpacket._function if isinstance(target, Overload) else None
    return None if function is None else list(inspect.signature(function).parameters)


def _core(name: str) -> Callable[..., Any] | None:
    """The definition of an operator that only ATen has, if there is one."""
    from flambeau.ops.as_aten import core

    return core.table().get(name)


def find(name: str) -> Packet | None:
    """The packet of that name, None if ATen has none either."""
    if name in _ANSWERED:
        return Packet(name, _ANSWERED[name])
    from flambeau.ops.as_aten import beside_records

    if name in beside_records.FUNCTIONS:
        return Packet(name, beside_records.FUNCTIONS[name])
    known = name in _ABSENT or (name.endswith("_backward") and name.removesuffix("_backward") in _WITH_BACKWARD)
    return Packet(name, None) if known else None
