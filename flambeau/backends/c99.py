"""The vocabulary of expressions in portable C, shared by all printers of C-like languages.

Op records are written with some 120 operations (`VOCABULARY`). Most are operators or functions of C's mathematical library;
the others have bodies here, in C99 that OpenCL C and other relatives read as well. Types are called T in a body, functions of
the library are marked with @, so that a dialect can spell them, and other bodies with $. Numbers are computed in float, double or 64-bit integers;
complex numbers and the special functions in `WITHOUT` are left to the host.
"""

from __future__ import annotations

import math
import re
from typing import Any

import flambeau as fl
from flambeau.backends import c99_special

__all__ = ["SPECIAL", "STORED", "VOCABULARY", "WITHOUT", "CExpression", "compute_type", "storage_type"]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=", "land": "&&", "lor": "||",
}  # fmt: skip
_PREFIX = {"neg": "-", "bitnot": "~", "lnot": "!"}
# The same name and meaning in C's library.
_LIBRARY = frozenset(
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc exp exp2 expm1 floor fmod hypot lgamma log log10 "
    "log1p log2 nextafter sin sinh sqrt tan tanh trunc".split()
)
_CONDITIONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "land", "lor", "lnot", "isfinite", "isinf"))
_IDENTITY = frozenset(("real", "conj"))  # of real numbers

_POLYNOMIALS = {
    # name: the first two, and the next of (k, x, p, q) where q is p's predecessor
    "chebyshev_polynomial_t": ("1", "x", "2 * x * p - q"), "chebyshev_polynomial_u": ("1", "2 * x", "2 * x * p - q"),
    "chebyshev_polynomial_v": ("1", "2 * x - 1", "2 * x * p - q"), "chebyshev_polynomial_w": ("1", "2 * x + 1", "2 * x * p - q"),
    "hermite_polynomial_h": ("1", "2 * x", "2 * x * p - 2 * k * q"), "hermite_polynomial_he": ("1", "x", "x * p - k * q"),
    "laguerre_polynomial_l": ("1", "1 - x", "((2 * k + 1 - x) * p - k * q) / (k + 1)"),
    "legendre_polynomial_p": ("1", "x", "((2 * k + 1) * x * p - k * q) / (k + 1)"),
}  # fmt: skip


def _polynomial(name: str) -> str:
    shifted = name.startswith("shifted_")
    first, second, following = _POLYNOMIALS[name.removeprefix("shifted_")]
    shift = "x = 2 * x - 1; " if shifted else ""
    return (
        f"T {name}(T x, T n) {{ {shift}long last = (long)n; T q = {first}, p = {second}; "
        "if (last < 0) return 0; if (last == 0) return q; "
        f"for (long k = 1; k < last; ++k) {{ T r = {following}; q = p; p = r; }} return p; }}"
    )


