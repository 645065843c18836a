"""Which generated kernels a change alters: the same small programs compiled by another revision and by this tree.

    python tools/replay.py BASE [--diff]        or: make replay BASE=main

Each program of PROGRAMS runs in a process of its own with an empty kernel cache, once with the sources of BASE, built
under build/replay, and once with this tree. Kernels are the functions found in the caches, told apart by their text.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNEL = re.compile(
    r"^// (?P<ops>[^\n]*)\n(?P<text>(?://[^\n]*\n)*extern \"C\" void (?P<name>k_\w+)\(.*?^}\n)", re.M | re.S
)

START = """
import flambeau as torch
from flambeau import nn
F = nn.functional
torch.manual_seed(0)
torch.set_num_threads(1)
"""
PROGRAMS = {
    "pointwise chain": "torch.compile(lambda x, y: (x * y + 1).tanh().relu() * x)(torch.randn(64, 64), torch.randn(64))",
    "softmax": "x = torch.randn(8, 100, requires_grad=True); torch.compile(lambda x: x.softmax(-1))(x).sum().backward()",
    "layer norm, gelu": """
layer = nn.Sequential(nn.LayerNorm(64), nn.GELU())
torch.compile(layer)(torch.randn(8, 64, requires_grad=True)).sum().backward()
""",
    "cross entropy": """
x = torch.randn(16, 10, requires_grad=True)
torch.compile(F.cross_entropy)(x, torch.randint(10, (16,))).backward()
""",
    "reductions": "torch.compile(lambda x: (x.sum(0), x.mean(1), x.var(1), x.amax(), x.argmax(1)))(torch.randn(32, 48))",
    "network": """
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
torch.compile(model)(torch.randn(8, 16)).square().mean().backward()
""",
    "attention": """
block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
torch.compile(block)(torch.randn(2, 10, 32)).sum().backward()
""",
    "convolution": """
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
torch.compile(model)(torch.randn(2, 3, 12, 12)).sum().backward()
""",
    "training step": """
model = nn.Linear(8, 4)
adam = torch.optim.Adam(model.parameters())
@torch.compile
def step(x):
    adam.zero_grad(); loss = model(x).square().mean(); loss.backward(); adam.step(); return loss
step(torch.randn(8, 8)); step(torch.randn(8, 8))
""",
}


def kernels(tree: pathlib.Path, program: str) -> dict[str, str]:
    """Source of each kernel that a program has built, under the operators it came from."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as empty:
        environment = dict(os.environ, PYTHONPATH=str(tree), FLAMBEAU_CACHE_DIR=cache)
        file = pathlib.Path(empty) / "program.py"  # the interpreter that captures wants code from files
        file.write_text(START + program)
        done = subprocess.run([sys.executable, str(file)], cwd=empty, env=environment, capture_output=True, text=True)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1]}
        matches = [m for source in pathlib.Path(cache).rglob("*.cpp") for m in KERNEL.finditer(source.read_text())]
        texts = sorted({(m["ops"], m["text"].replace(m["name"], "kernel")) for m in matches})
        sources: dict[str, str] = {}
        for ops, text in texts:  # by text: names of files depend on headers and compilers
            key, i = ops, 2
            while key in sources:
                key, i = f"{ops} ({i})", i + 1
            sources[key] = text
        return dict(sorted(sources.items(), key=lambda item: item[0]))


def built(revision: str) -> pathlib.Path:
    """A tree of the revision with its native libraries."""
    sha = subprocess.run(
        ["git", "rev-parse", "--short", f"{revision}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = ROOT / "build" / "replay" / sha
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", sha], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    if not list((tree / "flambeau").glob("_C*.so")):
        print(f"building {sha} in {tree.relative_to(ROOT)}", flush=True)
        configure = ["cmake", "-G", "Ninja", "-S", ".", "-B", "build/native", f"-DPython_EXECUTABLE={sys.executable}"]
        for command in (
            [*configure, f"-DFLAMBEAU_OUTPUT_DIR={tree / 'flambeau'}", "-DFLAMBEAU_KERNEL_ARCHS=x86-64-v3"],
            ["cmake", "--build", "build/native"],
        ):
            path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, PATH=path))
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", help="a revision to compare with")
    parser.add_argument("--diff", action="store_true", help="print how the text of altered kernels differs")
    options = parser.parse_args()
    tree = built(options.base)
    altered = 0
    for name, program in PROGRAMS.items():
        old, new = kernels(tree, program), kernels(ROOT, program)
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        altered += len(changed)
        print(f"{name}: {len(new)} kernels, {len(changed)} altered")
        for key in changed:
            print(f"  {'new' if key not in old else 'gone' if key not in new else 'altered'}: {key}")
            if options.diff:
                lines = difflib.unified_diff(
                    old.get(key, "").splitlines(), new.get(key, "").splitlines(), options.base, "here", lineterm="", n=1
                )
                print("\n".join(f"    {line}" for line in lines))
    print(f"{altered} kernels altered since {options.base}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
