"""Build-time generator: op records -> C++.

Reads the records of every family in flambeau/ops without native code and writes into the output folder
  operators.cpp     the operator table (schemas, flags, where each op is exposed) with the derived in-place and out forms
  pointwise_*.cpp   the loops of the pointwise records, one for each compute type
  reduction_*.cpp   the arithmetic of the reduction records, as functors for the loops of csrc/cpu/engine/reduce_loops.h
  update_*.cpp      the loops of the update records (optimizer steps)
Kernel files are named after the module of their records (`chunks`). Files whose content did not change are left alone, so
that a new record recompiles its own file and the table.
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
import types
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOPS_PER_FILE = 24  # roughly, see chunks()


def load_records() -> dict[str, object]:
    """All records, with `flambeau` standing in as a bare package so that nothing native is imported."""
    package = types.ModuleType("flambeau")
    package.__path__ = [str(ROOT / "flambeau")]
    sys.modules["flambeau"] = package
    sys.path.insert(0, str(ROOT))
    from flambeau.ops.record import load

    return dict(load())


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def chunks(records, per_file: int) -> list[tuple[str, list]]:
    """Records by file, as (name of the file, records).

    A file has records of one module of flambeau/ops. Larger modules have 2, 4, 8 ... files, among which a hash of the name
    decides. So a new record changes one file only, except where it doubles the number of files. The gradient of a record
    goes where the record is.
    """
    modules: dict[str, list] = {}
    for record in records:
        modules.setdefault(record.where.removeprefix("flambeau.ops.").replace(".", "_"), []).append(record)
    files: dict[str, list] = {}
    for module, members in modules.items():
        count = 1 << max(0, round(math.log2(len(members) / per_file)))
        for record in members:
            base = re.sub(r"^_grad_(.+)_\d+$", r"\1", identifier(record))
            place = zlib.crc32(base.encode()) % count
            files.setdefault(f"{module}_{place}" if count > 1 else module, []).append(record)
    return sorted(files.items())


def write_chunks(out: Path, prefix: str, suffix: str, texts: dict[str, str]) -> None:
    """Writes a kernel file for each chunk and removes those of chunks that are no more."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write(out / f"{prefix}_{name}{suffix}", text)
    for stale in out.glob(f"{prefix}_*{suffix}"):
        if stale.stem.removeprefix(f"{prefix}_") not in texts:
            stale.unlink()


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def identifier(record) -> str:
    return record.name.replace("::", "_").replace(".", "_")


# ---------------------------------------------------------------- pointwise loops

SLOTS = (("f", "float", "float"), ("f", "double", "double"), ("i", "int64_t", "int64_t"), ("b", "int64_t", "int64_t"),
         ("c", "complex64", "complex128"), ("c", "complex128", "complex128"))  # fmt: skip


def operands_and_params(record):
    """Schema positions of the operands and of the Scalar parameters of a pointwise record."""
    details = record.details
    operands = [i for i, a in enumerate(record.schema.args) if a.is_tensor]
    params = [i for i, a in enumerate(record.schema.args) if not a.is_tensor and a.name != details["select"]]
    return operands, params


def expression_of(record, fn):
    """What the record computes, of its arguments by name."""
    from flambeau.ops import expr

    return expr.lift(fn(*(expr.arg(a.name) for a in record.schema.args if a.name != record.details["select"])))


def is_modular(record) -> bool:
    """Whether the loops over int64 serve uint64, too."""
    from flambeau.ops import expr

    table = record.details["table"]
    functions = list(table.values()) if record.details["select"] else [table.get("i") or table.get("")]
    return all(fn is not None and expr.is_modular(expression_of(record, fn)) for fn in functions)