# Bodies for floating point numbers.
_REAL = {
    "maximum": "T maximum(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }",
    "minimum": "T minimum(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }",
    "fmax": "T fmax_(T a, T b) { return a != a ? b : b != b ? a : a > b ? a : b; }",
    "fmin": "T fmin_(T a, T b) { return a != a ? b : b != b ? a : a < b ? a : b; }",
    "abs": "T abs_(T x) { return @fabs(x); }",
    "angle": "T angle(T x) { return x != x ? x : x < 0 ? (T)3.14159265358979323846 : 0; }",
    "round": "T round_(T x) { return @rint(x); }",
    "fast_exp2": "T fast_exp2(T x) { return @exp2(x); }",
    "rsqrt": "T rsqrt_(T x) { return 1 / @sqrt(x); }",
    "isfinite": "int isfinite_(T x) { return x - x == 0; }",
    "isinf": "int isinf_(T x) { return x == x && x - x != 0; }",
    "sigmoid": "T sigmoid(T x) { return 1 / (1 + @exp(-x)); }",
    "silu": "T silu(T x) { return x / (1 + @exp(-x)); }",
    "mish": "T mish(T x) { return x * @tanh(x > 30 ? x : @log1p(@exp(x))); }",
    "gelu_erf": "T gelu_erf(T x) { return (T)0.5 * x * (1 + @erf(x * (T)0.70710678118654752440)); }",
    "gelu_tanh": "T gelu_tanh(T x) { return (T)0.5 * x * (1 + @tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x))); }",
    "div": "T div_(T a, T b) { return a / b; }",
    "trunc_divide": "T trunc_divide(T a, T b) { return @trunc(a / b); }",
    "remainder": "T remainder_(T a, T b) { T r = @fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }",
    "floor_divide": (
        "T floor_divide(T a, T b) { if (b == 0) return a / b; T r = @fmod(a, b), d = (a - r) / b; "
        "if (r != 0 && (b < 0) != (r < 0)) d -= 1; if (d == 0) return @copysign((T)0, a / b); "
        "T f = @floor(d); return d - f > (T)0.5 ? f + 1 : f; }"
    ),
    "pow": "T pow_(T a, T b) { return @pow(a, b); }",
    "logaddexp": (
        "T logaddexp(T a, T b) { if (a == b && a - a != 0) return a; T h = a > b ? a : b, l = a > b ? b : a; "
        "return a != a || b != b ? a + b : h + @log1p(@exp(l - h)); }"
    ),
    "logaddexp2": (
        "T logaddexp2(T a, T b) { if (a == b && a - a != 0) return a; T h = a > b ? a : b, l = a > b ? b : a; "
        "return a != a || b != b ? a + b : h + @log1p(@exp2(l - h)) * (T)1.44269504088896340736; }"
    ),
    "xlogy": "T xlogy(T x, T y) { return y != y ? y : x == 0 ? 0 : x * @log(y); }",
    "xlog1py": "T xlog1py(T x, T y) { return y != y ? y : x == 0 ? 0 : x * @log1p(y); }",
    "sinc": "T sinc(T x) { T t = x * (T)3.14159265358979323846; return x == 0 ? 1 : @sin(t) / t; }",
    "entr": "T entr(T x) { return x != x ? x : x > 0 ? -x * @log(x) : x == 0 ? 0 : -1 / (x * 0); }",
    "ndtr": "T ndtr(T x) { return (T)0.5 * @erfc(-x * (T)0.70710678118654752440); }",
    "imag": "T imag_(T x) { return 0; }",
    "spherical_bessel_j0": "T spherical_bessel_j0(T x) { return @fabs(x) < (T)1e-4 ? 1 - x * x / 6 : @sin(x) / x; }",
    "erfinv": (
        "T erfinv(T x) { if (!(@fabs(x) < 1)) return x == 1 ? 1 / (x - 1) : x == -1 ? 1 / (-(x + 1)) * 1 : (x - x) / (x - x); "
        "T w = -@log((1 - x) * (1 + x)), p; if (w < 5) { w -= (T)2.5; p = (T)2.81022636e-08; p = (T)3.43273939e-07 + p * w; "
        "p = (T)-3.5233877e-06 + p * w; p = (T)-4.39150654e-06 + p * w; p = (T)0.00021858087 + p * w; "
        "p = (T)-0.00125372503 + p * w; p = (T)-0.00417768164 + p * w; p = (T)0.246640727 + p * w; "
        "p = (T)1.50140941 + p * w; } else { w = @sqrt(w) - 3; p = (T)-0.000200214257; p = (T)0.000100950558 + p * w; "
        "p = (T)0.00134934322 + p * w; p = (T)-0.00367342844 + p * w; p = (T)0.00573950773 + p * w; "
        "p = (T)-0.0076224613 + p * w; p = (T)0.00943887047 + p * w; p = (T)1.00167406 + p * w; p = (T)2.83297682 + p * w; } "
        "T y = p * x; for (int i = 0; i < 2; ++i) y -= (@erf(y) - x) / ((T)1.12837916709551257390 * @exp(-y * y)); return y; }"
    ),
    "digamma": (
        "T digamma(T x) { if (x == 0) return @copysign((T)1, -x) / 0; T r = 0; "
        "if (x < 0) { if (x == @floor(x)) return (x - x) / (x - x); "
        "r = (T)-3.14159265358979323846 / @tan((T)3.14159265358979323846 * (x - @floor(x))); x = 1 - x; } "
        "while (x < 10) { r -= 1 / x; x += 1; } T y = 1 / (x * x); "
        "return r + @log(x) - (T)0.5 / x - y * ((T)1 / 12 - y * ((T)1 / 120 - y * ((T)1 / 252 - y * ((T)1 / 240 - y / 132)))); }"
    ),
    "trigamma": (
        "T trigamma(T x) { T s = 1, r = 0; if (x < (T)0.5) { s = -1; T p = (T)3.14159265358979323846 / "
        "@sin((T)3.14159265358979323846 * x); r = -p * p; x = 1 - x; } T t = 0; while (x < 10) { t += 1 / (x * x); x += 1; } "
        "T y = 1 / (x * x); t += 1 / x + y / 2 + y / x * ((T)1 / 6 - y * ((T)1 / 30 - y * ((T)1 / 42 - y / 30))); "
        "return s * t - r; }"
    ),
    **c99_special.SPECIAL,
    **{name: _polynomial(name) for name in _POLYNOMIALS},
    **{f"shifted_{name}": _polynomial(f"shifted_{name}") for name in _POLYNOMIALS if name.startswith("chebyshev")},
}  # fmt: skip

