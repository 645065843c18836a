"""A user's own kernels, in CUDA and in Triton: called, differentiated, captured."""

import subprocess
import sys

import pytest

import flambeau as fl
from flambeau.utils import cpp_extension

CPP = "torch::Tensor scale(torch::Tensor x, double by);"
CUDA = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <class T>
__global__ void scaled(at::PackedTensorAccessor32<T, 2, at::RestrictPtrTraits> in, T* out, float by) {
  const int i = blockIdx.x, j = threadIdx.x;
  if (j < in.size(1)) out[i * in.size(1) + j] = static_cast<T>(static_cast<float>(in[i][j]) * by);
}

torch::Tensor scale(torch::Tensor x, double by) {
  TORCH_CHECK(x.is_cuda(), "expected a tensor on CUDA, got one on ", x.device());
  const at::cuda::CUDAGuard guard(x.device());
  auto out = torch::empty({x.size(0), x.size(1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", ([&] {
    scaled<scalar_t><<<x.size(0), x.size(1), 0, at::cuda::getCurrentCUDAStream()>>>(
        x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), out.data_ptr<scalar_t>(), by);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory):
    pytest.importorskip("pybind11")
    if cpp_extension.CUDA_HOME is None:
        pytest.skip("no CUDA toolkit")
    folder = str(tmp_path_factory.mktemp("extension"))
    return cpp_extension.load_inline(
        "test_cuda_extension", CPP, CUDA, functions=["scale"], build_directory=folder
    ).scale


def test_a_kernel_in_cuda(scale):
    for dtype in (fl.float32, fl.float64, fl.float16, fl.bfloat16):
        x = fl.randn(7, 33, device="cuda").to(dtype)
        fl.testing.assert_close(scale(x.t().contiguous().t(), 3.0), x * 3)
    with fl.cuda.stream(fl.cuda.Stream()):
        x = fl.ones(4, 4, device="cuda")
        assert scale(x, 2.0).sum().item() == 32
    with pytest.raises(RuntimeError, match="expected a tensor on CUDA, got one on cpu"):
        scale(fl.ones(2, 2), 1.0)


def test_it_is_differentiated_and_captured(scale):
    @fl.library.custom_op("test_cuda_extension::scale", mutates_args=())
    def op(x: fl.Tensor, by: float) -> fl.Tensor:
        return scale(x, by)

    op.register_fake(lambda x, by: fl.empty_like(x))
    op.register_autograd(
        lambda ctx, gradient: (op(gradient, ctx.by), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )

    def function(x):
        return (op(x.sin(), 3.0) * 2).sum()

    x = fl.randn(5, 6, device="cuda", requires_grad=True)
    run = fl.compile(function, fullgraph=True)
    for f in (function, run):
        x.grad = None
        f(x).backward()
        fl.testing.assert_close(x.grad, 6 * x.detach().cos(), rtol=1e-4, atol=1e-4)


TRITON = """
import flambeau.as_torch
import torch, triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)

@torch.library.custom_op("user::double", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y

op.register_fake(lambda x: torch.empty_like(x))
op.register_autograd(lambda ctx, gradient: op(gradient))

def function(x):
    return op(x.sin()).sum()

x = torch.randn(1000, device="cuda", requires_grad=True)
for f in (function, torch.compile(function, fullgraph=True)):
    x.grad = None
    f(x).backward()
    assert torch.allclose(x.grad, 2 * x.detach().cos(), atol=1e-5)
"""


def test_a_kernel_in_triton(tmp_path):
    """Triton asks the module `torch` for devices and streams."""
    pytest.importorskip("triton")
    script = tmp_path / "kernel.py"
    script.write_text(TRITON)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