def loop_body(record, fn, kind: str) -> tuple[str, int]:
    """C++ lines computing one element, and a rough cost."""
    from flambeau.ops import expr

    operands, params = operands_and_params(record)
    names = {record.schema.args[i].name: f"x{k}" for k, i in enumerate(operands)}
    names |= {record.schema.args[i].name: f"p{k}" for k, i in enumerate(params)}
    printer = expr.CppPrinter(names)
    value = printer.visit(expression_of(record, fn))
    printer.lines.append(f"o[i] = static_cast<R>({value});")
    calls = sum(line.count("math::") for line in printer.lines)
    return "\n    ".join(printer.lines), 1 + 6 * calls


TRIGONOMETRY = re.compile(r"math::(sin|cos|tan)\(")


def element_loop(loads: str, body: str) -> str:
    """The loop over elements; see math/full_range.h for functions that need two passes over their arguments."""
    if not TRIGONOMETRY.search(body):
        return f"#pragma GCC ivdep\n  for (int64_t i = 0; i < n; ++i) {{\n    {loads}\n    {body}\n  }}\n"
    value = TRIGONOMETRY.sub(r"functions.\1(", body).replace("o[i] = ", "return ")
    return f"  math::full_range_loop(o, n, [&](auto& functions, int64_t i) -> R {{\n    {loads}\n    {value}\n  }});\n"


def pointwise_loops(record) -> tuple[str, list[list[str]], int]:
    """The loop templates of a record; the names of their instances by variant and slot; the cost of an element."""
    details = record.details
    operands, params = operands_and_params(record)
    table = details["table"]
    variants = list(table) if details["select"] else [""]
    out, names, cost = [], [], 1
    for v, variant in enumerate(variants):
        row = []
        bodies: dict[str, str] = {}
        for kind, store, compute in SLOTS:
            if kind not in details["dtypes"]:
                row.append("nullptr")
                continue
            if details["select"]:
                fn = table[variant]
            else:
                fn = table.get(kind) or (table.get("i") if kind == "b" else None) or table.get("")
            if fn is None:
                row.append("nullptr")
                continue
            body, c = loop_body(record, fn, kind)
            cost = max(cost, c)
            if body not in bodies:
                bodies[body] = f"{identifier(record)}_{v}{kind}"
                loads = "\n    ".join(
                    f"[[maybe_unused]] const bool x{i} = a{i}[i];" if record.schema.args[p].name in details["mask"]
                    else f"[[maybe_unused]] const T x{i} = static_cast<T>(a{i}[i]);"
                    for i, p in enumerate(operands)
                )  # fmt: skip
                heads = "\n  ".join(
                    f"const {'bool' if record.schema.args[p].name in details['mask'] else 'S'}* a{i} = "
                    f"static_cast<const {'bool' if record.schema.args[p].name in details['mask'] else 'S'}*>(in[{i}]);"
                    for i, p in enumerate(operands)
                )
                consts = "\n  ".join(f"[[maybe_unused]] const T p{i} = p[{i}].to<T>();" for i in range(len(params)))
                out.append(
                    f"template <class S, class T, class R>\n"
                    f"void {bodies[body]}(const void* const* in, void* out, int64_t n, const Scalar* p) {{\n"
                    f"  {heads}\n  R* o = static_cast<R*>(out);\n  {consts}\n{element_loop(loads, body)}}}\n"
                )
            result = {
                "same": store,
                "bool": "bool",
                "real": {"complex64": "float", "complex128": "double"}.get(store, store),
            }
            row.append(f"&{bodies[body]}<{store}, {compute}, {result[details['result']]}>")
        names.append(row)
    return "\n".join(out), names, cost


