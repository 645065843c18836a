"""Building kernels: C++ sources become shared objects, kept on disk under the hash of their content.

A kernel's name is the hash of its source, of the flags, of the compiler and of the processor, so equal kernels of
different layers, graphs and processes are one. Files are written under another name and renamed, so that a reader never
sees half of one; an object that does not load is built again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau._inductor.cpp import Kernel

if TYPE_CHECKING:
    import subprocess

__all__ = [
    "Collection", "addresses", "cache_dir", "cached", "collecting", "collection", "compiler", "delete", "identity", "intact", "name", "prune",
    "read", "write",
]  # fmt: skip

# With the limited range products of complex numbers are the plain formula, as in eager mode and in vectors.
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp-simd", "-fPIC", "-shared", "-fwrapv",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fcx-limited-range", "-fno-exceptions", "-w",
)  # fmt: skip

PRELUDE = """\
#include <stdint.h>
#include <stdlib.h>
#include <limits>
struct Threads {  // as LoopThreads of the program
  int64_t count;
  void (*divide)(const Threads*, void (*)(const void*, int, int), const void*);
};
template <class Body> static inline void on_threads(const Threads& threads, const Body& body) {
  if (threads.count == 1) return body(0, 1);
  threads.divide(&threads, [](const void* b, int thread, int team) { (*(const Body*)b)(thread, team); }, &body);
}
struct bfloat16 { uint16_t bits; };
template <class C, class M> static inline C load(M x) { return (C)x; }
template <> inline float load<float, bfloat16>(bfloat16 x) {
  union { uint32_t u; float f; } v = {(uint32_t)x.bits << 16};
  return v.f;
}
template <class M, class C> static inline void store(M& target, C x) { target = (M)x; }
template <class C> static inline void store(bool& target, C x) { target = x != 0; }
static inline uint32_t rounded_bits(float x, uint32_t nan = 0x7fc00000u) {
  union { float f; uint32_t u; } v = {x};
  return x != x ? nan : (v.u + 0x7fff + ((v.u >> 16) & 1)) & 0xffff0000u;
}
static inline float rounded(float x) {  // NaN stays what it is: of a constant one the compiler makes any integer
  union { float f; uint32_t u; } given = {x};
  union { uint32_t u; float f; } v = {rounded_bits(x, given.u)};
  return v.f;
}
template <class C> static inline void store(bfloat16& target, C x) { target.bits = rounded_bits((float)x) >> 16; }
typedef _Complex float complex64;
typedef _Complex double complex128;
namespace complex_math {
template <class Z, class T> static inline Z joined(T re, T im) {
  Z z;
  __real__ z = re, __imag__ z = im;
  return z;
}
static inline complex64 make_complex(float re, float im) { return joined<complex64>(re, im); }
static inline complex128 make_complex(double re, double im) { return joined<complex128>(re, im); }
template <class Z> static inline Z conj(Z z) { return ~z; }
template <class Z> static inline auto real(Z z) { return __real__ z; }
template <class Z> static inline auto imag(Z z) { return __imag__ z; }
static inline double abs(complex128 z) { return __builtin_hypot(__real__ z, __imag__ z); }
static inline float abs(complex64 z) {
  const double re = __real__ z, im = __imag__ z;
  return __builtin_isinf(re) || __builtin_isinf(im) ? __builtin_inff() : (float)__builtin_sqrt(re * re + im * im);
}
}
"""

# For kernels that need no more of the math library than this.
SIMPLE_MATH = """\
namespace math {
template <class T> static inline T abs(T x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
template <class T> static inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T> static inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
static inline float sqrt(float x) { return __builtin_sqrtf(x); }
static inline double sqrt(double x) { return __builtin_sqrt(x); }
static inline float rsqrt(float x) { return 1 / __builtin_sqrtf(x); }
static inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
static inline float floor(float x) { return __builtin_floorf(x); }
static inline double floor(double x) { return __builtin_floor(x); }
static inline float ceil(float x) { return __builtin_ceilf(x); }
static inline double ceil(double x) { return __builtin_ceil(x); }
static inline float trunc(float x) { return __builtin_truncf(x); }
static inline double trunc(double x) { return __builtin_trunc(x); }
}
"""
# What the plain header has for floating point only.
INTEGER_MATH = """\
namespace fl { namespace math {
inline int64_t abs(int64_t x) { return x < 0 ? -x : x; }
inline int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
} }
"""
_FUNCTION = re.compile(r"(\w+)\(\w+ \w+[,)]")  # of a header: its name
_SIMPLE = frozenset(_FUNCTION.findall(SIMPLE_MATH)) | {
    f"{name} of integers" for name in _FUNCTION.findall(INTEGER_MATH)
}
# Loops run on several threads and cannot raise; those that might divide by zero are not lowered.
DIVISION = """\
namespace fl { namespace math {
__attribute__((visibility("hidden"))) void integer_division_by_zero() { __builtin_trap(); }
} }
"""
_FOLDS = """\
#pragma omp declare reduction(fold_{0} : float, double, int64_t : omp_out = math::{0}(omp_out, omp_in)) \\
    initializer(omp_priv = omp_orig)
template <int n, class T> static inline void fold_{0}_halves(T* lanes) {{
#pragma omp simd
  for (int k = 0; k < n / 2; ++k) lanes[k] = math::{0}(lanes[k], lanes[k + n / 2]);
}}
template <class T> static inline T fold_{0}_lanes(T* lanes) {{
  fold_{0}_halves<32>(lanes), fold_{0}_halves<16>(lanes), fold_{0}_halves<8>(lanes);
  fold_{0}_halves<4>(lanes), fold_{0}_halves<2>(lanes);
  return lanes[0];
}}
"""


def cache_dir() -> Path:
    """Where built kernels are kept; a folder of this process where the usual one cannot be written."""
    chosen = os.environ.get("FLAMBEAU_CACHE_DIR") or os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "flambeau"
    path = base / "kernels"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        distrust = _why_distrusted(path)
    except OSError as error:
        return private_dir(path, str(error))
    if distrust:
        return private_dir(path, distrust)
    if not os.access(path, os.W_OK | os.X_OK):
        return private_dir(path, "it cannot be written")
    return path


def _why_distrusted(path: Path) -> str:
    """Why a folder must not be used, because others could put machine code there; "" if they cannot."""
    if not hasattr(os, "getuid"):
        return ""
    state = path.stat()
    if state.st_uid not in (os.getuid(), 0):
        return f"it belongs to the user with number {state.st_uid}, who could put other machine code there"
    if state.st_mode & 0o022:
        return "other users can write it, and could put other machine code there (chmod go-w mends that)"
    above = path.parent.stat().st_mode
    if above & stat.S_IWOTH and not above & stat.S_ISVTX:
        return f"other users can write {path.parent}, and could put another folder there (chmod o-w mends that)"
    return ""


def read(path: Path) -> bytes:
    """A file of the cache; anything else at its place, such as a pipe that would be waited for, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without an entry
        return Path("/nonexistent")


@functools.cache
def _temporary_dir() -> Path:
    import atexit
    import tempfile
    from shutil import rmtree

