"""Calls of our operators as ATen writes them: the overload, and the arguments by ATen's names.

Most operators have the same name and the same arguments in both libraries. A record may join overloads that ATen keeps
apart (`mean` with and without dimensions, a tensor or a number as the second operand), and some private operators stand
for public ones of ATen. The functions here say which overload a call is there; what reads and writes programs of PyTorch
asks `aten_call`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flambeau._ops import OpOverload


class AtenCall(NamedTuple):
    """An overload of ATen (`mean.dim`) and its arguments by name, in the order of its schema."""

    name: str
    args: dict[str, Any]
    kwargs: dict[str, Any]


class NoCounterpart(NotImplementedError):
    """ATen has no operator for this call."""


Arguments = dict[str, Any]
Translation = Callable[[Arguments], AtenCall]
_TRANSLATIONS: dict[str, Translation] = {}


def _translation(*names: str) -> Callable[[Translation], Translation]:
    def register(function: Translation) -> Translation:
        for name in names:
            _TRANSLATIONS[name] = function
        return function

    return register


def aten_call(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], is_tensor: Any) -> AtenCall:
    """The call as ATen has it. `is_tensor` tells values that stand for tensors from numbers."""
    name = op._full_name
    translate = _TRANSLATIONS.get(name)
    if translate is not None:
        return translate(_bound(op, args, kwargs))
    shown = op.name().removeprefix("aten::")
    formals = op._schema.arguments
    positional = [a.name for a in formals if not a.kwarg_only]
    bound = dict(zip(positional, args))
    named = {a.name: kwargs[a.name] for a in formals if a.kwarg_only and a.name in kwargs}
    bound.update({key: value for key, value in kwargs.items() if key not in named})
    scalar = _SCALAR_FORMS.get(name)
    if scalar is not None and not is_tensor(bound.get(scalar[0])):
        shown = scalar[1]
    renamed = _RENAMED.get(name)
    if renamed is not None:
        bound = {renamed.get(key, key): value for key, value in bound.items()}
    return AtenCall(shown, bound, named)


def _bound(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments by name, with defaults. One number for a window in two dimensions stands for two."""
    formals = op._schema.arguments
    by_name = dict(zip((a.name for a in formals if not a.kwarg_only), args)) | kwargs
    bound = {}
    for formal in formals:
        value = by_name.get(formal.name, formal.default_value)
        text = formal.type.text.rstrip("?")
        if text.endswith("]") and text[-2].isdigit() and isinstance(value, int):
            value = [value] * int(text[text.rindex("[") + 1 : -1])
        bound[formal.name] = value
    return bound


# ---------------------------------------------------------------------------------------------- a number as operand


def _scalar_forms() -> dict[str, tuple[str, str]]:
    """Overloads that ATen has for a number: operator -> (argument, overload). `add`, `sub`, `mul` and `div` take numbers
    in their overload for tensors."""
    forms: dict[str, tuple[str, str]] = {}
    for name in (
        "eq ne not_equal lt less le less_equal gt greater ge greater_equal remainder fmod bitwise_and bitwise_or "
        "bitwise_xor copysign rsub"
    ).split():
        forms[f"{name}.Tensor"] = ("other", f"{name}.Scalar")
        forms[f"{name}_.Tensor"] = ("other", f"{name}_.Scalar")
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        forms[f"{name}.Tensor"] = ("other", f"{name}.Tensor_Scalar")
    for name in ("pow", "float_power"):
        forms[f"{name}.Tensor_Tensor"] = ("exponent", f"{name}.Tensor_Scalar")
        forms[f"{name}_.Tensor_Tensor"] = ("exponent", f"{name}_.Scalar")
    for name in ("xlogy", "xlogy_"):
        forms[f"{name}.Tensor"] = ("other", f"{name}.Scalar_Other")
    for name in ("special_xlogy", "special_xlog1py", "special_zeta"):
        forms[name] = ("other", f"{name}.other_scalar")
    return forms