def generate_pointwise(records, out: Path) -> tuple[list[str], str]:
    """Writes the loop files; returns the C++ of the definitions table's entries and its preamble."""
    chosen = [r for r in records if r.kind == "pointwise"]
    declarations, definitions, texts = [], [], {}
    for name, group in chunks(chosen, LOOPS_PER_FILE):
        text = [
            "// Generated by tools/generate.py from the pointwise op records.\n"
            '#include "math/full_range.h"\n#include "ops/pointwise_loops.h"\n\n'
            "namespace fl {\nnamespace FL_ARCH {\nnamespace {\n"
        ]
        tables = []
        for record in group:
            loops, names, cost = pointwise_loops(record)
            text.append(loops)
            ident = identifier(record)
            rows = ",\n  ".join("{" + ", ".join(row) + "}" for row in names)
            tables.append(
                f"extern const PointwiseLoop loops_{ident}[{len(names)}][kLoopSlots];\n"
                f"const PointwiseLoop loops_{ident}[{len(names)}][kLoopSlots] = {{\n  {rows}}};\n"
            )
            declarations.append(f"FL_DECLARE_LOOPS(loops_{ident}, {len(names)})")
            definitions.append((record, len(names), cost))
        text.append("}  // namespace\n")
        text.extend(tables)
        text.append("}  // namespace FL_ARCH\n}  // namespace fl\n")
        texts[name] = "\n".join(text)
    write_chunks(out, "pointwise", ".cpp", texts)
    entries = []
    preamble = []
    for record, variants, cost in definitions:
        d = record.details
        operands, params = operands_and_params(record)
        mask = sum(1 << i for i, p in enumerate(operands) if record.schema.args[p].name in d["mask"])
        select = next((i for i, a in enumerate(record.schema.args) if a.name == d["select"] and d["select"]), -1)
        ident = identifier(record)
        if select >= 0:
            preamble.append(f"const char* const variants_{ident}[] = {{{', '.join(quote(k) for k in d['table'])}}};")
        promote = {"default": "d", "float": "f", "first": "m", "int": "i"}[d["promote"]]
        result = {"same": "s", "bool": "b", "real": "r"}[d["result"]]
        cases = [f"{{{value!r}, picked_loops_{identifier(case)}()}}" for value, case in d["cases"].items()]
        check = f"find_check({quote(d['check'])})" if d["check"] else "nullptr"
        stored = ", ".join(f"StoredLoop::{d['stored'].get(kind, 'none').capitalize()}" for kind in "ibc")
        entries.append(
            f"PointwiseDef def_{ident}{{{quote(record.schema.name)}, {len(operands)}, {{{', '.join(map(str, operands))}}}, "
            f"{mask}, {len(params)}, {{{', '.join(map(str, params))}}}, {select}, {variants}, "
            f"{'variants_' + ident if select >= 0 else 'nullptr'}, '{promote}', '{result}', {str(d['contiguous']).lower()}, {quote(d['dtypes'])}, "
            f"picked_loops_{ident}(), {cost}, {check}, {len(cases)}, {{{', '.join(cases)}}}, {stored}, {str(is_modular(record)).lower()}}};"
        )
    return declarations, "\n".join(preamble + entries)


# ---------------------------------------------------------------- reductions

# A reduction has a file of its own. Class, stored, computed, and the dtype of the computed: in the order of ReduceSlot.
REDUCE_SLOTS = (("f", "float", "float", "Float"), ("f", "double", "double", "Double"), ("i", "int64_t", "int64_t", "Int64"),
                ("b", "uint8_t", "int64_t", "Int64"), ("f", "::fl::BFloat16", "float", "Float"),
                ("c", "complex64", "complex64", "ComplexFloat"), ("c", "complex128", "complex128", "ComplexDouble"))  # fmt: skip
REAL = {"complex64": "float", "complex128": "double", "ComplexFloat": "Float", "ComplexDouble": "Double"}


def reduction_params(record) -> list[int]:
    return [i for i, a in enumerate(record.schema.args) if a.name not in ("self", "dim", "keepdim", "dtype")]


def functor_body(fn, names: list[str], leading: int, params: int) -> str:
    """C++ statements returning fn of the leading arguments and the parameters."""
    from flambeau.ops import expr

    mapped = dict(zip(names, names)) | {f"p{i}": f"p[{i}]" for i in range(params)}
    leaves = [expr.arg(n) for n in names[:leading]] + [expr.arg(f"p{i}") for i in range(params)]
    printer = expr.CppPrinter(mapped)
    value = printer.visit(expr.lift(fn(*leaves)))
    return " ".join([*printer.lines, f"return {value};"])


