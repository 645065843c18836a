"""Compiles Triton kernels, in a process that has nothing else to do.

Run as a script, it reads requests from its standard input, a JSON object on each line, and answers each with one line. It
imports Triton alone. A request names the source, the function in it, the types of its parameters, which of them are
multiples of sixteen, the constants, the options and the GPU; the answer has the machine code and what a launch must know.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from typing import Any


def build(request: dict[str, Any]) -> dict[str, Any]:
    """The machine code of one kernel: {"image", "shared", "threads"}, or {"error"}."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.compilation.disable_line_info = True
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "kernel.py")
        with open(path, "w") as file:
            file.write(request["source"])
        space: dict[str, Any] = {"__name__": "kernel"}
        exec(compile(request["source"], path, "exec"), space)
        signature = request["signature"]
        attributes = {(i,): [["tt.divisibility", 16]] for i, yes in enumerate(request["multiples"]) if yes}
        source = ASTSource(space[request["name"]], signature, request["constants"], attributes)
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = os.path.join(scratch, "cache")
            try:
                kernel = triton.compile(
                    source,
                    target=GPUTarget("cuda", request["capability"], 32),
                    options=request["options"],
                )
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}
        data = kernel.metadata
        if data.global_scratch_size or data.profile_scratch_size:
            return {"error": "the kernel wants scratch memory in global memory"}
        return {
            "image": base64.b64encode(kernel.asm["cubin"]).decode(),
            "shared": data.shared,
            "threads": data.num_warps * 32,
        }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the compiler prints is not an answer
    for line in sys.stdin:
        try:
            answer = build(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
