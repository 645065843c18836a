"""How many public callables have a docstring, and how many one with an example.

python tools/docstring_share.py [--missing]     names of those without an example, too
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module

PLACES = {
    "functions": "flambeau", "nn": "flambeau.nn", "nn.functional": "flambeau.nn.functional", "optim": "flambeau.optim",
    "linalg": "flambeau.linalg", "fft": "flambeau.fft", "special": "flambeau.special",
    "distributions": "flambeau.distributions", "Tensor": "flambeau",
}  # fmt: skip


def members(place: str) -> dict[str, object]:
    """Public callables of a module by name; for `flambeau` its functions, for `Tensor` its methods."""
    owner = import_module(PLACES[place])
    if place == "Tensor":
        owner = owner.Tensor
    names = getattr(owner, "__all__", None) if place not in ("functions", "Tensor") else None
    public = {n: getattr(owner, n, None) for n in names or dir(owner) if not n.startswith("_")}
    public = {n: v for n, v in public.items() if getattr(v, "__module__", None) not in ("typing", "importlib")}
    return {n: v for n, v in public.items() if callable(v) and not (place == "functions" and isinstance(v, type))}


def main() -> int:
    show = "--missing" in sys.argv[1:]
    total = described = shown = 0
    for place in PLACES:
        own = members(place)
        texts = {name: inspect.getdoc(value) or "" for name, value in own.items()}
        with_text = sum(bool(text) for text in texts.values())
        without = sorted(name for name, text in texts.items() if ">>>" not in text)
        examples = len(own) - len(without)
        total, described, shown = total + len(own), described + with_text, shown + examples
        print(
            f"{place:<14} {len(own):>5} callables  {with_text / len(own):>6.1%} described  {examples / len(own):>6.1%} with an example"
        )
        if show and without:
            print("    " + " ".join(without))
    print(
        f"{'all':<14} {total:>5} callables  {described / total:>6.1%} described  {shown / total:>6.1%} with an example"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