def reduction_functor(record, load, name: str) -> str:
    d = record.details
    params = len(reduction_params(record))
    init = {"lowest": "math::least<T>()", "highest": "math::greatest<T>()"}.get(d["init"], f"T({d['init']!r})")
    unused = "[[maybe_unused]]"
    combine, loaded = functor_body(d["combine"], ["a", "b"], 2, 0), functor_body(load, ["x"], 1, params)
    plain = loaded == "return x;" and combine == functor_body(lambda a, b: a + b, ["a", "b"], 2, 0)
    return (
        f"struct {name} {{\n"
        f"  static constexpr bool plain_sum = {str(plain).lower()};\n"
        f"  template <class T> static T init() {{ return {init}; }}\n"
        f"  template <class T, class P> static auto load(T x, {unused} const P* p) {{ {loaded} }}\n"
        f"  template <class T> static T combine(T a, T b) {{ {combine} }}\n"
        f"  template <class T, class P> static auto finish(T a, {unused} T n, {unused} const P* p) "
        f"{{ {functor_body(d['finish'], ['a', 'n'], 2, params)} }}\n}};\n"
    )


def generate_reductions(records, out: Path) -> tuple[list[str], str]:
    """Writes the loop files; returns the declarations and the definitions with their registration."""
    chosen = [r for r in records if r.kind == "reduction"]
    declarations, definitions, texts = [], [], {}
    for group in ([record] for record in chosen):
        text = [
            "// Generated by tools/generate.py from the reduction op records.\n"
            '#include "math/record_math.h"\n#include "cpu/engine/reduce_loops.h"\n\nnamespace fl {\nnamespace FL_ARCH {\nnamespace {\n'
        ]
        tables = []
        for record in group:
            d, ident = record.details, identifier(record)
            functors = {key: f"{ident}_{key or 'any'}" for key in d["load"]}
            text.extend(reduction_functor(record, load, functors[key]) for key, load in d["load"].items())
            row, computed = [], []
            for kind, store, compute, dtype in REDUCE_SLOTS:
                key = kind if kind in d["load"] else ("i" if kind == "b" and "i" in d["load"] else "")
                if kind not in d["dtypes"] or key not in d["load"]:
                    row.append("ReduceLoops{}")
                    computed.append("DType::Float")
                    continue
                acc, result = compute, dtype
                if d["accumulate"] == "int":
                    acc, result = "int64_t", "Int64"
                elif d["accumulate"] == "real":
                    acc, result = REAL.get(compute, compute), REAL.get(dtype, dtype)
                elif d["accumulate"] == "bool":
                    acc, result = "uint8_t", "Bool"
                    compute = "uint8_t" if kind == "b" else compute
                written = "bool" if result == "Bool" else acc
                row.append(f"ReduceLoop<{functors[key]}, {store}, {compute}, {acc}, {written}>::loops()")
                computed.append(f"DType::{result}")
            joined = ",\n  ".join(row)
            tables.append(
                f"extern const ReduceLoops reduce_{ident}[kReduceSlots];\n"
                f"const ReduceLoops reduce_{ident}[kReduceSlots] = {{\n  {joined}}};\n"
            )
            declarations.append(f"FL_DECLARE_REDUCTION(reduce_{ident})")
            args = record.schema.args
            where = {a.name: i for i, a in enumerate(args)}
            params = reduction_params(record)
            result = {"same": "s", "sum": "i", "bool": "b", "int": "l", "real": "r"}[d["result"]]
            definitions.append(
                f"ReduceDef reduce_def_{ident}{{{quote(record.schema.name)}, {where.get('dim', -1)}, {where.get('keepdim', -1)}, "
                f"{where.get('dtype', -1)}, {len(params)}, {{{', '.join(map(str, params))}}}, '{result}', "
                f"{str(d['identity']).lower()}, {quote(d['dtypes'])}, picked_reduce_{ident}(), {{{', '.join(computed)}}}}};\n"
                f"detail::Register register_{ident}{{{quote(record.name)}, {{Key::CPU, Key::Meta}}, "
                f"Kernel{{reduce_kernel, &reduce_def_{ident}}}}};"
            )
        text.append("}  // namespace\n")
        text.extend(tables)
        text.append("}  // namespace FL_ARCH\n}  // namespace fl\n")
        texts[identifier(group[0])] = "\n".join(text)
    write_chunks(out, "reduction", ".cpp", texts)
    return declarations, "\n".join(definitions)