# Bodies for 64-bit integers; division by zero gives zero, as devices without exceptions do.
_INTEGER = {
    "maximum": "T maximum(T a, T b) { return a > b ? a : b; }", "minimum": "T minimum(T a, T b) { return a < b ? a : b; }",
    "fmax": "T fmax_(T a, T b) { return a > b ? a : b; }", "fmin": "T fmin_(T a, T b) { return a < b ? a : b; }",
    "abs": "T abs_(T x) { return x < 0 ? -x : x; }", "round": "T round_(T x) { return x; }",
    "ceil": "T ceil_(T x) { return x; }", "floor": "T floor_(T x) { return x; }", "trunc": "T trunc_(T x) { return x; }",
    "div": "T div_(T a, T b) { return b == 0 ? 0 : a / b; }",
    "trunc_divide": "T trunc_divide(T a, T b) { return b == 0 ? 0 : a / b; }",
    "fmod": "T fmod_(T a, T b) { return b == 0 ? 0 : a % b; }",
    "remainder": "T remainder_(T a, T b) { if (b == 0) return 0; T r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }",
    "floor_divide": "T floor_divide(T a, T b) { if (b == 0) return 0; T d = a / b; return d * b != a && (a < 0) != (b < 0) ? d - 1 : d; }",
    "ipow": (
        "T ipow(T a, T b) { if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0; "
        "T r = 1; for (; b; b >>= 1) { if (b & 1) r *= a; a *= a; } return r; }"
    ),
    "gcd": "T gcd_(T a, T b) { while (b) { T t = a % b; a = b; b = t; } return a < 0 ? -a : a; }",
    "lcm": (
        "T lcm_(T a, T b) { if (a == 0 || b == 0) return 0; T x = a, y = b; while (y) { T t = x % y; x = y; y = t; } "
        "T r = a / x * b; return r < 0 ? -r : r; }"
    ),
    "lshift": "T lshift(T a, T b) { return b >= 0 && b < 64 ? (T)((ulong)a << b) : 0; }",
    "rshift": "T rshift(T a, T b) { return b >= 0 && b < 64 ? a >> b : -(a < 0); }",
    "isfinite": "int isfinite_(T x) { return 1; }", "isinf": "int isinf_(T x) { return 0; }",
    "imag": "T imag_(T x) { return 0; }", "pow": "T pow_(T a, T b) { return ipow(a, b); }",
    "angle": "T angle(T x) { return 0; }",
}  # fmt: skip

