"""Random calls on tensors of all dtypes, layouts and sizes, as lines of Python: promotion, empty reductions, scans, ties,
indices that repeat, writes through views of other dtypes, complex numbers and layers.

`Program(seed)` has the text that makes the inputs and the lines that use them; `lib` in both is the package they run with.
What lines made is compared by `values` and `close`. parity/values_fuzz.py runs them with PyTorch, inductor/compiler_fuzz.py
compiled.
"""

from __future__ import annotations

import random
import re
from typing import Any

SHAPES = [(), (1,), (3,), (4,), (7,), (2, 3), (3, 1), (1, 3), (4, 4), (2, 0), (0,), (0, 3), (2, 3, 4), (1, 1, 3), (2, 1, 4), (2, 4, 5, 6), (3, 0, 2)]  # fmt: skip
DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]  # fmt: skip
LIKELY = [8, 8, 3, 3, 4, 3, 2, 2, 3, 4, 3, 2]
SCALARS = ["2", "-1", "0", "1", "3", "0.5", "-1.5", "True", "2.0", "1j", "(1+2j)", "float('inf')", "float('nan')"]
LIKELY_SCALARS = [4, 3, 2, 3, 3, 5, 3, 1, 2, 0.5, 0.5, 0.5, 0.5]

# {a}, {b}, {c}: tensors so far; {d}, {e}: dimensions; {s}, {r}: scalars; {k}: a small number; {dt}: a dtype; {keep}: a flag.
PROMOTING = [
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} // {b}", "{a} % {b}", "{a} ** {b}", "{a} + {s}", "{s} - {a}", "{a} * {s}",
    "{a} / {s}", "{s} / {a}", "{a} // {k}", "{a} % {k}", "{a} ** {s}", "{s} ** {a}", "{a} & {b}", "{a} | {b}", "{a} ^ {b}", "{a} << {k}",
    "{a} >> {k}", "{a} < {b}", "{a} <= {k}", "{a} == {b}", "{a} != {k}", "lib.maximum({a}, {b})", "lib.fmin({a}, {b})", "lib.atan2({a}, {b})",
    "lib.where({a} > 0, {a}, {b})", "lib.where({a} > 0, {s}, {b})", "lib.where({a} > 0, {a}, {s})", "lib.where({a} != 0, {s}, {r})",
    "lib.where({a}.bool(), {a}, {b})", "lib.add({a}, {b}, alpha={s})", "lib.sub({a}, {b}, alpha={k})", "lib.rsub({a}, {b})",
    "lib.result_type({a}, {b})", "lib.result_type({a}, {s})", "lib.can_cast({a}.dtype, {b}.dtype)", "lib.fmod({a}, {b})", "lib.remainder({a}, {k})",
    "lib.clamp({a}, {s}, {r})", "lib.clamp({a}, min={b}.detach() + 0.125)", "lib.clamp({a}, {b}.detach() - 0.125, {c}.detach() + 0.125)", "lib.clamp({a}, max={s})", "lib.lerp({a}, {b}, 0.3)",
    "lib.addcmul({a}, {b}, {c}, value={k})", "lib.addcdiv({a}, {b}, {c})", "lib.logaddexp({a}, {b})", "lib.hypot({a}, {b})", "lib.copysign({a}, {b})",
    "lib.xlogy({a}, {b})", "lib.heaviside({a}, {b})", "lib.gcd({a}, {b})", "lib.lcm({a}, {b})", "lib.nextafter({a}.double(), {b}.double())", "lib.ldexp({a}, {b})",
    "lib.bitwise_and({a}, {k})", "lib.logical_xor({a}, {b})", "lib.isclose({a}, {b})", "lib.div({a}, {b}, rounding_mode='trunc')",
    "lib.div({a}, {k}, rounding_mode='floor')", "lib.true_divide({a}, {k})", "lib.float_power({a}, {b})", "lib.float_power({a}, {k})",
    "lib.cat([{a}.reshape(-1), {b}.reshape(-1)])", "lib.stack([{a}, {a}.to(lib.{dt})])", "lib.tensor([{s}, {r}])", "lib.full(({k},), {s})",
    "lib.full_like({a}, {k})", "lib.promote_types({a}.dtype, lib.{dt})", "{a}.to(lib.{dt})", "{a}.type_as({b})", "lib.squeeze({a}) + {b}",
    "lib.isin({a}, {b})", "lib.complex({a}, {b})", "lib.polar({a}.abs(), {b})", "lib.dot({a}, {b})", "lib.outer({a}, {b})", "{a} @ {b}", "{a} @ {a}.mT",
    "lib.linalg.vecdot({a}, {b})", "lib.cross({a}, {b}, dim={d})", "lib.kron({a}, {b})", "lib.tensordot({a}, {b}, dims=1)", "lib.mv({a}, {b})",
    "lib.clip({a}, {k})", "lib.special.zeta({a}, {b})", "lib.special.xlog1py({a}, {b})", "lib.masked_fill({a}, {a} > 0, {s})",
    "lib.addmm({a}, {b}, {c}, beta={k}, alpha=0.5)", "lib.baddbmm({a}, {b}, {c})", "lib.addmv({a}, {b}, {c})", "lib.einsum('...i,...i->...', {a}.double(), {b}.double())",
    "lib.bitwise_left_shift({a}, {b}.clamp(0, 3))", "lib.linspace({k}, 7, 5, dtype=lib.{dt})", "lib.arange({k}, {k} + 4, dtype=lib.{dt})",
    "lib.arange(0, {k}, 0.5)", "lib.cdist({a}, {b})", "lib.dist({a}, {b})", "lib.allclose({a}, {b})", "lib.equal({a}, {b})",
]  # fmt: skip
UNARY = [
    "lib.{u}({a})", "lib.{u}({a})", "lib.{u}({a})", "lib.{u}({a})", "lib.special.{v}({a})", "F.{w}({a})", "F.{w}({a})", "lib.nan_to_num({a}, {k})", "lib.round({a}, decimals={k})",
    "lib.logit({a}, 0.1)", "{a}.conj() * 1", "{a}.real", "{a}.imag", "lib.view_as_real({a})", "{a}.mH", "lib.polygamma({k}, {a}.abs() + 0.5)", "lib.mvlgamma({a} + 3, 2)",
    "lib.frexp({a})", "lib.isreal({a})", "-{a}", "~{a}", "abs({a})", "lib.bitwise_not({a})", "{a}.sgn()", "{a}.resolve_conj()", "lib.nan_to_num({a})",
]  # fmt: skip
U = ["abs", "neg", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "erf", "erfc", "erfinv", "lgamma", "digamma", "relu", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not", "positive", "angle", "deg2rad", "rad2deg", "i0", "sinc", "selu", "is_nonzero", "numel", "count_nonzero", "celu", "nonzero", "argwhere", "fix", "is_complex"]  # fmt: skip
V = ["entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "expit", "psi", "gammaln", "bessel_j0", "bessel_y1", "modified_bessel_i0", "sinc", "logit"]  # fmt: skip
W = ["gelu", "silu", "mish", "elu", "selu", "celu", "relu6", "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "tanhshrink", "softsign", "softplus", "logsigmoid", "leaky_relu", "relu", "threshold_"]  # fmt: skip
REDUCING = [
    "{a}.{red}()", "{a}.{red}({d})", "{a}.{red}({d}, keepdim={keep})", "{a}.sum(({d}, {e}))", "{a}.mean(({d}, {e}), keepdim={keep})", "{a}.amax(({d}, {e}))",
    "{a}.sum({d}, dtype=lib.{dt})", "{a}.prod({d}, dtype=lib.{dt})", "{a}.mean({d}, dtype=lib.{dt})", "{a}.std(({d},), correction={k})", "{a}.var({d}, unbiased={keep})",
    "lib.var_mean({a}, {d})", "lib.std_mean({a}, correction=0)", "lib.aminmax({a})", "lib.aminmax({a}, dim={d}, keepdim={keep})", "{a}.max({d})", "{a}.min({d}, keepdim={keep})",
    "lib.linalg.vector_norm({a}, {p}, {d})", "lib.linalg.vector_norm({a}, {p})", "{a}.norm({p})", "lib.linalg.norm({a})", "{a}.norm({p}, {d}, keepdim={keep})", "{a}.logsumexp({d}, keepdim={keep})",
    "{a}.nansum({d})", "{a}.nanmean()", "{a}.detach().nanmedian()", "{a}.detach().nanmedian({d})", "{a}.detach().median({d})", "{a}.detach().median()", "{a}.detach().mode({d}).values", "{a}.detach().kthvalue({k}, {d}).values", "lib.quantile({a}.detach(), 0.3)",
    "lib.quantile({a}.detach(), lib.tensor([0.25, 0.75], dtype={a}.dtype), dim={d})", "lib.nanquantile({a}.detach(), 0.5, dim={d}, keepdim={keep})", "lib.histc({a}, 4, -2, 2)", "lib.bincount({a})", "lib.trace({a})",
    "lib.cov({a})", "lib.corrcoef({a})", "{a}.cumsum({d})", "{a}.cumprod({d})", "{a}.cumsum({d}, dtype=lib.{dt})", "{a}.cummax({d})", "{a}.cummin({d})", "{a}.logcumsumexp({d})",
    "{a}.diff(dim={d})", "{a}.diff(n={k} + 1, dim={d})", "lib.trapezoid({a}, dim={d})", "lib.cumulative_trapezoid({a}, dim={d})", "{a}.softmax({d})", "{a}.log_softmax({d})",
    "F.softmax({a}, {d}, dtype=lib.{dt})", "{a}.renorm(2, {d}, 1.0)", "lib.gradient({a}, dim={d})[0]", "{a}.all({d})", "{a}.any()", "{a}.any(({d}, {e}))", "{a}.count_nonzero({d})",
    "{a}.sum_to_size({a}.shape[1:])", "F.normalize({a}, dim={d})", "F.cosine_similarity({a}, {b}, dim={d})", "lib.linalg.matrix_norm({a})", "{a}.sum(-1)", "{a}.sum(0, keepdim=True) * {a}",
]  # fmt: skip
RED = ["sum", "prod", "mean", "std", "var", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "nansum", "nanmean", "logsumexp", "count_nonzero", "median"]  # fmt: skip
ORDERING = [
    "{a}.sort(stable=True)", "{a}.sort({d}, stable=True)", "{a}.sort(dim={d}, descending={keep}, stable=True)", "{a}.argsort({d}, stable=True)", "{a}.argsort(dim={d}, descending=True, stable=True)",
    "{a}.detach().topk({k}).values", "{a}.detach().topk({k}, {d}).values", "{a}.detach().topk({k}, {d}, largest={keep}).values", "{a}.unique()", "{a}.unique(return_counts=True)", "{a}.unique(return_inverse=True)",
    "{a}.unique(dim={d})", "lib.unique_consecutive({a})", "lib.unique_consecutive({a}, dim={d}, return_counts=True)", "{a}.msort()", "lib.searchsorted({a}.nan_to_num().sort(stable=True).values, {b}.nan_to_num())",
    "lib.searchsorted({a}.nan_to_num().reshape(-1).sort(stable=True).values, {b}.nan_to_num(), right={keep})", "lib.bucketize({a}, lib.tensor([-1, 0, 1]))", "lib.bucketize({a}, lib.tensor([-1., 0, 1]), right={keep})",
    "{a}.argmax({d})", "{a}.argmin({d}, keepdim={keep})", "lib.isin({a}, lib.tensor([0, 1]))", "{a}.flip({d})", "{a}.roll({k}, {d})", "{a}.roll({k})", "lib.rot90({a})", "{a}.fliplr()",
]  # fmt: skip
INDEXING = [
    "{a}[{i}]", "{a}[{a} > 0]", "{a}[{m}]", "{a}[..., {k}]", "{a}[None, ..., ::2]", "{a}[{i}, {i}]", "{a}[:, {i}]", "{a}[{i}, None]", "{a}.index_select({d}, {i})", "{a}.take({i})", "{a}.masked_select({a} != 0)",
    "{a}.gather({d}, lib.zeros_like({a}, dtype=lib.int64))", "{a}.scatter({d}, lib.zeros_like({a}, dtype=lib.int64), {a})", "{a}.scatter({d}, lib.zeros_like({a}, dtype=lib.int64), {s})",
    "{a}.scatter_add({d}, lib.zeros_like({a}, dtype=lib.int64), {a})", "{a}.scatter_reduce({d}, lib.zeros_like({a}, dtype=lib.int64), {a}, '{how}', include_self={keep})",
    "{a}.index_add({d}, {i}, {a}.index_select({d}, {i}), alpha={k})", "{a}.index_reduce({d}, {i}, {a}.index_select({d}, {i}), '{how2}', include_self={keep})", "{a}.index_copy({d}, {one}, {a}.index_select({d}, {one}))",
    "{a}.index_fill({d}, {i}, {s})", "{a}.index_put(({i},), {b}, accumulate=True)", "{a}.index_put(({one},), {b})", "{a}.index_put(({i},), {a}[{i}], accumulate=True)", "{a}.index_put(({a} > 0,), lib.tensor({s}).to({a}.dtype))",
    "{a}.index_put(({i}, {i}), {a}[{i}, {i}], accumulate=True)", "{a}.masked_scatter({a} > 0, {a})", "{a}.put({one}, {b}.reshape(-1)[:1])", "{a}.put({i}, {a}.take({i}), accumulate=True)", "{a}.take_along_dim(lib.zeros_like({a}, dtype=lib.int64), {d})",
    "{a}.diagonal_scatter({a}.diagonal() * 2)", "{a}.select_scatter({a}.select({d}, 0), {d}, -1)", "{a}.slice_scatter({a}.narrow({d}, 0, 1), {d}, 0, 1)", "{a}.as_strided((2,), (1,))", "{a}.repeat_interleave({k}, {d})",
    "{a}.tril({k})", "{a}.triu(-{k})", "lib.diag({a})", "lib.diag_embed({a})", "lib.diagflat({a})", "{a}.diagonal({k})", "{a}.unfold({d}, 2, 1)", "{a}.view(lib.{dt})", "{a}.narrow({d}, 0, {k})", "{a}.split({k}, {d})[-1]",
    "{a}.tensor_split(2, {d})[0]", "{a}.repeat(2, *[1] * {a}.dim())", "lib.cartesian_prod({a}, {b})", "lib.combinations({a})", "lib.block_diag({a}, {b})", "lib.meshgrid({a}, {b}, indexing='ij')[1]", "lib.nonzero({a})", "F.pad({a}, (1, {k}))",
    "F.pad({a}, (1, 1), mode='reflect')", "F.pad({a}, (2, -1), value={s})", "F.pad({a}, (1, 2), mode='circular')", "F.pad({a}, (1, 2), mode='replicate')", "{a}.unflatten({d}, (1, -1))", "{a}.expand(2, *{a}.shape) * 1", "lib.vander({a}, {k})",
    "F.one_hot({i}, 4)", "F.embedding({i}, {a})", "F.embedding({i}, {a}, padding_idx=0)", "lib.tril_indices({k}, 3)", "lib.cat([{a}, {a}], {d})", "lib.stack([{a}, {a} * 2], {d})", "{a}.swapaxes({d}, {e}).reshape(-1)", "lib.atleast_2d({a})",
]  # fmt: skip
WRITES = [
    "{a}.add_({b})", "{a}.mul_({s})", "{a}.sub_({b}, alpha={k})", "{a}.div_({b})", "{a}.copy_({b})", "{a}.fill_({s})", "{a}[...] = {b}", "{a}[0] = {s}", "{a}[..., 1:] = {b}", "{a}[{i}] = {s}", "{a}[{i}] += 1", "{a}[{a} > 0] = {s}",
    "{a}[{m}] = 2", "{a}.t().add_(1)", "{a}.view(-1).mul_(2)", "{a}.diagonal().fill_({k})", "{a}.select({d}, 0).add_({b})", "{a}.transpose({d}, {e}).copy_({b})", "{a}.narrow({d}, 0, 1).zero_()", "{a}[::2].sub_({k})", "{a}.clamp_({s}, {r})",
    "{a}.pow_({k})", "{a}.floor_divide_({b})", "{a}.remainder_({s})", "{a}.abs_()", "{a}.exp_()", "{a}.round_()", "{a}.sigmoid_()", "{a}.masked_fill_({a} > 0, {s})", "{a}.index_put_(({i},), {b}, accumulate=True)", "{a}.index_add_({d}, {i}, {a}.index_select({d}, {i}))",
    "{a}.scatter_({d}, lib.zeros_like({a}, dtype=lib.int64), {k})", "{a}.cumsum_({d})", "{a}.lerp_({b}, 0.5)", "{a}.addcmul_({b}, {c})", "{a}.real.mul_(2)", "{a}.view(lib.{dt}).zero_()", "{a}.unsqueeze(0).bitwise_xor_({k})", "{a}.logical_and_({b})", "{a}.eq_({b})", "{a}.lt_({s})",
    "{a} += {b}", "{a} *= {b}", "{a} //= {k}", "{a}.reshape(-1)[1:3].neg_()", "{a}.index_fill_({d}, {i}, {s})", "{a}.tril_()", "{a}.relu_()", "{a}.squeeze_()", "{a}.fill_diagonal_({k})", "{a}.map = 0", "lib.add({b}, {c}, out={a})", "lib.cumsum({b}.clone(), {d}, out={a})",
    "lib.sum({b}.clone(), {d}, out={a})", "lib.mul({a}, {s}, out={a})", "lib.gt({a}, {b}, out={a})", "{a}.baddbmm_({b}, {c})", "{a}.swapaxes({d}, {e})[0].add_(1)", "{a}.masked_scatter_({a} > 0, {b}.clone())", "{a}.put_({i}, {a}.take({i}), True)",
]  # fmt: skip
LAYERS = [
    "F.linear({a}, {b})", "F.linear({a}, lib.ones(2, {a}.shape[-1], dtype={a}.dtype))", "F.layer_norm({a}, {a}.shape[-1:])", "F.rms_norm({a}, {a}.shape[-1:])", "F.group_norm({a}, 1)", "F.batch_norm({a}, None, None, training=True)", "F.instance_norm({a})",
    "F.max_pool1d({a}, 2)", "F.max_pool2d({a}, 2, ceil_mode={keep})", "F.max_pool2d({a}, 3, 2, 1)", "F.avg_pool2d({a}, 2, padding=1, count_include_pad={keep})", "F.avg_pool1d({a}, 2, {k})", "F.adaptive_avg_pool2d({a}, ({k}, 2))", "F.adaptive_max_pool1d({a}, {k})",
    "F.lp_pool1d({a}, 2, 2)", "F.conv1d({a}, lib.ones(2, {a}.shape[-2], 2, dtype={a}.dtype), padding=1)", "F.conv2d({a}, lib.ones(2, {a}.shape[-3], 2, 3, dtype={a}.dtype), padding=1, stride={k})", "F.conv_transpose2d({a}, lib.ones({a}.shape[-3], 2, 2, 2, dtype={a}.dtype), stride={k})",
    "F.conv2d({a}, lib.ones({a}.shape[-3], 1, 2, 2, dtype={a}.dtype), groups={a}.shape[-3], dilation={k})", "F.interpolate({a}, scale_factor=2, mode='{mode}')", "F.interpolate({a}, size=({k}, 5), mode='{mode}', antialias={keep})", "F.interpolate({a}, scale_factor=0.6, mode='bilinear', align_corners={keep})",
    "F.unfold({a}, 2)", "F.fold(F.unfold({a}, 2, padding=1), {a}.shape[-2:], 2, padding=1)", "F.pixel_shuffle({a}, 2)", "F.channel_shuffle({a}, 2)", "F.glu({a}, {d})", "F.prelu({a}, lib.ones(1, dtype={a}.dtype) * 0.3)",
    "F.cross_entropy({a}, lib.zeros({a}.shape[:1], dtype=lib.int64))", "F.cross_entropy({a}, {a}.softmax(1), label_smoothing=0.1)", "F.cross_entropy({a}, lib.ones({a}.shape[:1], dtype=lib.int64), reduction='none', ignore_index={k})", "F.nll_loss({a}, lib.zeros({a}.shape[:1], dtype=lib.int64), weight={a}[0].abs())",
    "F.mse_loss({a}, {b})", "F.l1_loss({a}, {b}, reduction='sum')", "F.smooth_l1_loss({a}, {b}, beta={k})", "F.huber_loss({a}, {b}.to({a}.dtype), reduction='none')", "F.binary_cross_entropy({a}.sigmoid(), {b}.sigmoid())", "F.binary_cross_entropy_with_logits({a}, {b}, pos_weight={a}.abs())",
    "F.kl_div({a}, {b}, reduction='batchmean', log_target={keep})", "F.hinge_embedding_loss({a}, {b}.sign())", "F.margin_ranking_loss({a}, {b}, {c})", "F.soft_margin_loss({a}.real, {b}.double())", "F.triplet_margin_loss({a}, {b}, {c})",
    "F.poisson_nll_loss({a}, {b}, full={keep})", "F.gaussian_nll_loss({a}, {b}, {a} ** 2)", "F.cosine_embedding_loss({a}, {b}, lib.ones({a}.shape[:1]))", "F.scaled_dot_product_attention({a}, {a}, {a}, is_causal={keep})", "F.pairwise_distance({a}, {b})", "F.pdist({a}, {p})",
    "F.grid_sample({a}, lib.linspace(-1.2, 1.1, {a}.shape[0] * 18, dtype={a}.dtype).view(-1, 3, 3, 2), padding_mode='{border}', align_corners={keep})", "F.affine_grid(lib.ones(1, 2, 3, dtype={a}.dtype), (1, 1, {k}, 3), align_corners={keep})", "F.local_response_norm({a}, 2)", "F.embedding_bag({i}, {a}, lib.tensor([0, 1]), mode='{bag}')",
    "lib.fft.fft({a})", "lib.fft.ifft({a}, {k}, {d})", "lib.fft.rfft({a}, norm='ortho')", "lib.fft.irfft({a}, {k} + 1)", "lib.fft.fftn({a})", "lib.fft.hfft({a}, 4)", "lib.fft.fftshift({a}, {d})", "lib.fft.rfft2({a})", "lib.stft({a}.reshape(-1), 4, return_complex=True)", "lib.linalg.det({a})", "lib.linalg.inv({a} + 3 * lib.eye(4, dtype={a}.dtype))",
    "lib.linalg.solve({a} + 3 * lib.eye(4, dtype={a}.dtype), {b})", "lib.linalg.matrix_power({a}, {k})", "lib.linalg.multi_dot([{a}, {a}.mT, {a}])", "lib.linalg.cholesky({a} @ {a}.mH + 3 * lib.eye(4, dtype={a}.dtype))", "lib.linalg.slogdet({a})", "lib.matrix_exp({a})", "lib.linalg.svdvals({a}.detach())", "lib.linalg.pinv({a}.detach())", "lib.linalg.matrix_rank({a})", "lib.linalg.cond({a})",
    "lib.bilinear({a}, {a}, lib.ones(2, {a}.shape[-1], {a}.shape[-1], dtype={a}.dtype), None)", "F.dropout({a}, 0.5, False)", "F.alpha_dropout({a}, 0.0, True)", "F.ctc_loss({a}.log_softmax(-1), lib.ones(1, 1, dtype=lib.int64), lib.tensor([2]), lib.tensor([1]))", "lib.logdet({a})",
]  # fmt: skip
GROUPS = [PROMOTING, UNARY, REDUCING, ORDERING, INDEXING, WRITES, LAYERS]


class Program:
    """Lines of Python over tensors t0, t1, ...: most lines are valid, and which are is part of what is compared."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        r = self.random
        base = r.choice(SHAPES)
        only = r.choice(DTYPES) if r.random() < 0.5 else None
        self.finite = r.random() < 0.7
        shapes: list[tuple[int, ...]] = [base, *(self._related(base) for _ in range(r.randint(0, 2)))]
        self.inputs = [self._input(shape, only or r.choices(DTYPES, LIKELY)[0]) for shape in shapes]
        self.count = len(self.inputs)
        self.empty = any(0 in shape for shape in shapes)
        self.lines = [self._line(r.choice(GROUPS if self.finite else GROUPS[:-1])) for _ in range(r.randint(1, 4))]

    @property
    def made(self) -> int:
        return self.count - len(self.inputs)

    @property
    def writes(self) -> bool:
        return not all(re.match(r"t\d+ = ", line) for line in self.lines)

    def leaves(self, lib: Any) -> list[Any]:
        return [eval(text, {"lib": lib, "v": v}) for text, v in self.inputs]

    def _related(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        r = self.random
        if r.random() < 0.15:
            return r.choice(SHAPES)
        return tuple(1 if r.random() < 0.2 else n for n in shape)[r.choice([0, 0, 0, 1]) :]

    def _input(self, shape: tuple[int, ...], dtype: str) -> tuple[str, list[Any]]:
        """The text that makes an input of a list `v`, and the list."""
        r = self.random
        layout = r.choice(["v", "v", "v", "t", "step", "offset", "expand"]) if shape else "v"
        stored = {"t": shape[::-1], "step": (*shape[:-1], 2 * shape[-1] if shape else 1), "offset": ((shape[0] + 1, *shape[1:]) if shape else ()), "expand": (*shape[:-1], 1)}.get(layout, shape)  # fmt: skip
        view = {"v": "", "t": f".permute({tuple(range(len(shape)))[::-1]})", "step": "[..., ::2]", "offset": "[1:]", "expand": f".expand({shape})"}[layout]  # fmt: skip
        size = 1
        for n in stored:
            size *= n
        return f"lib.tensor(v, dtype=lib.{dtype}).reshape({stored}){view}", [self._value(dtype) for _ in range(size)]

    def _value(self, dtype: str) -> Any:
        r = self.random
        if dtype == "bool":
            return r.random() < 0.5
        if dtype == "uint8":
            return r.choice([0, 1, 2, 3, 7, 200, 255])
        if "int" in dtype:
            return r.choice([0, 1, 1, 2, 3, -1, -2, -7, 100])
        if "complex" in dtype:
            return complex(r.choice([0.0, 1.0, -1.5, 0.25]), r.choice([0.0, 2.0, -0.5]))
        special = r.random()
        if special < 0.05 and not self.finite:
            return r.choice([float("nan"), float("inf"), -float("inf"), -0.0])
        return r.choice([0.0, 1.0, 1.0, -1.0, 0.5, 2.0, -2.5, 0.75]) if special < 0.5 else round(r.uniform(-3, 3), 2)

    def _line(self, group: list[str]) -> str:
        r = self.random
        known = [f"t{k}" for k in range(self.count)]
        text = r.choice(group).format(
            a=r.choice(known[-3:]), b=r.choice(known), c=r.choice(known), d=r.randint(-3, 2), e=r.randint(-3, 2), k=r.choice([0, 1, 1, 2, 2, 3]),
            s=r.choices(SCALARS, LIKELY_SCALARS)[0], r=r.choices(SCALARS, LIKELY_SCALARS)[0], dt=r.choices(DTYPES, LIKELY)[0], keep=r.random() < 0.5,
            u=r.choice(U), v=r.choice(V), w=r.choice(W), red=r.choice(RED), p=r.choice(["0", "1", "2", "3", "float('inf')", "-float('inf')", "0.5"]),
            i=r.choice(["lib.tensor([0, 0])", "lib.tensor([1, 0, 1])", "lib.tensor([-1])", "lib.tensor([[0, 1]])", "lib.tensor(0)", "lib.tensor([], dtype=lib.int64)", "lib.tensor([0, 2], dtype=lib.int32)"]),
            one=r.choice(["lib.tensor([0])", "lib.tensor([-1])", "lib.tensor([1])"]), m=r.choice(["lib.tensor([True, False])", "lib.tensor([True, False, True])", "lib.tensor(True)"]),
            how=r.choice(["sum", "mean"]), how2="mean", mode=r.choice(["nearest", "bilinear", "bicubic", "area", "nearest-exact", "linear"]),
            border=r.choice(["zeros", "border", "reflection"]), bag=r.choice(["sum", "mean", "max"]),
        )  # fmt: skip
        if group is WRITES:
            return text
        self.count += 1
        return f"t{self.count - 1} = {text}"


def values(x: Any) -> Any:
    """What a result is, in plain Python."""
    if hasattr(x, "untyped_storage"):
        return str(x.dtype), tuple(x.shape), x.detach().resolve_conj().resolve_neg().tolist()
    if isinstance(x, (tuple, list)):
        return [values(y) for y in x]
    return str(x) if "dtype" in type(x).__name__ else x


class Refusal:
    """That a line was refused, whatever the words."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error)[:160]!r}"


TOLERANCE = {
    "float32": 2e-4,
    "float64": 1e-6,
    "bfloat16": 5e-2,
    "float16": 1e-2,
    "complex32": 1e-2,
    "complex64": 2e-4,
    "complex128": 1e-6,
}


def close(a: Any, b: Any, tolerance: float = 0.0, derivative: bool = False, least: float = 0.0) -> bool:
    """Whether outcome `b` is the wanted `a`; what is refused there may have a meaning here. Floating point numbers are
    compared with the tolerance of their dtype, or `least`."""
    if isinstance(a, Refusal) or isinstance(b, Refusal):
        return isinstance(a, Refusal)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) == 3 and isinstance(a[0], str) and isinstance(a[1], tuple):
            if len(b) != 3 or a[:2] != b[:2]:
                return False
            own = TOLERANCE.get(a[0].split(".")[-1], 0.0)
            own = max(own, least) if own else 0.0
            return close(a[2], b[2], 10 * own if derivative else own, derivative)
        return len(a) == len(b) and all(close(x, y, tolerance, derivative, least) for x, y in zip(a, b))
    if isinstance(a, complex) and isinstance(b, complex):
        if any(x != x or x in (float("inf"), -float("inf")) for x in (a.real, a.imag, b.real, b.imag)):
            return True  # which parts overflow is not defined
        return abs(a - b) <= tolerance * (1 + abs(a) + abs(b))
    if isinstance(a, float) and isinstance(b, float):
        if derivative and a != a:
            return True
        return a == b or (a != a and b != b) or abs(a - b) <= tolerance * (1 + abs(a) + abs(b)) < float("inf")
    return type(a) is type(b) and a == b