# ---------------------------------------------------------------- updates of lists of tensors

UPDATES_PER_FILE = 8


def update_parts(record, store):
    """Of an update record: positions of lists, scalar states and numbers in its schema, whose new values there are, what is
    computed once for each tensor, and the printer of what is computed for each element.

    What depends on numbers and scalar states alone is computed once, in double precision: lines that set u[0], u[1] ... and
    the new scalar states o[0], o[1] ... The lines of the loop use the former as u0, u1 ..., and `store` gives the one that
    takes a list's new value.
    """
    from flambeau.ops import expr

    d, args = record.details, record.schema.args
    lists = [i for i, a in enumerate(args) if a.type.endswith("[]") and a.name not in d["scalars"]]
    scalars = [i for i, a in enumerate(args) if a.name in d["scalars"]]
    numbers = [i for i, a in enumerate(args) if not a.type.endswith("[]")]
    new = {name: expr.lift(value) for name, value in d["expr"](*(expr.arg(a.name) for a in args)).items()}
    once = expr.CppPrinter(
        {args[i].name: f"s[{k}]" for k, i in enumerate(scalars)}
        | {args[i].name: f"h[{k}]" for k, i in enumerate(numbers)}
    )
    loop = expr.HoistingPrinter({args[i].name: f"x{k}" for k, i in enumerate(lists)}, once)
    for k, i in enumerate(lists):
        if args[i].name in new:
            loop.lines.append(store(k, loop.visit(new[args[i].name])))
    for k, i in enumerate(scalars):
        if args[i].name in new:
            once.lines.append(f"o[{k}] = {once.visit(new[args[i].name])};")
    once.lines.extend(f"u[{k}] = static_cast<double>({value});" for k, value in enumerate(loop.hoisted))

    def mask(group: list[int]) -> int:
        return sum(1 << k for k, i in enumerate(group) if args[i].name in new)

    return lists, scalars, numbers, (mask(lists), mask(scalars)), once.lines, loop


ONCE = (
    "void {name}([[maybe_unused]] const double* s, [[maybe_unused]] const double* h, [[maybe_unused]] double* o, "
    "[[maybe_unused]] double* u) {{\n  using T [[maybe_unused]] = double;\n  {lines}\n}}\n"
)


def update_code(record) -> tuple[str, str]:
    """The arithmetic of an update record in C++, and the fields of its definition."""
    ident = identifier(record)
    lists, scalars, numbers, written, once, loop = update_parts(
        record, lambda k, new: f"a{k}[i] = static_cast<T>({new});"
    )
    heads = [f"T* a{k} = static_cast<T*>(a[{k}]);" for k in range(len(lists))]
    heads += [f"const T u{k} = static_cast<T>(u[{k}]);" for k in range(len(loop.hoisted))]
    loads = [f"[[maybe_unused]] const T x{k} = a{k}[i];" for k in range(len(lists))]
    text = ONCE.format(name=f"{ident}_once", lines=(chr(10) + "  ").join(once)) + (
        f"template <class T>\nvoid {ident}(void* const* a, int64_t n, const double* u) {{\n"
        f"  {(chr(10) + '  ').join(heads)}\n#pragma GCC ivdep\n  for (int64_t i = 0; i < n; ++i) {{\n"
        f"    {(chr(10) + '    ').join(loads + loop.lines)}\n  }}\n}}\n"
    )
    positions = ", ".join(f"{len(g)}, {{{', '.join(map(str, g))}}}" for g in (lists, scalars, numbers))
    return text, f"{positions}, {written[0]}, {written[1]}, {len(loop.hoisted)}"