# Left to the host, with the reason.
WITHOUT = {
    "make_complex": "complex numbers",
    **dict.fromkeys(
        "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1".split(), "a special function without a body in C",
    ),
}  # fmt: skip
# Functions that a device may lack.
SPECIAL = frozenset(
    {
        *WITHOUT,
        *_POLYNOMIALS,
        *c99_special.SPECIAL,
        *(n for n in _REAL if n.startswith("shifted_")),
        "digamma",
        "erfinv",
        "trigamma",
        "spherical_bessel_j0",
    }
)
VOCABULARY = frozenset(
    {*_INFIX, *_PREFIX, *_LIBRARY, *_REAL, *_INTEGER, *_IDENTITY, *WITHOUT, "where", "div", "const", "arg", "load"}
)

STORED = {  # types in memory of elements
    fl.bool: "uchar", fl.uint8: "uchar", fl.int8: "char", fl.int16: "short", fl.int32: "int", fl.int64: "long",
    fl.float32: "float", fl.float64: "double", fl.float16: "ushort", fl.bfloat16: "ushort",
}  # fmt: skip


def storage_type(dtype: Any) -> str:
    """What elements of a dtype are in memory."""
    try:
        return STORED[dtype]
    except KeyError:
        raise NotImplementedError(f"C has no type for elements of {dtype}") from None


def compute_type(dtype: Any) -> str:
    """The type of arithmetic in a dtype."""
    storage_type(dtype)
    if dtype is fl.float64:
        return "double"
    return "float" if dtype.is_floating_point else "long"


# From and to the 16-bit floats, which are computed with as float.
HALVES = """
float from_bfloat16(ushort x) { union { uint i; float f; } u; u.i = (uint)x << 16; return u.f; }
ushort to_bfloat16(float x) { union { uint i; float f; } u; u.f = x; if (x != x) return 0x7fc0;
  return (ushort)((u.i + 0x7fffu + (u.i >> 16 & 1)) >> 16); }
float from_float16(ushort x) { union { uint i; float f; } u; uint s = (uint)(x & 0x8000) << 16, e = x >> 10 & 31, m = x & 1023;
  if (e == 31) u.i = s | 0x7f800000u | m << 13; else if (e) u.i = s | (e + 112) << 23 | m << 13;
  else { u.f = (float)m * 5.9604644775390625e-8f; u.i |= s; } return u.f; }
ushort to_float16(float x) { union { uint i; float f; } u; u.f = x; uint s = u.i >> 16 & 0x8000, a = u.i & 0x7fffffffu;
  if (a > 0x7f800000u) return (ushort)(s | 0x7e00); if (a >= 0x477ff000u) return (ushort)(s | 0x7c00);
  if (a < 0x38800000u) { u.i = a; u.f += 0.5f; return (ushort)(s | (u.i - 0x3f000000u)); }
  return (ushort)(s | (a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13); }
"""


def load(dtype: Any, element: str) -> str:
    """An element as a number."""
    if dtype in (fl.float16, fl.bfloat16):
        return f"from_{str(dtype)[6:]}({element})"
    return f"({element} != 0)" if dtype is fl.bool else element


def stored(dtype: Any, value: str) -> str:
    """A number as an element."""
    if dtype in (fl.float16, fl.bfloat16):
        return f"to_{str(dtype)[6:]}((float)({value}))"
    if dtype is fl.bool:
        return f"(({value}) != 0)"
    if dtype is fl.uint8:
        return f"(uchar)(long)({value})"
    return f"({storage_type(dtype)})({value})"


