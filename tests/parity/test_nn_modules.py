"""Every module beside PyTorch's: from the same weights the same outputs, gradients, state and repr, in both modes.

A case is a line: the expression that makes the module, the expressions of its inputs, and options. Both are evaluated
in each library. Inputs: x(...) normal numbers that want a gradient, u(...) numbers in (0, 1), idx(n, ...) integers
below n, sgn(...) of -1 and 1, b(...) booleans; anything else is passed as it is.
"""

import copy
import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402

warnings.filterwarnings("ignore")


class Case:
    def __init__(self, module, inputs, random=False, call="m(*a)", grad=True, tolerance=1.0, lazy=False, repr=True):
        self.module, self.inputs, self.random, self.call = module, inputs, random, call
        self.grad, self.tolerance, self.lazy, self.repr = grad, tolerance, lazy, repr


def case(module, inputs, **options):
    return pytest.param(Case(module, inputs, **options), id=f"{module} {inputs}".replace("nn.", ""))


ACTIVATIONS = [
    "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Hardtanh", "Sigmoid",
    "Tanh", "LogSigmoid", "Softsign", "Tanhshrink", "Hardshrink", "Softshrink", "Softplus", "LeakyReLU",
]  # fmt: skip
CASES = [
    *(case(f"nn.{name}()", "x(3, 4)", tolerance=1e3 if name == "Hardsigmoid" else 1) for name in ACTIVATIONS),
    *(case(f"nn.{name}(inplace=True)", "x(3, 4) * 1", grad=False) for name in
      ("ReLU", "ReLU6", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Hardtanh", "LeakyReLU")),
    case("nn.Identity(54, unused=0)", "x(3, 4)"),
    case("nn.GELU('tanh')", "x(3, 4)"),
    case("nn.ELU(0.5)", "x(3, 4)"),
    case("nn.CELU(2.0)", "x(3, 4)"),
    case("nn.Hardtanh(-0.3, 0.7)", "x(3, 4)"),
    case("nn.LeakyReLU(0.3)", "x(3, 4)"),
    case("nn.Softplus(2.0, 0.5)", "x(3, 4)"),
    case("nn.Threshold(0.1, 20)", "x(3, 4)"),
    case("nn.Threshold(0.1, 20, True)", "x(3, 4) * 1", grad=False),
    case("nn.RReLU()", "x(3, 4)", random=True),
    case("nn.RReLU(0.2, 0.3)", "x(3, 4)", random=True),
    case("nn.PReLU()", "x(3, 4)"),
    case("nn.PReLU(4, init=0.1)", "x(3, 4, 2)"),
    case("nn.GLU()", "x(3, 4)"),
    case("nn.GLU(0)", "x(4, 3)"),
    case("nn.Softmax(1)", "x(3, 4)"),
    case("nn.Softmax()", "x(3, 4)"),
    case("nn.LogSoftmax(0)", "x(3, 4)"),
    case("nn.LogSoftmax()", "x(3, 4)"),
    case("nn.Softmin(-1)", "x(3, 4)"),
    case("nn.Softmin()", "x(3, 4)"),
    case("nn.Softmax2d()", "x(2, 3, 4, 4)"),
    case("nn.Softmax2d()", "x(3, 4, 4)"),
    case("nn.Linear(5, 3)", "x(4, 5)"),
    case("nn.Linear(5, 3, bias=False)", "x(2, 4, 5)"),
    case("nn.Linear(5, 3)", "x(5)"),
    case("nn.Bilinear(3, 4, 5)", "x(2, 3), x(2, 4)"),
    case("nn.Bilinear(3, 4, 5, bias=False)", "x(2, 6, 3), x(2, 6, 4)"),
    case("nn.LazyLinear(3)", "x(4, 5)", lazy=True),
    case("nn.LazyLinear(3, bias=False)", "x(4, 5)", lazy=True),
    case("nn.Conv1d(4, 6, 3)", "x(2, 4, 9)"),
    case("nn.Conv1d(4, 6, 3, 2, 1, 2, 2, False)", "x(2, 4, 9)"),
    case("nn.Conv1d(4, 6, 3, padding='same', padding_mode='circular')", "x(4, 9)"),
    case("nn.Conv1d(4, 6, 4, padding='same')", "x(2, 4, 9)"),
    case("nn.Conv2d(4, 6, 3)", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, 3, padding='same')", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, 3, padding='valid', bias=False)", "x(4, 7, 8)"),
    case("nn.Conv2d(4, 8, 3, padding=1, groups=4)", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, 3, padding=1, padding_mode='reflect')", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode='replicate')", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, 3, padding=2, padding_mode='circular')", "x(2, 4, 7, 8)"),
    case("nn.Conv2d(4, 6, (3, 4), padding='same', dilation=2, padding_mode='reflect')", "x(2, 4, 9, 9)"),
    case("nn.Conv3d(2, 4, 3)", "x(2, 2, 5, 5, 6)"),
    case("nn.Conv3d(2, 4, (3, 2, 1), stride=2, padding=1, groups=2)", "x(2, 2, 5, 5, 6)"),
    case("nn.Conv3d(2, 4, 3, padding=1, padding_mode='circular')", "x(2, 5, 5, 6)"),
    case("nn.ConvTranspose1d(4, 6, 3)", "x(2, 4, 5)"),
    case("nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2, False, 2)", "x(2, 4, 5)"),
    case("nn.ConvTranspose1d(4, 6, 3, stride=2)", "x(4, 5)", call="m(*a, output_size=[12])"),
    case("nn.ConvTranspose2d(4, 6, 3)", "x(2, 4, 5, 6)"),
    case("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)", "x(2, 4, 5, 6)"),
    case("nn.ConvTranspose2d(4, 6, 3, stride=2, dilation=2)", "x(2, 4, 5, 6)", call="m(*a, output_size=(2, 6, 14, 15))"),
    case("nn.ConvTranspose3d(2, 4, 2, stride=2)", "x(2, 2, 3, 3, 4)"),
    case("nn.ConvTranspose3d(2, 4, (2, 3, 1), padding=(0, 1, 0), bias=False)", "x(2, 3, 3, 4)"),
    case("nn.LazyConv1d(6, 3)", "x(2, 4, 9)", lazy=True),
    case("nn.LazyConv2d(6, 3, padding=1, groups=2)", "x(2, 4, 5, 6)", lazy=True),
    case("nn.LazyConv3d(6, 3, bias=False)", "x(2, 4, 5, 5, 6)", lazy=True),
    case("nn.LazyConvTranspose1d(6, 3)", "x(2, 4, 9)", lazy=True),
    case("nn.LazyConvTranspose2d(6, 3, stride=2, output_padding=1)", "x(2, 4, 5, 6)", lazy=True),
    case("nn.LazyConvTranspose3d(6, 3)", "x(2, 4, 3, 3, 3)", lazy=True),
    case("nn.BatchNorm1d(4)", "x(6, 4)"),
    case("nn.BatchNorm1d(4)", "x(6, 4, 3)"),
    case("nn.BatchNorm1d(4, momentum=None)", "x(6, 4, 3)"),
    case("nn.BatchNorm1d(4, affine=False)", "x(6, 4)"),
    case("nn.BatchNorm1d(4, track_running_stats=False)", "x(6, 4)"),
    case("nn.BatchNorm2d(4)", "x(2, 4, 3, 5)"),
    case("nn.BatchNorm2d(4, eps=1e-2, momentum=0.3, bias=False)", "x(2, 4, 3, 5)"),
    case("nn.BatchNorm3d(4)", "x(2, 4, 3, 2, 5)"),
    case("nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))).eval()", "x(6, 3)"),
    case("nn.LazyBatchNorm1d()", "x(6, 4)", lazy=True),
    case("nn.LazyBatchNorm2d(affine=False)", "x(2, 4, 3, 5)", lazy=True),
    case("nn.LazyBatchNorm3d(track_running_stats=False)", "x(2, 4, 3, 2, 5)", lazy=True),
    case("nn.InstanceNorm1d(4)", "x(2, 4, 5)"),
    case("nn.InstanceNorm1d(4, affine=True)", "x(4, 5)"),
    case("nn.InstanceNorm2d(4, affine=True, track_running_stats=True)", "x(2, 4, 3, 5)"),
    case("nn.InstanceNorm2d(4, affine=True, bias=False)", "x(2, 4, 3, 5)"),
    case("nn.InstanceNorm3d(4, track_running_stats=True, momentum=0.5)", "x(2, 4, 3, 2, 5)"),
    case("nn.LazyInstanceNorm1d()", "x(2, 4, 5)", lazy=True),
    case("nn.LazyInstanceNorm2d(affine=True)", "x(2, 4, 3, 5)", lazy=True),
    case("nn.LazyInstanceNorm3d()", "x(2, 4, 3, 2, 5)", lazy=True),
    case("nn.LayerNorm(5)", "x(2, 3, 5)"),
    case("nn.LayerNorm((3, 5))", "x(2, 3, 5)"),
    case("nn.LayerNorm([3, 5], bias=False)", "x(2, 3, 5)"),
    case("nn.LayerNorm(5, elementwise_affine=False, eps=0.1)", "x(2, 3, 5)"),
    case("nn.RMSNorm(5)", "x(2, 3, 5)"),
    case("nn.RMSNorm((3, 5), eps=1e-3)", "x(2, 3, 5)"),
    case("nn.RMSNorm(5, elementwise_affine=False)", "x(2, 3, 5)"),
    case("nn.GroupNorm(2, 6)", "x(2, 6, 5)"),
    case("nn.GroupNorm(3, 6, affine=False)", "x(2, 6, 4, 5)"),
    case("nn.GroupNorm(6, 6, bias=False)", "x(2, 6, 4, 5)"),
    case("nn.LocalResponseNorm(3)", "x(2, 6, 4, 5)"),
    case("nn.LocalResponseNorm(4, alpha=0.1, beta=0.5, k=2.0)", "x(2, 6, 4)"),
    case("nn.CrossMapLRN2d(3, alpha=0.1)", "x(2, 6, 4, 5)", grad=False),
    *(case(f"nn.{name}({p})", shape, random=True) for p in ("", "0.3")
      for name, shape in (("Dropout", "x(3, 4)"), ("Dropout1d", "x(3, 4, 5)"), ("Dropout2d", "x(2, 3, 4, 5)"),
                          ("Dropout3d", "x(2, 3, 4, 5, 2)"), ("AlphaDropout", "x(3, 4)"),
                          ("FeatureAlphaDropout", "x(2, 3, 4)"))),
    case("nn.Dropout(0.0)", "x(3, 4)"),
    case("nn.Dropout(1.0)", "x(3, 4)"),
    case("nn.Embedding(7, 3)", "idx(7, 4, 2)"),
    case("nn.Embedding(7, 3, padding_idx=-2)", "idx(7, 40)"),
    case("nn.Embedding(7, 3, max_norm=0.7, norm_type=1.0)", "idx(7, 4)"),
    case("nn.Embedding(7, 3, scale_grad_by_freq=True)", "idx(7, 20)"),
    case("nn.EmbeddingBag(7, 3)", "idx(7, 4, 2)"),
    case("nn.EmbeddingBag(7, 3, mode='sum')", "idx(7, 10), ints([0, 4, 4, 7])"),
    case("nn.EmbeddingBag(7, 3, mode='max')", "idx(7, 10), ints([0, 4, 4, 7])"),
    case("nn.EmbeddingBag(7, 3, mode='mean', include_last_offset=True, padding_idx=1)", "idx(7, 10), ints([0, 4, 7, 10])"),
    case("nn.EmbeddingBag(7, 3, mode='sum')", "idx(7, 5, 2), None, x(5, 2)"),
    *(case(f"nn.MaxPool{n}d({args})", f"x(2, 3, {', '.join(['7'] * n)})") for n in (1, 2, 3)
      for args in ("2", "3, 2, 1", "3, stride=1, dilation=2", "3, 2, ceil_mode=True", "2, return_indices=True")),
    case("nn.MaxPool2d((3, 2), stride=(2, 1), padding=(0, 1))", "x(3, 7, 8)"),
    *(case(f"nn.AvgPool{n}d({args})", f"x(2, 3, {', '.join(['7'] * n)})") for n in (1, 2, 3)
      for args in ("2", "3, 2, 1", "3, 2, 1, count_include_pad=False", "3, 2, ceil_mode=True")),
    case("nn.AvgPool2d((3, 2), divisor_override=2)", "x(3, 7, 8)"),
    case("nn.AvgPool3d(2, divisor_override=3)", "x(3, 7, 8, 4)"),
    *(case(f"nn.LPPool{n}d(2, {args})", f"x(2, 3, {', '.join(['7'] * n)})", tolerance=10) for n in (1, 2, 3)
      for args in ("2", "3, stride=2", "3, 2, ceil_mode=True")),
    *(case(f"nn.AdaptiveAvgPool{n}d({args})", f"x(2, 3, {', '.join(['7'] * n)})") for n in (1, 2, 3) for args in (1, 4)),
    case("nn.AdaptiveAvgPool2d((None, 3))", "x(3, 7, 8)"),
    *(case(f"nn.AdaptiveMaxPool{n}d({args})", f"x(2, 3, {', '.join(['7'] * n)})") for n in (1, 2, 3)
      for args in ("1", "4", "3, return_indices=True")),
    case("nn.AdaptiveMaxPool3d((2, None, 3))", "x(3, 7, 8, 4)"),
    case("nn.FractionalMaxPool2d(2, output_size=3)", "x(2, 3, 7, 8)", random="always"),
    case("nn.FractionalMaxPool2d(2, output_ratio=0.5, _random_samples=lib.full((2, 3, 2), 0.4))", "x(2, 3, 8, 8)"),
    case("nn.FractionalMaxPool3d(2, output_ratio=(0.5, 0.5, 0.6), return_indices=True, _random_samples=lib.full((2, 3, 3), 0.4))", "x(2, 3, 8, 8, 6)"),
    case("nn.MaxUnpool1d(2)", "x(1, 1, 3), ints([[[0, 3, 4]]])"),
    case("nn.MaxUnpool2d(2, stride=2)", "x(1, 1, 2, 2), ints([[[[0, 3], [10, 13]]]])"),
    case("nn.MaxUnpool2d(2, stride=2)", "x(1, 1, 2, 2), ints([[[[0, 3], [10, 13]]]])", call="m(*a, output_size=(1, 1, 5, 4))"),
    case("nn.MaxUnpool3d(2)", "x(1, 1, 1, 2, 2), ints([[[[[0, 3], [10, 13]]]]])"),
    case("nn.CosineSimilarity()", "x(3, 4), x(3, 4)"),
    case("nn.CosineSimilarity(dim=0, eps=1e-3)", "x(3, 4), x(3, 4)"),
    case("nn.PairwiseDistance()", "x(3, 4), x(3, 4)"),
    case("nn.PairwiseDistance(1, 1e-2, True)", "x(3, 4), x(3, 4)"),
    case("nn.PixelShuffle(2)", "x(1, 8, 3, 2)"),
    case("nn.PixelUnshuffle(2)", "x(1, 2, 4, 6)"),
    case("nn.ChannelShuffle(2)", "x(1, 6, 2, 3)"),
    case("nn.Flatten()", "x(2, 3, 4)"),
    case("nn.Flatten(0, 1)", "x(2, 3, 4)"),
    case("nn.Unflatten(1, (2, -1))", "x(2, 6)"),
    case("nn.Unflatten(-1, (3, 2))", "x(2, 6)"),
    case("nn.Fold((4, 5), (2, 2))", "x(2, 8, 12)"),
    case("nn.Fold(6, 3, dilation=1, padding=1, stride=2)", "x(2, 18, 9)"),
    case("nn.Unfold(2)", "x(2, 3, 4, 5)"),
    case("nn.Unfold((2, 3), dilation=2, padding=1, stride=(1, 2))", "x(2, 3, 6, 7)"),
    *(case(f"nn.{kind}Pad{n}d({p})", f"x(2, 3, {', '.join(['4'] * n)})") for n in (1, 2, 3)
      for kind in ("Reflection", "Replication", "Circular", "Zero") for p in ("2", str(tuple(range(1, 3)) * n))),
    *(case(f"nn.ConstantPad{n}d({p}, 1.5)", f"x(2, 3, {', '.join(['4'] * n)})") for n in (1, 2, 3)
      for p in ("2", str((1, -1) * n))),
    case("nn.Upsample(scale_factor=2)", "x(1, 2, 3)"),
    case("nn.Upsample(size=(5, 4))", "x(1, 2, 3, 3)"),
    case("nn.Upsample(scale_factor=(2, 1.5), mode='bilinear', align_corners=True)", "x(1, 2, 3, 4)"),
    case("nn.Upsample(scale_factor=2, mode='bicubic')", "x(1, 2, 3, 4)"),
    case("nn.Upsample(scale_factor=2.3, mode='linear', recompute_scale_factor=True)", "x(1, 2, 5)"),
    case("nn.Upsample(size=4, mode='trilinear')", "x(1, 2, 3, 2, 2)"),
    case("nn.UpsamplingNearest2d(scale_factor=2)", "x(1, 2, 3, 4)"),
    case("nn.UpsamplingBilinear2d(size=(5, 6))", "x(1, 2, 3, 4)"),
    *(case(f"nn.{loss}(reduction='{reduction}')", "x(3, 4), x(3, 4)") for reduction in ("none", "mean", "sum")
      for loss in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss")),
    case("nn.L1Loss(size_average=False)", "x(3, 4), x(3, 4)"),
    case("nn.MSELoss(reduce=False)", "x(3, 4), x(3, 4)"),
    case("nn.SmoothL1Loss(beta=0.3)", "x(3, 4), x(3, 4)"),
    case("nn.HuberLoss(delta=0.3)", "x(3, 4), x(3, 4)"),
    case("nn.BCELoss()", "u(3, 4), u(3, 4)"),
    case("nn.BCELoss(lib.arange(4.) + 1, reduction='sum')", "u(3, 4), u(3, 4)"),
    case("nn.BCEWithLogitsLoss(weight=lib.arange(4.) + 1, pos_weight=lib.arange(4.) + 2)", "x(3, 4), u(3, 4)"),
    *(case(f"nn.{loss}({args})", "x(3, 5), idx(5, 3)") for loss in ("NLLLoss", "CrossEntropyLoss", "MultiMarginLoss")
      for args in ("", "reduction='sum'", "reduction='none'", "weight=lib.arange(5.) + 1")),
    case("nn.NLLLoss(ignore_index=2)", "x(6, 5), idx(5, 6)"),
    case("nn.NLLLoss()", "x(2, 5, 3, 3), idx(5, 2, 3, 3)"),
    case("nn.NLLLoss2d()", "x(2, 5, 3, 3), idx(5, 2, 3, 3)"),
    case("nn.CrossEntropyLoss(ignore_index=1, label_smoothing=0.1)", "x(6, 5), idx(5, 6)"),
    case("nn.CrossEntropyLoss(label_smoothing=0.1)", "x(6, 5), u(6, 5)"),
    case("nn.CrossEntropyLoss()", "x(2, 5, 3), idx(5, 2, 3)"),
    case("nn.MultiMarginLoss(p=2, margin=0.5)", "x(3, 5), idx(5, 3)"),
    case("nn.LinearCrossEntropyLoss(4, 5)", "x(3, 4), idx(5, 3)"),
    case("nn.LinearCrossEntropyLoss(4, 5, bias=True, label_smoothing=0.1, reduction='sum', ignore_index=1)", "x(3, 4), idx(5, 3)"),
    case("nn.LinearCrossEntropyLoss(4, 5, out_features=(2,), bias=True)", "x(3, 4), idx(5, 3, 2)"),
    case("nn.PoissonNLLLoss()", "x(3, 4), u(3, 4)"),
    case("nn.PoissonNLLLoss(log_input=False, full=True, reduction='sum')", "u(3, 4), u(3, 4) + 2"),
    case("nn.GaussianNLLLoss()", "x(3, 4), x(3, 4), u(3, 4)"),
    case("nn.GaussianNLLLoss(full=True, eps=0.3, reduction='none')", "x(3, 4), x(3, 4), u(3, 1)"),
    case("nn.KLDivLoss(reduction='batchmean')", "x(3, 4), u(3, 4)"),
    case("nn.KLDivLoss(log_target=True, reduction='sum')", "x(3, 4), x(3, 4)"),
    case("nn.HingeEmbeddingLoss()", "x(3, 4), sgn(3, 4)"),
    case("nn.HingeEmbeddingLoss(0.5, reduction='none')", "x(3, 4), sgn(3, 4)"),
    case("nn.MultiLabelMarginLoss()", "x(2, 4), ints([[3, 0, -1, 1], [1, -1, 0, 2]])"),
    case("nn.MultiLabelMarginLoss(reduction='none')", "x(2, 4), ints([[3, 0, -1, 1], [1, -1, 0, 2]])"),
    case("nn.SoftMarginLoss()", "x(3, 4), sgn(3, 4)"),
    case("nn.MultiLabelSoftMarginLoss()", "x(3, 4), u(3, 4)"),
    case("nn.MultiLabelSoftMarginLoss(weight=lib.arange(4.), reduction='sum')", "x(3, 4), u(3, 4)"),
    case("nn.CosineEmbeddingLoss()", "x(3, 4), x(3, 4), sgn(3)"),
    case("nn.CosineEmbeddingLoss(0.3, reduction='sum')", "x(3, 4), x(3, 4), sgn(3)"),
    case("nn.MarginRankingLoss(0.2)", "x(5), x(5), sgn(5)"),
    case("nn.TripletMarginLoss()", "x(3, 4), x(3, 4), x(3, 4)"),
    case("nn.TripletMarginLoss(margin=2.0, p=1, swap=True, reduction='none')", "x(3, 4), x(3, 4), x(3, 4)"),
    case("nn.TripletMarginWithDistanceLoss()", "x(3, 4), x(3, 4), x(3, 4)"),
    case("nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1), swap=True)", "x(3, 4), x(3, 4), x(3, 4)"),
    case("nn.CTCLoss()", "x(6, 2, 5).log_softmax(-1), idx(4, 2, 3) + 1, ints([6, 5]), ints([3, 2])"),
    case("nn.CTCLoss(blank=2, reduction='sum', zero_infinity=True)", "x(6, 2, 5).log_softmax(-1), idx(2, 2, 3), ints([6, 5]), ints([3, 2])"),
    *(case(f"nn.{kind}(3, 5{options})", "x(4, 2, 3)") for kind in ("RNN", "LSTM", "GRU")
      for options in ("", ", 2", ", bidirectional=True", ", 2, bidirectional=True, batch_first=True", ", bias=False",
                      ", num_layers=3, bias=False, bidirectional=True")),
    *(case(f"nn.{kind}(3, 5, 2, bidirectional=True{first})", "x(4, 3)") for kind in ("RNN", "LSTM", "GRU")
      for first in ("", ", batch_first=True")),
    *(case(f"nn.{kind}(3, 5, 2, bidirectional=True, dropout=0.3)", "x(4, 2, 3)", random=True)
      for kind in ("RNN", "LSTM", "GRU")),
    *(case(f"nn.{kind}(3, 5)", f"x(4, 2, 3), {state}") for kind, state in
      (("RNN", "x(1, 2, 5)"), ("GRU", "x(1, 2, 5)"), ("LSTM", "(x(1, 2, 5), x(1, 2, 5))"))),
    *(case(f"nn.{kind}(3, 5, 2, bidirectional=True)", f"pack(x(4, 3, 3), {lengths}, False, {ordered}), {state}")
      for lengths, ordered in (([4, 2, 1], True), ([1, 4, 3], False)) for kind, state in
      (("RNN", "x(4, 3, 5)"), ("GRU", "x(4, 3, 5)"), ("LSTM", "(x(4, 3, 5), x(4, 3, 5))"))),
    case("nn.RNN(3, 5, 2, 'relu')", "x(4, 2, 3)"),
    case("nn.RNN(3, 5, nonlinearity='relu', batch_first=True)", "x(4, 2, 3)"),
    case("nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True)", "x(4, 2, 3)"),
    case("nn.LSTM(3, 5, proj_size=2, bias=False, batch_first=True)", "x(4, 2, 3), (x(1, 4, 2), x(1, 4, 5))"),
    case("nn.LSTM(3, 5, proj_size=2)", "pack(x(4, 3, 3), [4, 2, 1])"),
    case("nn.LSTM(16, 40, batch_first=True)", "x(9, 12, 16)", tolerance=10),
    case("nn.GRU(16, 40, 2, batch_first=True, bidirectional=True)", "x(9, 12, 16)", tolerance=10),
    *(case(f"nn.{kind}({options})", inputs) for kind in ("RNNCell", "GRUCell") for options, inputs in
      (("3, 5", "x(2, 3)"), ("3, 5, bias=False", "x(2, 3), x(2, 5)"), ("3, 5", "x(3)"), ("3, 5", "x(3), x(5)"))),
    case("nn.RNNCell(3, 5, nonlinearity='relu')", "x(2, 3)"),
    case("nn.LSTMCell(3, 5)", "x(2, 3)"),
    case("nn.LSTMCell(3, 5, bias=False)", "x(2, 3), (x(2, 5), x(2, 5))"),
    case("nn.LSTMCell(3, 5)", "x(3), (x(5), x(5))"),
    *(case(f"nn.MultiheadAttention(8, 2{options})", inputs) for options in ("", ", bias=False", ", add_bias_kv=True",
      ", add_zero_attn=True", ", batch_first=True", ", add_bias_kv=True, add_zero_attn=True, batch_first=True")
      for inputs in ("x(4, 4, 8), x(4, 4, 8), x(4, 4, 8)", "*[x(4, 3, 8)] * 3", "x(5, 8), *[x(6, 8)] * 2")),
    case("nn.MultiheadAttention(8, 2, kdim=3, vdim=5)", "x(4, 2, 8), x(6, 2, 3), x(6, 2, 5)"),
    case("nn.MultiheadAttention(8, 2, batch_first=True)", "x(2, 4, 8), *[x(2, 6, 8)] * 2", call="m(*a, need_weights=False)"),
    case("nn.MultiheadAttention(8, 2)", "*[x(4, 2, 8)] * 3", call="m(*a, average_attn_weights=False)"),
    case("nn.MultiheadAttention(8, 2)", "*[x(4, 2, 8)] * 3", call="m(*a, attn_mask=lib.ones(4, 4).triu(1).bool())"),
    case("nn.MultiheadAttention(8, 2, add_bias_kv=True)", "*[x(4, 2, 8)] * 3",
         call="m(*a, attn_mask=lib.ones(4, 4).triu(1).bool(), key_padding_mask=lib.tensor([[False] * 4, [False, True, False, True]]))"),
    case("nn.MultiheadAttention(8, 2, dropout=0.2)", "*[x(4, 2, 8)] * 3", random=True),
    *(case(f"nn.TransformerEncoderLayer(8, 2, 16, 0.0{options})", "x(4, 3, 8)") for options in
      ("", ", 'gelu'", ", norm_first=True", ", bias=False", ", batch_first=True, layer_norm_eps=0.1", ", activation=nn.SiLU()")),
    case("nn.TransformerEncoderLayer(8, 2, 16)", "x(4, 3, 8)", random=True),
    case("nn.TransformerEncoderLayer(8, 2, 16, 0.0)", "x(4, 8), nn.Transformer.generate_square_subsequent_mask(4, dtype=dt)"),
    *(case(f"nn.TransformerDecoderLayer(8, 2, 16, 0.0{options})", "x(4, 3, 8), x(5, 3, 8)") for options in
      ("", ", 'gelu'", ", norm_first=True", ", bias=False")),
    case("nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)", "x(4, 3, 8), x(4, 5, 8)"),
    case("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8))", "x(4, 3, 8)"),
    case("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2, enable_nested_tensor=False)",
         "x(4, 3, 8)", call="m(*a, mask=lib.ones(3, 3).triu(1).bool(), src_key_padding_mask=lib.tensor([[False, False, True]] * 4))"),
    case("nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8))", "x(4, 3, 8), x(5, 3, 8)"),
    case("nn.Transformer(8, 2, 2, 2, 16, 0.0)", "x(4, 3, 8), x(5, 3, 8)"),
    case("nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True, norm_first=True, bias=False)", "x(3, 4, 8), x(3, 5, 8)",
         call="m(*a, tgt_mask=m.generate_square_subsequent_mask(5, dtype=a[0].dtype))"),
    case("nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10, 15], div_value=2.0)", "x(12, 16), idx(20, 12)"),
    case("nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10], head_bias=True)", "x(16), idx(20)"),
    case("nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10], div_value=2.0)", "x(12, 16)", call="(m.log_prob(*a), m.predict(*a))"),
    case("nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))", "x(2, 3, 6, 6)"),
]  # fmt: skip


def evaluate(expression, lib, dtype, seed=0):
    """The inputs in one library: (arguments, leaves that want a gradient)."""
    generator = np.random.default_rng(seed)
    leaves = []

    def number(array, wants=True):
        tensor = lib.tensor(array.tolist(), dtype=getattr(lib, dtype)).reshape(array.shape)
        if wants:
            tensor.requires_grad_(True)
            leaves.append(tensor)
        return tensor

    names = {
        "x": lambda *shape: number(generator.standard_normal(shape)),
        "u": lambda *shape: number(generator.uniform(0.05, 0.95, shape), wants=not leaves),
        "sgn": lambda *shape: number(generator.choice([-1.0, 1.0], shape), wants=False),
        "b": lambda *shape: lib.tensor(generator.integers(0, 2, shape).astype(bool).tolist()),
        "idx": lambda n, *shape: lib.tensor(generator.integers(0, n, shape).tolist()).reshape(shape),
        "ints": lambda values: lib.tensor(values),
        "pack": lib.nn.utils.rnn.pack_padded_sequence,
        "lib": lib,
        "nn": lib.nn,
        "dt": getattr(lib, dtype),
    }
    arguments = eval(f"({expression},)", names)
    return arguments, leaves


def tensors(value):
    """All tensors in a result, in order."""
    if isinstance(value, (torch.Tensor, fl.Tensor)):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def numpy(tensor):
    return np.asarray(tensor.detach().numpy())


def make(expression, lib, dtype):
    module = eval(expression, {"nn": lib.nn, "lib": lib})
    return module.to(getattr(lib, dtype))


def same_weights(ours, theirs):
    """Random weights, put into both. Means and variances stay as they were made."""
    generator = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if not isinstance(parameter, torch.nn.UninitializedParameter):
                parameter.copy_(torch.from_numpy(0.3 * generator.standard_normal(parameter.shape)))
    state = {key: fl.tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    assert ours.load_state_dict(state).missing_keys == []


def run(case, lib, module, dtype):
    arguments, leaves = evaluate(case.inputs, lib, dtype)
    out = tensors(eval(case.call, {"m": module, "a": arguments, "lib": lib}))
    generator = np.random.default_rng(2)
    loss = None
    for tensor in out:
        if tensor.requires_grad:
            factor = lib.tensor(generator.standard_normal(tuple(tensor.shape)).tolist(), dtype=tensor.dtype)
            term = (tensor * factor.reshape(tensor.shape)).sum()
            loss = term if loss is None else loss + term
    grads = []
    if loss is not None:
        loss.backward()
        grads = [leaf.grad for leaf in leaves] + [p.grad for p in module.parameters()]
    module.zero_grad()
    return out, grads


def compare(ours, theirs, dtype, tolerance, what):
    assert len(ours) == len(theirs), what
    for place, (a, b) in enumerate(zip(ours, theirs)):
        assert (a is None) == (b is None), f"{what} {place}"
        if a is None:
            continue
        assert tuple(a.shape) == tuple(b.shape), f"{what} {place}"
        assert str(a.dtype).split(".")[-1] == str(b.dtype).split(".")[-1], f"{what} {place}"
        limit = tolerance * (1e-5 if dtype == "float32" else 1e-10)
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=10 * limit, atol=limit, err_msg=f"{what} {place}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_module(case, dtype):
    fl.manual_seed(0), torch.manual_seed(0)
    ours, theirs = make(case.module, fl, dtype), make(case.module, torch, dtype)
    if case.repr:
        assert repr(ours) == repr(theirs)
    if case.lazy:
        for lib, module in ((fl, ours), (torch, theirs)):
            run(case, lib, module, dtype)
        assert type(ours).__name__ == type(theirs).__name__
        assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
    same_weights(ours, theirs)
    for name, value in vars(theirs).items():
        if not name.startswith("_") and isinstance(value, (int, float, bool, str, tuple, type(None))):
            assert getattr(ours, name) == value, name
    for training in (True, False):
        ours.train(training), theirs.train(training)
        expected, expected_grads = run(case, torch, theirs, dtype)
        got, got_grads = run(case, fl, ours, dtype)
        if case.random and (training or case.random == "always"):
            assert [tuple(t.shape) for t in got] == [tuple(t.shape) for t in expected]
            continue
        compare(got, expected, dtype, case.tolerance, f"output, training={training},")
        if case.grad:
            compare(got_grads, expected_grads, dtype, case.tolerance, f"gradient, training={training},")
        compare([b for _, b in ours.named_buffers()], [b for _, b in theirs.named_buffers()], dtype, 1.0, "buffer")
    if case.random == "always":
        return
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        again, _ = run(case, fl, twin, dtype)
        compare(again, expected, dtype, case.tolerance, "output of a copy")


def test_every_module_has_a_case():
    tested = " ".join(param.values[0].module for param in CASES)
    skipped = {"Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Container", "RNNBase",
               "RNNCellBase", "DataParallel"}  # fmt: skip
    for name in dir(torch.nn):
        value = getattr(torch.nn, name)
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and name not in skipped:
            assert f"nn.{name}(" in tested or f"nn.{name}." in tested, name


def test_a_dict_of_parameters_prints_as_pytorchs():
    texts = [repr(lib.nn.ParameterDict({"x": lib.nn.Parameter(lib.ones(2, 3))})) for lib in (torch, fl)]
    assert texts[0] == texts[1]
