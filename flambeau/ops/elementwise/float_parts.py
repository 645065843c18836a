"""Taking floating numbers apart into mantissa and exponent."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite


@composite(results="mantissa exponent", out=True)
def frexp(self: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    """self = mantissa * 2 ** exponent with 0.5 <= |mantissa| < 1; zeros, infinities and NaNs have exponent 0."""
    if not self.dtype.is_floating_point:
        raise RuntimeError(f"[frexp] expected a floating tensor, got {self.dtype}")
    x = self if self.dtype in (fl.float32, fl.float64) else self.float()
    integer, fraction_bits, exponent_mask, bias = (
        (fl.int64, 52, 0x7FF, 1022) if x.dtype == fl.float64 else (fl.int32, 23, 0xFF, 126)
    )
    # Numbers below the normal range are first scaled into it.
    small = x.abs() < fl.finfo(x.dtype).smallest_normal
    lift = fraction_bits + 1
    bits = fl.where(small, x * 2.0**lift, x).view(integer)
    special = (x == 0) | ~fl.isfinite(x)
    field = (bits >> fraction_bits) & exponent_mask
    exponent = (field - bias - lift * small.to(integer)).masked_fill(special, 0).to(fl.int32)
    mantissa = ((bits & ~(exponent_mask << fraction_bits)) | (bias << fraction_bits)).view(x.dtype)
    if self.requires_grad and fl.is_grad_enabled():
        return fl.ldexp(self, -exponent).to(self.dtype), exponent
    return fl.where(special, x, mantissa).to(self.dtype), exponent