_SCALAR_FORMS = _scalar_forms()
_RENAMED: dict[str, dict[str, str]] = {
    "pad": {"input": "self"},
    "one_hot": {"tensor": "self"},
    "linalg_solve_triangular": {"A": "self"},
    "einsum": {"operands": "tensors"},
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _without_defaults(call: AtenCall, **defaults: Any) -> AtenCall:
    """The call without arguments at its end that have their default values."""
    args = dict(call.args)
    for name in reversed(list(args)):
        if name not in defaults or (args[name] is not defaults[name] and args[name] != defaults[name]):
            break
        del args[name]
    return AtenCall(call.name, args, {k: v for k, v in call.kwargs.items() if v is not None})


def _by_operand(name: str, argument: str, tensor: str, scalar: str) -> None:
    """An operator whose overload in ATen follows from whether one argument is a number."""

    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        return AtenCall(scalar if _is_number(bound[argument]) else tensor, bound, {})


for _name in ("masked_fill", "masked_fill_"):
    _by_operand(_name, "value", f"{_name}.Tensor", f"{_name}.Scalar")
for _name in ("index_fill", "index_fill_"):
    _by_operand(_name, "value", f"{_name}.int_Tensor", f"{_name}.int_Scalar")
for _name in ("fill", "fill_"):
    _by_operand(_name, "value", f"{_name}.Tensor", f"{_name}.Scalar")
for _name in ("clamp_min", "clamp_max", "clamp_min_", "clamp_max_"):
    _by_operand(_name, _name.split("_")[1], f"{_name}.Tensor", _name)


def _number_first(name: str, mode: bool = False) -> None:
    """`2 / x`: a number where ATen has a tensor; it takes the number there."""

    @_translation(f"{name}.Number_mode" if mode else f"{name}.Number")
    def translate(bound: Arguments) -> AtenCall:
        args = {"self": bound["self"], "other": bound["other"]}
        named = {k: v for k, v in bound.items() if k not in args and not (k == "alpha" and v == 1)}
        if name in ("add", "mul", "multiply") and not named:
            return AtenCall(f"{name}.Tensor", {"self": bound["other"], "other": bound["self"]}, {})
        if name == "sub" and not _is_number(bound["other"]):
            return AtenCall("rsub.Scalar", {"self": bound["other"], "other": bound["self"]}, named)
        shown = "floor_divide" if name == "floor_divide" else f"{name}.Tensor_mode" if mode else f"{name}.Tensor"
        return AtenCall(shown, args, named)


for _name in ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"):
    _number_first(_name)
for _name in ("div", "divide"):
    _number_first(_name, mode=True)


@_translation("where.self")
def _where(bound: Arguments) -> AtenCall:
    first, second = _is_number(bound["self"]), _is_number(bound["other"])
    overload = ("self", "ScalarOther", "ScalarSelf", "Scalar")[2 * first + second]
    return AtenCall(f"where.{overload}", bound, {})


@_translation("where.method")
def _where_method(bound: Arguments) -> AtenCall:
    return _where({"condition": bound["condition"], "self": bound["self"], "other": bound["other"]})


@_translation("isin")
def _isin(bound: Arguments) -> AtenCall:
    kinds = ["Scalar" if _is_number(bound[key]) else "Tensor" for key in ("elements", "test_elements")]
    names = [
        "element" if kinds[0] == "Scalar" else "elements",
        "test_element" if kinds[1] == "Scalar" else "test_elements",
    ]
    args = dict(zip(names, (bound["elements"], bound["test_elements"])))
    return AtenCall("isin." + "_".join(kinds), args, {k: bound[k] for k in ("assume_unique", "invert") if bound[k]})


def _quantile_named(name: str) -> None:
    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        args = {key: bound[key] for key in ("self", "q", "dim", "keepdim")}
        overload = f"{name}.scalar" if _is_number(bound["q"]) else name
        return AtenCall(overload, args, {"interpolation": bound["interpolation"]})


_quantile_named("quantile")
_quantile_named("nanquantile")


# ---------------------------------------------------------------------------------------------- reductions


def _reduction(name: str, with_dim: str, takes_dtype: bool = True) -> None:
    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        named = {"dtype": bound["dtype"]} if takes_dtype and bound.get("dtype") is not None else {}
        dim = bound["dim"]
        if dim is None and not bound["keepdim"]:
            return AtenCall(f"{name}", {"self": bound["self"]}, named)
        args = {"self": bound["self"], "dim": dim, "keepdim": bound["keepdim"]}
        shown = with_dim
        if name in ("any", "all"):
            shown = (
                f"{name}.dims" if (isinstance(dim, (list, tuple)) and len(dim) != 1) or dim is None else f"{name}.dim"
            )
            if shown.endswith(".dim") and isinstance(dim, (list, tuple)):
                args["dim"] = dim[0]
        elif isinstance(dim, int) and name != "prod":
            args["dim"] = [dim]
        return _without_defaults(AtenCall(shown, args, named), keepdim=False)


_reduction("sum", "sum.dim_IntList")
_reduction("mean", "mean.dim")
_reduction("prod", "prod.dim_int")
_reduction("any", "any.dim", takes_dtype=False)
_reduction("all", "all.dim", takes_dtype=False)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _vector_norm(order: float | None) -> Translation:
    def translate(bound: Arguments) -> AtenCall:
        args = {"self": bound["self"], "ord": bound["p"] if order is None else order}
        args |= {"dim": _listed(bound["dim"]), "keepdim": bound["keepdim"]}
        named = {"dtype": bound["dtype"]} if bound.get("dtype") is not None else {}
        return _without_defaults(AtenCall("linalg_vector_norm", args, named), dim=None, keepdim=False)

    return translate


for _name, _order in {
    "_norm_0": 0,
    "_norm_1": 1,
    "_norm_2": 2,
    "_norm_inf": float("inf"),
    "_norm_neg_inf": float("-inf"),
}.items():
    _TRANSLATIONS[_name] = _vector_norm(_order)
_TRANSLATIONS["_norm_p"] = _vector_norm(None)


@_translation("norm")
def _norm(bound: Arguments) -> AtenCall:
    p = 2 if bound["p"] in ("fro", None) else bound["p"]
    if isinstance(p, str):
        raise NoCounterpart(f"norm of order {p!r}")
    return _vector_norm(None)({**bound, "p": p})


@_translation("_clamp", "_clamp_")
def _clamp(bound: Arguments) -> AtenCall:
    return AtenCall("clamp" if _is_number(bound["min"]) and _is_number(bound["max"]) else "clamp.Tensor", bound, {})


@_translation("_logsumexp")
def _logsumexp(bound: Arguments) -> AtenCall:
    return AtenCall("logsumexp", bound, {})


# ---------------------------------------------------------------------------------------------- losses

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _loss(name: str, aten: str, *arguments: str, last: tuple[str, ...] = ()) -> None:
    """A loss: ATen numbers the reduction, and has it after these arguments."""

    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        from flambeau.ops.loss.records import legacy_reduction

        kind = legacy_reduction(bound.get("size_average"), bound.get("reduce"), bound["reduction"])
        if "weight" not in arguments and bound.get("weight") is not None:
            raise NoCounterpart(f"{aten} with weights of elements")
        renamed = {"input": "self"} if aten not in _INPUT_FIRST else {}
        args = {renamed.get(key, key): bound[key] for key in arguments}
        args |= {"reduction": _REDUCTIONS[kind]} | {key: bound[key] for key in last}
        return AtenCall(aten, args, {})


_INPUT_FIRST = ("hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss", "poisson_nll_loss")
_loss("mse_loss", "mse_loss", "input", "target")
_loss("l1_loss", "l1_loss", "input", "target")
_loss("smooth_l1_loss", "smooth_l1_loss", "input", "target", last=("beta",))
_loss("huber_loss", "huber_loss", "input", "target", last=("delta",))
_loss("binary_cross_entropy", "binary_cross_entropy", "input", "target", "weight")
_loss("nll_loss", "nll_loss_nd", "input", "target", "weight", last=("ignore_index",))
_loss("multi_margin_loss", "multi_margin_loss", "input", "target", "p", "margin", "weight")
_loss("multilabel_margin_loss", "multilabel_margin_loss", "input", "target")
_loss("soft_margin_loss", "soft_margin_loss", "input", "target")
_loss("cross_entropy", "cross_entropy_loss", "input", "target", "weight", last=("ignore_index", "label_smoothing"))


def _elementwise_loss(name: str, aten: str, last: tuple[str, ...] = ()) -> None:
    """The part of a loss before its reduction."""

    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        args = {"self": bound["self"], "target": bound["target"], "reduction": 0}
        if "bce" in name:
            args = {"self": bound["self"], "target": bound["target"], "weight": None}
            args |= {"pos_weight": bound.get("pos_weight")} if "logits" in name else {}
            args["reduction"] = 0
        return AtenCall(aten, args | {key: bound[key] for key in last}, {})


_elementwise_loss("_mse", "mse_loss")
_elementwise_loss("_smooth_l1", "smooth_l1_loss", ("beta",))
_elementwise_loss("_huber", "huber_loss", ("delta",))
_elementwise_loss("_soft_margin", "soft_margin_loss")
_elementwise_loss("_bce", "binary_cross_entropy")
_elementwise_loss("_bce_with_logits", "binary_cross_entropy_with_logits")
_elementwise_loss("_bce_with_logits_weighted", "binary_cross_entropy_with_logits")


# ---------------------------------------------------------------------------------------------- convolution and pooling


@_translation("conv_transpose2d", "conv_transpose3d")
def _conv_transpose(bound: Arguments) -> AtenCall:
    return AtenCall(f"conv_transpose{len(bound['stride'])}d.input", bound, {})


def _max_pool_with_indices(name: str) -> None:
    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        args = {key: bound[key] for key in ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")}
        return AtenCall(name, _with_own_stride(args), {})


def _with_own_stride(args: Arguments) -> Arguments:
    """ATen writes the stride that is the size of the window as an empty list."""
    return {**args, "stride": []} if args.get("stride") is None else args


def _pool(name: str) -> None:
    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        arguments = _with_own_stride(dict(bound))
        defaults = {"stride": [], "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
        return _without_defaults(AtenCall(name, arguments, {}), **defaults)


for _n in (1, 2, 3):
    _max_pool_with_indices(f"max_pool{_n}d_with_indices")
    for _name in (f"max_pool{_n}d", f"avg_pool{_n}d"):
        _pool(_name)


@_translation("_adaptive_max_pool2d", "_adaptive_max_pool3d")
def _adaptive_max_pool(bound: Arguments) -> AtenCall:
    return AtenCall(f"adaptive_max_pool{len(bound['output_size'])}d", bound, {})


@_translation("_im2col")
def _im2col(bound: Arguments) -> AtenCall:
    return AtenCall("im2col", bound, {})


@_translation("_col2im")
def _col2im(bound: Arguments) -> AtenCall:
    return AtenCall("col2im", bound, {})


@_translation("_interpolate")
def _interpolate(bound: Arguments) -> AtenCall:
    mode, size = bound["mode"], list(bound["output_size"])
    rank = len(size)
    kind = ("linear", "bilinear", "trilinear")[rank - 1] if mode == "linear" else "bicubic" if mode == "cubic" else mode
    head = f"_upsample_nearest_exact{rank}d" if mode == "nearest-exact" else f"upsample_{kind}{rank}d"
    if bound["antialias"]:
        head = f"_{head}_aa"
    factors = bound["scale_factors"]
    args = {"input": bound["self"], "output_size": None if factors is not None else size}
    if "nearest" not in mode:
        args["align_corners"] = bound["align_corners"]
    args["scale_factors"] = factors
    return AtenCall(f"{head}.vec", args, {})


@_translation("_edge_pad")
def _edge_pad(bound: Arguments) -> AtenCall:
    return AtenCall("pad", {"self": bound["self"], "pad": bound["pad"], "mode": bound["mode"]}, {})


# ---------------------------------------------------------------------------------------------- shapes and indices


def _renamed_overload(name: str, aten: str) -> None:
    _TRANSLATIONS[name] = lambda bound: AtenCall(aten, bound, {})


_renamed_overload("flatten", "flatten.using_ints")
_renamed_overload("unflatten", "unflatten.int")
_renamed_overload("select_copy", "select_copy.int")
_renamed_overload("slice_copy", "slice_copy.Tensor")
_renamed_overload("transpose_copy", "transpose_copy.int")
_renamed_overload("floor_divide_", "floor_divide_.Tensor")
_renamed_overload("copy_.number", "copy_")
_renamed_overload("frobenius_norm", "frobenius_norm.dim")
_renamed_overload("_numpy_T", "numpy_T")
_renamed_overload("_mT", "mT")
_renamed_overload("_H", "matrix_H")
_renamed_overload("_mH", "mH")
_renamed_overload("_nonzero_numpy", "nonzero_numpy")


@_translation("polygamma.method")
def _polygamma(bound: Arguments) -> AtenCall:
    return AtenCall("polygamma", {"n": bound["n"], "self": bound["self"]}, {})


@_translation("split.function")
def _split(bound: Arguments) -> AtenCall:
    sections = bound["split_size_or_sections"]
    args = {"self": bound["tensor"], "split_size": sections, "dim": bound["dim"]}
    if isinstance(sections, (list, tuple)):
        args = {"self": bound["tensor"], "split_sizes": list(sections), "dim": bound["dim"]}
        return AtenCall("split_with_sizes", args, {})
    return AtenCall("split.Tensor", args, {})


@_translation("tensor_split.indices_or_sections")
def _tensor_split(bound: Arguments) -> AtenCall:
    sections = bound["indices_or_sections"]
    listed = isinstance(sections, (list, tuple))
    key = "indices" if listed else "sections"
    return AtenCall(f"tensor_split.{key}", {"self": bound["self"], key: sections, "dim": bound["dim"]}, {})


@_translation("meshgrid")
def _meshgrid(bound: Arguments) -> AtenCall:
    if bound["indexing"] is None:
        return AtenCall("meshgrid", {"tensors": bound["tensors"]}, {})
    return AtenCall("meshgrid.indexing", {"tensors": bound["tensors"]}, {"indexing": bound["indexing"]})


@_translation("tensordot")
def _tensordot(bound: Arguments) -> AtenCall:
    raise NoCounterpart("tensordot with one number of dimensions")


def _conversion(name: str, dtype: str) -> None:
    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        import flambeau

        return AtenCall("to.dtype", {"self": bound["self"], "dtype": getattr(flambeau, dtype)}, {})


for _name, _dtype in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
}.items():  # fmt: skip
    _conversion(_name, _dtype)


# ---------------------------------------------------------------------------------------------- tensors from nothing


def _factory(name: str, *arguments: str, aten: str | None = None) -> None:
    """Tensors made from sizes: a generator is another overload, and False for pinned memory is left out."""

    @_translation(name)
    def translate(bound: Arguments) -> AtenCall:
        named = {key: value for key, value in bound.items() if key not in arguments and value is not None}
        named = {
            key: value for key, value in named.items() if not (key in ("pin_memory", "requires_grad") and not value)
        }
        if "generator" in named:
            raise NoCounterpart(f"{name} with a generator")
        shown = aten if aten is not None else name
        return AtenCall(shown, {key: bound[key] for key in arguments}, named)


_factory("rand", "size")
_factory("randn", "size")
_factory("randint", "high", "size")
_factory("randint.low", "low", "high", "size")
_factory("randperm", "n")
_factory("rand_like", "self")
_factory("randn_like", "self")
_factory("randint_like", "self", "high")
_factory("range", "start", "end", "step", aten="range.step")
_factory("tril_indices", "row", "col", "offset")
_factory("triu_indices", "row", "col", "offset")
_factory("fft_fftfreq", "n", "d")
_factory("fft_rfftfreq", "n", "d")
_factory("hann_window", "window_length", "periodic", aten="hann_window.periodic")
_factory("bartlett_window", "window_length", "periodic", aten="bartlett_window.periodic")
_factory("blackman_window", "window_length", "periodic", aten="blackman_window.periodic")
_factory("hamming_window", "window_length", "periodic", "alpha", "beta", aten="hamming_window.periodic_alpha_beta")
_factory("kaiser_window", "window_length", "periodic", "beta", aten="kaiser_window.beta")


@_translation("embedding_bag")
def _embedding_bag(bound: Arguments) -> AtenCall:
    return AtenCall("embedding_bag.padding_idx", bound, {})


@_translation("stft")
def _stft(bound: Arguments) -> AtenCall:
    return AtenCall("stft.center", bound, {})


@_translation("ctc_loss")
def _ctc_loss(bound: Arguments) -> AtenCall:
    tensors = not isinstance(bound["input_lengths"], (list, tuple))
    return AtenCall("ctc_loss.Tensor" if tensors else "ctc_loss.IntList", bound, {})
