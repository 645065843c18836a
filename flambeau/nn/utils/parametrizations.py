"""Ready parametrisations: orthogonal matrices, weights by length and direction, division by the spectral norm."""

from __future__ import annotations

from enum import Enum, auto

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _is_orthogonal(Q: Tensor, eps: float | None = None) -> bool:
    rows, columns = Q.size(-2), Q.size(-1)
    identity = fl.eye(columns, dtype=Q.dtype, device=Q.device)
    tolerance = 10.0 * rows * fl.finfo(Q.dtype).eps if eps is None else eps
    return bool(fl.allclose(Q.mH @ Q, identity, atol=tolerance))


def _make_orthogonal(A: Tensor) -> Tensor:
    """The orthogonal factor of a matrix, made unique by a positive diagonal of the other one."""
    X, tau = fl.geqrf(A)
    Q = fl.linalg.householder_product(X, tau)
    return Q * X.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """An orthogonal matrix from any matrix, by the exponential or Cayley map of a skew one or Householder reflections."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("[orthogonal] expected a real tensor for the householder map, got a complex one")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        rows, columns = X.size(-2), X.size(-1)
        transposed = rows < columns
        if transposed:
            X = X.mT
            rows, columns = columns, rows
        if self.orthogonal_map == _OrthMaps.householder:
            A = X.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (A * A).sum(dim=-2))
            Q = fl.linalg.householder_product(A, tau)
            # The diagonal of X holds the signs.
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            A = X.tril()
            if rows != columns:
                A = fl.cat([A, A.new_zeros(rows, rows - columns).expand(*A.shape[:-2], -1, -1)], dim=-1)
            A = A - A.mH
            if self.orthogonal_map == _OrthMaps.matrix_exp:
                Q = fl.matrix_exp(A)
            else:
                identity = fl.eye(rows, dtype=A.dtype, device=A.device)
                Q = fl.linalg.solve(identity.add(A, alpha=-0.5), identity.add(A, alpha=0.5))
            if rows != columns:
                Q = Q[..., :columns]
        if hasattr(self, "base") and self.base is not None:
            Q = self.base @ Q
        return Q.mT if transposed else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"[orthogonal] expected a matrix of shape {tuple(self.shape)}, got {tuple(Q.shape)}")
        transposed = Q.size(-2) < Q.size(-1)
        if transposed:
            Q = Q.mT
        rows, columns = Q.size(-2), Q.size(-1)
        if not hasattr(self, "base"):
            if self.orthogonal_map in (_OrthMaps.cayley, _OrthMaps.matrix_exp):
                raise NotImplementedError(
                    f"[orthogonal] expected use_trivialization=True to assign with the {self.orthogonal_map.name} map"
                )
            # Householder vectors of the matrix, with the signs of the diagonal on theirs.
            A, tau = fl.geqrf(Q)
            A.diagonal(dim1=-2, dim2=-1).sign_()
            A.diagonal(dim1=-2, dim2=-1)[tau == 0.0] *= -1
            return A.mT if transposed else A
        if rows == columns:
            self.base = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        else:
            # The base has to be square: a random complement of the columns, made orthogonal to them.
            other = fl.randn(*Q.shape[:-2], rows, rows - columns, dtype=Q.dtype, device=Q.device)
            whole = fl.cat([Q if _is_orthogonal(Q) else _make_orthogonal(Q), other], dim=-1)
            self.base = _make_orthogonal(whole)
        start = fl.zeros_like(Q)
        if self.orthogonal_map == _OrthMaps.householder:
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start.mT if transposed else start


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keeps a matrix, or batch of matrices, orthogonal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"[orthogonal] expected a parameter or buffer {name!r}, got none in {type(module).__name__}")
    if weight.ndim < 2:
        raise ValueError(f"[orthogonal] expected a matrix or batch of them, got {weight.ndim} dimensions")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1) or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    chosen = getattr(_OrthMaps, orthogonal_map, None)
    if chosen is None:
        raise ValueError(
            f"[orthogonal] expected orthogonal_map matrix_exp, cayley or householder, got {orthogonal_map!r}"
        )
    parametrization = _Orthogonal(weight, chosen, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, parametrization, unsafe=True)


class _WeightNorm(Module):
    """A weight of given lengths and directions."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return fl._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return fl.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Writes a weight by its lengths along a dimension (original0) and its directions (original1)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):  # type: ignore[no-untyped-def]
        # State dicts of the deprecated hook hold the same tensors as name_g and name_v.
        old, new = f"{prefix}{name}", f"{prefix}parametrizations.{name}.original"
        if f"{old}_g" in state_dict and f"{old}_v" in state_dict:
            state_dict[f"{new}0"] = state_dict.pop(f"{old}_g")
            state_dict[f"{new}1"] = state_dict.pop(f"{old}_v")

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """Division by the largest singular value, followed by power iteration while training."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(f"[spectral_norm] expected dim in [{-weight.ndim}, {weight.ndim - 1}], got {dim}")
        if n_power_iterations <= 0:
            raise ValueError(f"[spectral_norm] expected n_power_iterations > 0, got {n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            rows, columns = matrix.size()
            self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(0, 1), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(0, 1), dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        with fl.no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(F.normalize(fl.mv(weight_mat, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(fl.mv(weight_mat.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / fl.vdot(u, fl.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(
            f"[spectral_norm] expected a parameter or buffer {name!r}, got none in {type(module).__name__}"
        )
    if dim is None:
        transposed = fl.nn.ConvTranspose1d, fl.nn.ConvTranspose2d, fl.nn.ConvTranspose3d
        dim = 1 if isinstance(module, transposed) else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module
