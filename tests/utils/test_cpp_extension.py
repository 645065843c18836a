"""Extensions in C++: functions over tensors, operators, errors, and builds that are found again."""

import os
import shutil

import pytest

import flambeau as fl
from flambeau.utils import cpp_extension

pytest.importorskip("pybind11")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None and shutil.which("c++") is None, reason="no compiler")

SOURCE = """
torch::Tensor twice_plus(torch::Tensor a, torch::Tensor b, double scale, c10::optional<torch::Tensor> bias) {
  TORCH_CHECK(a.sizes() == b.sizes(), "expected equal sizes, got ", a.dim(), " and ", b.dim(), " dimensions");
  auto x = a.contiguous(), y = b.contiguous();
  auto out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "twice_plus", [&] {
    const scalar_t *p = x.data_ptr<scalar_t>(), *q = y.data_ptr<scalar_t>();
    scalar_t* o = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) o[i] = static_cast<scalar_t>(2 * p[i] + scale * q[i]);
  });
  return bias ? out + *bias : out;
}

std::vector<torch::Tensor> several(const torch::Tensor& t, std::vector<int64_t> sizes) {
  torch::NoGradGuard none;
  auto z = torch::zeros({2, 3}, t.options());
  auto elements = z.accessor<float, 2>();
  for (int64_t i = 0; i < elements.size(0); ++i)
    for (int64_t j = 0; j < elements.size(1); ++j) elements[i][j] = 10 * i + j;
  return {z, t.view({-1}), 1.0 - t, t.sum({0}), torch::matmul(t, t.t()), t.reshape(sizes), t[1], -t};
}

int64_t wrong_type(torch::Tensor t) { return *t.data_ptr<int64_t>(); }

TORCH_LIBRARY(test_of_extensions, m) {
  m.def("twice(Tensor a) -> Tensor", [](const at::Tensor& a) { return a * 2.0; });
  m.def("thrice(Tensor a, int times=3) -> Tensor");
}
TORCH_LIBRARY_IMPL(test_of_extensions, CPU, m) {
  m.impl("thrice", [](const at::Tensor& a, int64_t times) { return a * double(times); });
}
"""


def test_functions_and_operators(tmp_path):
    functions = {"twice_plus": "2 a + scale b", "several": "views", "wrong_type": ""}
    module = cpp_extension.load_inline(
        "test_extension", SOURCE, functions=functions, extra_cflags=["-O0"], build_directory=str(tmp_path)
    )
    assert "2 a + scale b" in module.twice_plus.__doc__
    for dtype in (fl.float32, fl.float64, fl.float16, fl.bfloat16):
        a, b = fl.randn(3, 4).to(dtype), fl.randn(4, 3).to(dtype).t()
        want = (2 * a.double() + 0.5 * b.double() + 1).to(dtype)
        fl.testing.assert_close(module.twice_plus(a, b, 0.5, fl.ones(1, dtype=dtype)), want, rtol=1e-2, atol=1e-2)
    x = fl.arange(6.0).reshape(2, 3).requires_grad_()
    made = module.several(x, [3, 2])
    assert made[0].tolist() == [[0, 1, 2], [10, 11, 12]] and not any(t.requires_grad for t in made)
    expected = [x.view(-1), 1 - x, x.sum(0), x @ x.t(), x.reshape(3, 2), x[1], -x]
    assert all(bool((m == e).all()) for m, e in zip(made[1:], expected))
    assert fl.ops.test_of_extensions.twice(fl.ones(2)).tolist() == [2, 2]
    assert fl.ops.test_of_extensions.thrice(fl.ones(2)).tolist() == [3, 3]
    assert fl.ops.test_of_extensions.thrice.default(fl.ones(2), 5).tolist() == [5, 5]

    with pytest.raises(RuntimeError, match="expected equal sizes, got 1 and 2 dimensions"):
        module.twice_plus(fl.ones(2), fl.ones(2, 2), 1.0, None)
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Float"):
        module.wrong_type(fl.ones(2))
    with pytest.raises(RuntimeError, match="\"twice_plus\" not implemented for 'Long'"):
        module.twice_plus(fl.ones(2, dtype=fl.int64), fl.ones(2, dtype=fl.int64), 1.0, None)
    with pytest.raises(TypeError):
        module.twice_plus(1, 2, 3.0, None)


def test_a_build_is_found_again(tmp_path):
    def build(flags):
        return cpp_extension.load_inline(
            "plain", 'extern "C" int f() { return 1; }', build_directory=str(tmp_path), extra_cflags=flags,
            no_implicit_headers=True, is_python_module=False,
        )  # fmt: skip

    first = build(["-O0"])
    time = os.stat(first).st_mtime_ns
    assert build(["-O0"]) == first and os.stat(first).st_mtime_ns == time
    assert build(["-O1"]) != first


def test_sources_that_do_not_compile(tmp_path):
    with pytest.raises(RuntimeError, match="expected the sources to compile"):
        cpp_extension.load_inline(
            "broken", "int f( {", functions="f", build_directory=str(tmp_path), no_implicit_headers=True
        )
    assert not list(tmp_path.glob("*/broken.so"))
