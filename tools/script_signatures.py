"""Writes flambeau/jit/signatures.txt: the operators that TorchScript programs can name, asked of an installed PyTorch.

Archives name operators and leave their overloads to the reader, who finds them by the types of the arguments. Reading and writing
them therefore needs the signatures that both sides agree on, not those of the records. Run it with PyTorch on the path:
`python tools/script_signatures.py`.
"""

from __future__ import annotations

import pathlib

TARGET = pathlib.Path(__file__).resolve().parent.parent / "flambeau" / "jit" / "signatures.txt"
SKIPPED = (
    "_foreach",
    "mkldnn",
    "cudnn",
    "miopen",
    "_mps",
    "mps_",
    "fbgemm",
    "_test_",
    "_philox",
    "aten::quantized_",
    "_cslt",
    "_sobol",
)


def main() -> None:
    import torch

    by_name: dict[str, list[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space = schema.name.partition("::")[0]
        written = [a for a in schema.arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write]
        if space not in ("aten", "prim", "quantized") or written or any(part in schema.name for part in SKIPPED):
            continue
        by_name.setdefault(schema.name, []).append(str(schema))
    lines = [line for name in sorted(by_name) for line in by_name[name]]
    TARGET.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} signatures of {len(by_name)} operators")


if __name__ == "__main__":
    main()