    path = tempfile.mkdtemp(prefix="flambeau-")
    atexit.register(rmtree, path, ignore_errors=True)
    return Path(path)


@functools.cache
def private_dir(refused: Path, why: str) -> Path:
    """A temporary folder in place of a cache that cannot be used; says so once."""
    path = _temporary_dir()
    warnings.warn(
        f"[compile] expected a folder for kernels that can be written, got {refused}: {why}. Kernels are built in {path}, for "
        "this process only; name a folder in FLAMBEAU_CACHE_DIR to keep them.",
        RuntimeWarning,
        stacklevel=3,
    )
    return path


@functools.cache
def compiler() -> str | None:
    """The C++ compiler, or None when the machine has none."""
    from shutil import which

    names = ["g++", "c++", "clang++"]
    asked = os.environ.get("CXX", "").split()  # launchers such as ccache may come first
    if asked:
        if (usable := which(asked[-1])) is not None:
            return usable
        warnings.warn(
            f"[compile] expected the name of a C++ compiler in CXX, got {os.environ['CXX']!r}, which is not found; "
            f"looking for {', '.join(names)}",
            RuntimeWarning,
            stacklevel=2,
        )
    return next((path for name in names if (path := which(name))), None)


@functools.cache
def identity() -> str:
    """What a kernel's object depends on beside its source."""
    path = compiler() or ""
    stamp = os.stat(path) if path else None
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        flags = ""
    own = (DIVISION, INTEGER_MATH, SIMPLE_MATH, PRELUDE, FLAGS, _FOLDS)
    headers = hashlib.sha256(b"".join(p.read_bytes() for p in sorted((_headers() / "math").glob("*.h")))).hexdigest()
    return f"{path} {stamp.st_size if stamp else 0} {stamp.st_mtime_ns if stamp else 0} {flags} {headers} {own}"


@functools.cache
def _headers() -> Path:
    """The folder with the math library's headers."""
    here = Path(__file__).resolve().parent
    for folder in (here / "include", here.parent.parent / "csrc"):
        if (folder / "math" / "math.h").exists():
            return folder
    raise FileNotFoundError("[inductor] expected the headers of the math library beside the package, got none")


def name(kernel: Kernel, extra: tuple[str, ...] = ()) -> str:
    """What a kernel is called, built with the flags and some more."""
    return "k_" + hashlib.sha256((identity() + " ".join(extra) + kernel.source).encode()).hexdigest()[:24]


def _text(kernels: dict[str, Kernel]) -> str:
    functions = set().union(*(k.functions for k in kernels.values()))
    parts = [PRELUDE]
    if functions <= _SIMPLE:
        parts.append(SIMPLE_MATH)
    else:
        rest = functions - _SIMPLE - _in_plain_math() - {"normal_cdf", "exp_fast", "exp_vanishing"}
        parts.append(f'#include "math/{"record_math" if rest else "math"}.h"\nnamespace math = fl::math;\n')
        parts.append(DIVISION if rest else INTEGER_MATH)
        if "normal_cdf" in functions:
            parts.append('#include "math/math_gelu.h"\n')
        if "exp_vanishing" in functions:
            parts.append('#include "math/math_vanishing.h"\n')
    parts += [_FOLDS.format(name) for name in ("maximum", "minimum") if name in {f.split()[0] for f in functions}]
    parts += [kernel.source.replace("@NAME@", name) for name, kernel in kernels.items()]
    return "\n".join(parts)


@functools.cache
def _in_plain_math() -> frozenset[str]:
    """Functions that the plain header has: the others need the larger one."""