def generate_updates(records, out: Path) -> tuple[list[str], str]:
    """Writes the loop files; returns the declarations and the definitions with their registration."""
    chosen = [r for r in records if r.kind == "update"]
    declarations, definitions, texts = [], [], {}
    for name, group in chunks(chosen, UPDATES_PER_FILE):
        text = [
            "// Generated by tools/generate.py from the update records.\n"
            '#include "math/record_math.h"\n#include "ops/update_loops.h"\n\nnamespace fl {\nnamespace FL_ARCH {\nnamespace {\n'
        ]
        tables = []
        for record in group:
            ident = identifier(record)
            code, fields = update_code(record)
            text.append(code)
            tables.append(
                f"extern const UpdateLoops loops_{ident};\n"
                f"const UpdateLoops loops_{ident}{{&{ident}_once, &{ident}<float>, &{ident}<double>}};\n"
            )
            declarations.append(f"FL_DECLARE_ARCH(const UpdateLoops, loops_{ident})")
            definitions.append(
                f"UpdateDef update_def_{ident}{{{quote(record.schema.name)}, {fields}, &picked_loops_{ident}()}};\n"
                f"detail::Register register_{ident}{{{quote(record.name)}, {{Key::CPU, Key::Meta}}, "
                f"Kernel{{update_kernel, &update_def_{ident}}}}};"
            )
        text.append("}  // namespace\n")
        text.extend(tables)
        text.append("}  // namespace FL_ARCH\n}  // namespace fl\n")
        texts[name] = "\n".join(text)
    write_chunks(out, "update", ".cpp", texts)
    return declarations, "\n".join(definitions)


def generate_each(records) -> str:
    """Definitions and registration of the operators that call another one for each tensor."""
    return "\n".join(
        f"EachDef each_{identifier(r)}{{{quote(r.details['target'])}}};\n"
        f"detail::Register register_{identifier(r)}{{{quote(r.name)}, {{Key::Composite}}, "
        f"Kernel{{each_kernel, &each_{identifier(r)}}}}};"
        for r in records
        if r.kind == "each"
    )


# ---------------------------------------------------------------- the operator table

# Tags that native code asks for, as bits of the operator.
FLAGS = {
    "wide_complex": "kWideComplex",
    "view": "kView",
    "random": "kRandom",
    "no_grad": "kNoGrad",
    "constant_gradient": "kConstantGradient",
    "mixed_devices": "kMixedDevices",
    "meta_layout": "kMetaLayout",
    "sparse": "kSparse",
    "element_loss": "kElementLoss",
    "sequence": "kSequence",
    "geometry": "kGeometry",
    "variadic": "kVariadic",
}
# Families with kernels of their own for complex64 and complex128.
WIDE_COMPLEX = tuple(f"flambeau.ops.{family}." for family in ("convolution", "fft", "linalg", "reductions"))
AUTOCAST = {
    None: "None",
    "lower": "Lower",
    "float32": "Single",
    "widest": "Widest",
    "refused": "Refused",
    "first": "First",
    "own": "Own",
}


def derived_schemas(record) -> list[tuple[str, str]]:
    """(schema, flag) of the in-place and out forms of a record."""
    s = record.schema
    rest = s.text.split("(", 1)[1]
    schemas = []
    if record.inplace:
        first = s.args[0]
        name = f"{s.name}_" + (f".{s.overload}" if s.overload else "")
        body = rest.replace(f"{first.type} {first.name}", f"Tensor(!) {first.name}", 1)
        schemas.append((f"{name}({body}", "kInplace"))
    if record.out:
        args, returns = rest.rsplit("->", 1)
        args = args.rstrip()[:-1]
        results = returns.strip().strip("()").split(",")
        n = len(results)
        star = "" if "*" in args else "*, "
        outs = ", ".join(f"Tensor(!) out{i if n > 1 else ''}" for i in range(n))
        name = f"{s.name}.{s.overload}_out" if s.overload else f"{s.name}.out"
        comma = ", " if args.strip() else ""
        schemas.append((f"{name}({args}{comma}{star}{outs}) ->{returns}", "kOut"))
    return schemas


