"""Forward methods of the layers of `nn` in the language of scripts, for layers whose own use what it lacks."""

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F

aten = flambeau.ops.aten
torch = flambeau


class _Conv:
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode != "zeros":
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            none = [0] * len(self.stride)
            return self._function(padded, weight, bias, self.stride, none, self.dilation, self.groups)
        return self._function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def _transposed_padding(
    input: Tensor,
    output_size: list[int] | None,
    stride: list[int],
    padding: list[int],
    kernel_size: list[int],
    dilation: list[int],
    output_padding: list[int],
) -> list[int]:
    if output_size is None:
        return output_padding
    result: list[int] = []
    for i in range(len(kernel_size)):
        least = (input.size(i + 2) - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel_size[i] - 1) + 1
        result.append(output_size[len(output_size) - len(kernel_size) + i] - least)
    return result


class _ConvTransposeNd:
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        extra = _transposed_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self.dilation, self.output_padding
        )
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class _BatchNorm:
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if self.momentum is None:
            exponential_average_factor = 0.0
        else:
            exponential_average_factor = self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                exponential_average_factor = 1.0 / float(self.num_batches_tracked)
        if self.training:
            bn_training = True
        else:
            bn_training = (self.running_mean is None) and (self.running_var is None)
        return F.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight,
            self.bias,
            bn_training,
            exponential_average_factor,
            self.eps,
        )

    def _check_input_dim(self, input: Tensor) -> None:
        pass


class BatchNorm1d(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 2 and input.dim() != 3:
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class SyncBatchNorm(_BatchNorm):
    def forward(self, input: Tensor) -> Tensor:
        return F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            0.1,
            self.eps,
        )


class _InstanceNorm:
    def forward(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )


class LayerNorm:
    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class _ReflectionPadNd:
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "reflect")


class _ReplicationPadNd:
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "replicate")


class _CircularPadNd:
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "circular")


class Sequential:
    def forward(self, input):  # type: ignore[no-untyped-def]
        for module in self:
            input = module(input)
        return input


class CTCLoss:
    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