    text = (_headers() / "math" / "math.h").read_text()
    return frozenset(re.findall(r"^FL_MATH_(?:T |[A-Z]+\()(\w+)", text, re.MULTILINE))


class BuildError(RuntimeError):
    """The compiler refused a generated source."""


def _refused(command: list[str], done: subprocess.CompletedProcess[str], source: str) -> BuildError:
    """What the compiler said; its first error is in the first line, which is all that reports show."""
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    first = next((line for line in said if "error" in line), said[0] if said else "no message")
    return BuildError(
        f"[inductor] expected the generated C++ to compile, got {first!r} and exit status {done.returncode} of "
        f"{command[0]}\n{done.stderr}\n{source}"
    )


def _compile(kernels: dict[str, Kernel], folder: Path, extra: tuple[str, ...] = ()) -> Path:
    """Builds one object with all the given kernels and records which they are."""
    import subprocess
    import tempfile

    digest = hashlib.sha256(" ".join(sorted(kernels)).encode()).hexdigest()[:24]
    target = folder / f"{digest}.so"
    source = folder / f"{digest}.cpp"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        text = Path(scratch) / "kernels.cpp"
        text.write_text(_text(kernels))
        library = Path(scratch) / "kernels.so"
        compiler_path = compiler()
        assert compiler_path is not None
        command = [compiler_path, *FLAGS, *extra, f"-I{_headers()}", str(text), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refused(command, done, text.read_text())
        os.replace(text, source)
        os.replace(library, target)
    compiler_path = f"{target.name} {_digest(target)}"
    for name in kernels:
        write(folder / name, compiler_path)
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(read(path)).hexdigest()


def write(path: Path, text: str) -> None:
    """A file that others see whole or not at all."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


_lock = threading.Lock()
_loaded: dict[str, int] = {}  # address by kernel name
_libraries: dict[str, ctypes.CDLL] = {}


def _load(path: Path, names: Iterable[str]) -> None:
    os.utime(path)  # for the bound on the cache, which takes the oldest first
    library = _libraries.get(path.name) or ctypes.CDLL(str(path))
    _libraries[path.name] = library
    for name in names:
        _loaded[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _from_disk(name: str, folder: Path) -> bool:
    """Loads a kernel that was built before; an object that is not as it was written is as good as none."""
    try:
        file, digest = read(folder / name).decode().split()
        if file not in _libraries and _digest(folder / file) != digest:
            return False
        _load(folder / file, [name])
    except (OSError, AttributeError, ValueError):
        return False
    return True


class Collection:
    """Kernels that are only asked for, to be built for other processors: each has a number, from one on, in place of an address."""

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.images: dict[str, Any] = {}  # of accelerators, by name

    def number(self, kernel: Kernel) -> int:
        known = "k_" + hashlib.sha256(kernel.source.encode()).hexdigest()[:24]
        self.kernels.setdefault(known, kernel)
        return list(self.kernels).index(known) + 1

    def image_number(self, image: Any) -> int:
        """The same for a kernel of an accelerator, which is built already."""
        self.images.setdefault(image.name, image)
        return list(self.images).index(image.name) + 1

    def objects(self, targets: Iterable[str]) -> dict[str, bytes]:
        """A shared object with all kernels for each instruction set, as bytes."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            built = {target: pool.submit(self._object, target) for target in targets}
            return {target: future.result() for target, future in built.items()}

    def _object(self, target: str) -> bytes:
        from flambeau._inductor import toolchains

        march, command, without, more = target, compiler(), (), ()  # type: str, str | None, tuple[str, ...], tuple[str, ...]
        if target in toolchains.TARGETS:
            other = toolchains.toolchain(target)
            march, command, without, more = other.march, other.compiler, other.without, other.flags
        flags = (f"-march={march}" if flag == "-march=native" else flag for flag in FLAGS if flag not in without)
        return _object_of(self.kernels, (*flags, *more, "-Wl,-s"), cache_dir(), command)


_active = threading.local()


def collection() -> Collection | None:
    """Where kernels are collected that this thread asks for, if they are."""
    return getattr(_active, "collection", None)


@contextlib.contextmanager
def collecting() -> Iterator[Collection]:
    """Kernels that this thread asks for meanwhile are collected in place of being built."""
    before = getattr(_active, "collection", None)
    _active.collection = Collection()
    try:
        yield _active.collection
    finally:
        _active.collection = before


def _object_of(kernels: dict[str, Kernel], flags: tuple[str, ...], folder: Path, command: str | None) -> bytes:
    """The bytes of an object with these kernels, which is kept on disk like others."""
    import subprocess
    import tempfile

    text = _text(kernels)
    target = folder / (
        hashlib.sha256((identity() + str(command) + " ".join(flags) + text).encode()).hexdigest()[:24] + ".so"
    )
    with contextlib.suppress(OSError):
        os.utime(target)
        return target.read_bytes()
    if command is None:
        raise RuntimeError("[package] expected a C++ compiler on this machine, got none")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source, library = Path(scratch) / "kernels.cpp", Path(scratch) / "kernels.so"
        source.write_text(text)
        line = [command, *flags, f"-I{_headers()}", str(source), "-o", str(library)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refused(line, done, text)
        content = library.read_bytes()
        os.replace(library, target)
    return content


def addresses(kernels: list[Kernel], extra: tuple[str, ...] = ()) -> list[int]:
    """Where the machine code of each kernel is, built where needed, with some flags more than usual."""
    if (collected := collection()) is not None:
        return [collected.number(kernel) for kernel in kernels]
    names = [name(k, extra) for k in kernels]
    with _lock:
        folder = cache_dir()
        wanted = {n: k for n, k in zip(names, kernels) if n not in _loaded and not _from_disk(n, folder)}
        if wanted:
            for batch, path in _build_somewhere(wanted, folder, extra):
                _load(path, batch)
            prune(folder, MOST_BYTES)
    return [_loaded[n] for n in names]


def _build_somewhere(
    wanted: dict[str, Kernel], folder: Path, extra: tuple[str, ...]
) -> list[tuple[dict[str, Kernel], Path]]:
    """In the cache, or where that cannot take it, in a temporary folder."""
    try:
        return _build_all(wanted, folder, extra)
    except OSError as error:
        if folder == _temporary_dir() or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        return _build_all(wanted, private_dir(folder, str(error)), extra)


MOST_BYTES = 1 << 30  # of objects on disk
ABANDONED = 3600.0  # seconds after which a temporary file has nobody who goes on with it


class Cached(NamedTuple):
    """One object on disk: when it was last used, and the kernels that are looked for in it, with its digest for each."""

    path: Path
    size: int
    used: float
    kernels: dict[str, str]


def cached(folder: Path | None = None) -> list[Cached]:
    """All objects on disk, those used last first."""
    folder = folder or cache_dir()
    kernels: dict[str, dict[str, str]] = {}
    for entry in folder.glob("k_*"):
        with contextlib.suppress(OSError, ValueError):  # deleted by another process, or spoilt
            file, digest = read(entry).decode().split()
            kernels.setdefault(file, {})[entry.name] = digest
    objects = []
    for path in folder.glob("*.so"):
        with contextlib.suppress(OSError):
            state = path.stat()
            objects.append(Cached(path, state.st_size, state.st_mtime, kernels.get(path.name, {})))
    return sorted(objects, key=lambda o: o.used, reverse=True)


def intact(cached: Cached) -> bool:
    """Whether an object is as it was written, for every kernel in it."""
    return set(cached.kernels.values()) <= {_digest(cached.path)}


def delete(cached: Cached) -> None:
    for path in (cached.path, cached.path.with_suffix(".cpp"), *(cached.path.parent / name for name in cached.kernels)):
        path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    from shutil import rmtree

    if path.is_dir():
        rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def prune(folder: Path, most_bytes: int) -> None:
    """Deletes the objects that were not used for longest while there are too many, and what killed processes left."""
    size = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # gone meanwhile
                state = entry.stat()
                if entry.name.endswith(".so"):
                    size += state.st_size
                elif entry.name.startswith("tmp") and time.time() - state.st_mtime > ABANDONED:
                    _remove(Path(entry.path))
    if size <= most_bytes:
        return
    total = 0
    for cached_kernel in cached(folder):
        total += cached_kernel.size
        if total > most_bytes:
            delete(cached_kernel)


def _build_all(wanted: dict[str, Kernel], folder: Path, extra: tuple[str, ...]) -> list[tuple[dict[str, Kernel], Path]]:
    """In as many objects as there are processors to build them."""
    from concurrent.futures import ThreadPoolExecutor

    workers = min(os.cpu_count() or 1, 1 + len(wanted) // 4)
    names = list(wanted)
    batches = [{n: wanted[n] for n in names[i::workers]} for i in range(workers)]
    if workers == 1:
        return [(batches[0], _compile(batches[0], folder, extra))]
    with ThreadPoolExecutor(workers) as pool:
        return list(zip(batches, pool.map(lambda batch: _compile(batch, folder, extra), batches)))