def derivative_entry(record, gradients) -> str:
    """C++ of the derivative of a pointwise record: for each operand the op that computes it and where its inputs lie."""
    names = [a.name for a in record.schema.args]
    rows = []
    for gradient in gradients:
        if gradient is None:  # not known
            rows.append("{nullptr, false, -1, {}}")
        elif gradient.kind == "zero":
            rows.append("{nullptr, false, 0, {}}")
        elif gradient.kind == "identity":
            rows.append("{nullptr, true, 0, {}}")
        else:
            at = [-1 if s == "g" else -2 if s == "out" else names.index(s) for s in gradient.sources]
            rows.append(f"{{{quote(gradient.record.name)}, false, {len(at)}, {{{', '.join(map(str, at))}}}}}")
    return f"PointwiseDerivative grad_{identifier(record)}{{{len(rows)}, {{{', '.join(rows)}}}}};"


def vjp_parameters(record) -> tuple[str, str, str]:
    """Module, function and parameter names of a derivative written in ops."""
    if record.kind == "pointwise" or record.vjp is None:
        return "", "", ""
    names = inspect.signature(record.vjp).parameters
    return record.vjp.__module__, record.vjp.__name__, ",".join(names)


def record_places(records, derivatives) -> str:
    """The table of Python modules that hold the records; a gradient is held by the record it belongs to."""
    by_name = {r.name: r for r in records}
    places = {r.name: (r.where, "") for r in records if r.where}
    for name, gradients in reversed(derivatives.items()):  # of records with the same gradient the first counts
        for gradient in gradients or []:
            if gradient and gradient.record:
                places[gradient.record.name] = (by_name[name].where, name)
    rows = [f"  {{{quote(name)}, {quote(module)}, {quote(base)}}}," for name, (module, base) in sorted(places.items())]
    table = chr(10).join(rows)
    return f"const RecordPlace record_places[] = {{\n{table}\n}};\nconst int record_place_count = {len(rows)};"


def definition_place(record) -> tuple[str, str]:
    """The module and the function of an operator's definition; empty where it has none."""
    if record.kind == "update":
        return "flambeau.ops.lists.update_evaluation", record.schema.name
    if record.kind == "composite":
        return record.where, record.details["fn"].__name__
    return "", ""


def operator_flags(record) -> str:
    flags = [FLAGS[tag] for tag in record.tags if tag in FLAGS]
    if record.kind in ("native", "reduction") and record.where.startswith(WIDE_COMPLEX):
        flags.append("kWideComplex")
    return " | ".join(flags) or "0"


def operator_row(record, derivative: str) -> str:
    """The operator of a record, in the table of all."""
    derived = {flag: quote(text) for text, flag in derived_schemas(record)}
    python, fn = definition_place(record)
    fields = [
        quote(record.schema.text),
        operator_flags(record),
        quote(record.module),
        quote(record.public or record.schema.name),
        str(record.function).lower(),
        str(record.method).lower(),
        derived.get("kInplace", "nullptr"),
        derived.get("kOut", "nullptr"),
        quote(python),
        quote(fn),
        f"&def_{identifier(record)}" if record.kind == "pointwise" else "nullptr",
        derivative,
        *map(quote, vjp_parameters(record)),
        quote(" ".join((record.kind, *record.tags))),
        quote(record.node),
        quote(record.aten),
        *(f"uint8_t(autocast::Rule::{AUTOCAST[record.autocast.get(place)]})" for place in ("cpu", "accelerator")),
    ]
    return f"  {{{', '.join(fields)}}},"