class CExpression:
    """Prints expressions as statements of C, each shared subexpression once; `functions` are the bodies they need."""

    def __init__(self, functions: dict[str, str], single_suffix: str = "") -> None:
        self.functions = functions
        self.single_suffix = single_suffix  # of library functions of float: "f" in C
        self.lines: list[str] = []
        self.count = 0

    def visit(self, node: Any, leaves: Any, ctype: str) -> str:
        """The name of the value; `leaves(node)` names what a leaf stands for, as an expression of the type;
        with `exact=True` as an integer."""
        return self._visit(node, leaves, ctype, {}, {})

    def _visit(self, node: Any, leaves: Any, ctype: str, seen: dict[int, str], texts: dict[Any, str]) -> str:
        known = seen.get(id(node))
        if known is None:
            if node.op == "const":
                known = literal(node.args[0], ctype)
            elif node.op in ("arg", "load"):
                known = leaves(node)
            elif node.op == "at":  # numbers of elements are compared as integers, whatever the others are
                index, place = (leaves(part, exact=True) for part in node.args)
                known = self._named("int", f"{index} == {place}")
            else:
                args = [self._visit(a, leaves, ctype, seen, texts) for a in node.args]
                key = (node.op, *args)
                if key not in texts:
                    texts[key] = self._statement(node.op, args, ctype)
                known = texts[key]
            seen[id(node)] = known
        return known

    def _statement(self, op: str, args: list[str], ctype: str) -> str:
        return self._named("int" if op in _CONDITIONS else ctype, self.text(op, args, ctype))

    def _named(self, kind: str, text: str) -> str:
        name = f"t{self.count}"
        self.count += 1
        self.lines.append(f"{kind} {name} = {text};")
        return name

    def text(self, op: str, args: list[str], ctype: str) -> str:
        if op in _IDENTITY:
            return args[0]
        if op == "mul" and ctype == "long":  # wraps around
            return f"(long)((ulong){args[0]} * (ulong){args[1]})"
        if op in ("land", "lor"):
            return f"({args[0]} != 0) {_INFIX[op]} ({args[1]} != 0)"
        if op == "lnot":
            return f"({args[0]} == 0)"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _PREFIX:
            return f"{_PREFIX[op]}({args[0]})"
        if op == "where":
            return f"({args[0]} != 0) ? {args[1]} : {args[2]}"
        if op == "div" and ctype != "long":
            return f"{args[0]} / {args[1]}"
        bodies = _INTEGER if ctype == "long" else _REAL
        if op in bodies:
            return f"{self.need(op, ctype)}({', '.join(args)})"
        if op in _LIBRARY and ctype != "long":
            return f"{self.library(op, ctype)}({', '.join(args)})"
        raise NotImplementedError(f"[{op}] expected an operation that C has, got one of {ctype}: {WITHOUT.get(op, op)}")

    def library(self, name: str, ctype: str) -> str:
        return name + self.single_suffix if ctype == "float" else name

    def need(self, op: str, ctype: str) -> str:
        """The name of a function with a body here."""
        name = f"{op}_{ctype}"
        if name not in self.functions:
            self.functions[name] = ""  # comes after what it needs
            body = c99_special.HELPERS.get(op) or (_INTEGER if ctype == "long" else _REAL)[op]
            body = re.sub(r"\$(\w+)", lambda m: self.need(m[1], ctype), body)
            if op == "pow" and ctype == "long":
                self.need("ipow", ctype)
                body = body.replace("ipow(", "ipow_long(")
            own = re.match(r"\w+ (\w+)\(", body)
            assert own is not None
            text = re.sub(rf"\b{own[1]}\(", f"{name}(", body, count=1)
            text = re.sub(r"\bT\b", ctype, text)
            del self.functions[name]
            self.functions[name] = re.sub(r"@(\w+)", lambda m: self.library(m[1], ctype), text)
        return name


def literal(value: Any, ctype: str) -> str:
    """A number as a constant of a type."""
    if isinstance(value, complex):
        raise NotImplementedError("complex numbers")
    if ctype == "long":
        number = int(value)
        return f"((long){number % (1 << 64)}ul)" if not -(1 << 31) < number < 1 << 31 else f"({number}l)"
    number = float(value)  # type: ignore[assignment]
    suffix = "f" if ctype == "float" else ""
    if number != number:
        return f"(({ctype})(0.0{suffix} / 0.0{suffix}))"
    if math.isinf(number):
        return f"(({ctype})({'-' if number < 0 else ''}1.0{suffix} / 0.0{suffix}))"
    return f"(({ctype}){number!r})"