def generate_operators(records, derivatives, out: Path) -> None:
    declarations, definitions = generate_pointwise(records, out)
    reduce_declarations, reduce_definitions = generate_reductions(records, out)
    update_declarations, update_definitions = generate_updates(records, out)
    differentiable = [record for record in records if derivatives.get(record.name)]
    entries = [derivative_entry(record, derivatives[record.name]) for record in differentiable]
    rows = [
        operator_row(record, f"&grad_{identifier(record)}" if derivatives.get(record.name) else "nullptr")
        for record in records
    ]
    text = f"""// Generated by tools/generate.py from the op records.
#include "autograd/autocast.h"
#include "autograd/derivative.h"
#include "cpu/engine/arch.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/updates.h"
#include "dispatch/builtin.h"
#include "ops/each.h"
#include "dispatch/kernel.h"
#include "dispatch/record_places.h"

namespace fl {{

#define FL_DECLARE_LOOPS(name, n)                                              \\
  namespace v3 {{ extern const PointwiseLoop name[n][kLoopSlots]; }}        \\
  namespace v4 {{ extern const PointwiseLoop name[n][kLoopSlots]; }}        \\
  namespace neon {{ extern const PointwiseLoop name[n][kLoopSlots]; }}      \\
  static auto picked_##name() {{ return FL_PICK(name); }}

#define FL_DECLARE_REDUCTION(name)                                   \\
  namespace v3 {{ extern const ReduceLoops name[kReduceSlots]; }}      \\
  namespace v4 {{ extern const ReduceLoops name[kReduceSlots]; }}      \\
  namespace neon {{ extern const ReduceLoops name[kReduceSlots]; }}    \\
  static auto picked_##name() {{ return FL_PICK(name); }}

{chr(10).join(declarations)}
{chr(10).join(reduce_declarations)}
{chr(10).join(update_declarations)}

namespace {{
{definitions}
{chr(10).join(entries)}
{reduce_definitions}
{update_definitions}
{generate_each(records)}
}}  // namespace

const BuiltinOperator builtin_operators[] = {{
{chr(10).join(rows)}
  {{}},
}};
const int builtin_operator_count = {len(rows)};

{record_places(records, derivatives)}

}}  // namespace fl
"""
    (out / "core").mkdir(exist_ok=True)
    write(out / "core" / "operators.cpp", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cuda", action="store_true", help="write the CUDA kernels too")
    parser.add_argument("--only", type=Path, help="a file with names: operators of a runtime without derivatives")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    records = list(load_records().values())
    if args.only is not None:
        names = set(args.only.read_text().split())
        generate_operators([r for r in records if r.name in names], {}, args.out)
        return
    from flambeau.ops.gradients import gradients  # the bare package is in place now

    by_name = {r.name: r for r in records}
    derivatives = {}
    for record in [r for r in records if r.kind == "pointwise"]:
        original = by_name.get(record.alias_of, record)
        if original.name not in derivatives:
            derivatives[original.name] = gradients(original)
            records += [g.record for g in derivatives[original.name] or [] if g and g.record]
        derivatives[record.name] = derivatives[original.name]
    generate_operators(records, derivatives, args.out)
    import generate_definitions

    functions = [place for r in records for place in (definition_place(r), vjp_parameters(r)[:2]) if place[0]]
    import gradient_definitions

    names = {r.name for r in records}
    text, written = gradient_definitions.definitions(
        [g.record for gs in derivatives.values() for g in gs or [] if g and g.record], names
    )
    generate_definitions.add_module(gradient_definitions.MODULE, text)
    functions += [(gradient_definitions.MODULE, name) for name in written]
    forms = generate_definitions.module_of("flambeau.jit._aten_forms")
    functions += [(forms.name, name) for name in forms.members if name.startswith("aten_")]
    generate_definitions.generate(functions, args.out)
    if args.cuda:
        import generate_cuda

        generate_cuda.generate(records, args.out / "cuda")


if __name__ == "__main__":
    main()
