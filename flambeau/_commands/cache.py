"""`flambeau cache`: look at the kernels that `compile` keeps on disk, make room, check them."""

from __future__ import annotations

import argparse
import time

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Bytes from a text such as 300M."""
    number, unit = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 1)
    try:
        value = int(float(number) * unit)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected bytes such as 300M, got {text!r}")
    return value


def spoken(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def show() -> int:
    from flambeau._inductor import build

    objects = build.cached()
    print(f"{build.cache_dir()}")
    print(
        f"{sum(len(o.kernels) for o in objects)} kernels in {len(objects)} objects, {spoken(sum(o.size for o in objects))}"
    )
    print(f"the oldest are deleted beyond {spoken(build.MOST_BYTES)}")
    for entry in objects[:10]:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(
            f"  {entry.path.name}  {spoken(entry.size):>10}  {len(entry.kernels):3} kernel{'s' if len(entry.kernels) != 1 else ' '}  last used {used}"
        )
    if len(objects) > 10:
        print(f"  and {len(objects) - 10} more")
    return 0


def prune(most: int) -> int:
    from flambeau._inductor import build

    before = build.cached()
    build.prune(build.cache_dir(), most)
    after = build.cached()
    freed = sum(o.size for o in before) - sum(o.size for o in after)
    print(f"deleted {len(before) - len(after)} of {len(before)} objects, {spoken(freed)}")
    return 0


def verify(repair: bool) -> int:
    from flambeau._inductor import build

    objects = build.cached()
    damaged = [entry for entry in objects if not build.intact(entry)]
    for entry in damaged:
        print(f"{entry.path}: not as it was written{', deleted' if repair else ''}")
        if repair:
            build.delete(entry)
    print(f"{len(objects) - len(damaged)} of {len(objects)} objects are intact")
    if damaged and not repair:
        print("damaged ones are never loaded but built again; `flambeau cache verify --repair` deletes them")
    return 1 if damaged and not repair else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau cache",
        description="Look after the kernels that compile() keeps on disk.",
        epilog="examples: flambeau cache show\n          flambeau cache prune --most 100M\n          "
        "flambeau cache prune --most 0      (delete all)\n          flambeau cache verify --repair\n\n"
        "FLAMBEAU_CACHE_DIR says where the cache is.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|prune|verify")
    actions.add_parser("show", help="where they are, how many, how large")
    pruning = actions.add_parser("prune", help="delete those that were not used for longest")
    pruning.add_argument("--most", type=size, default="512M", help="bytes to keep, such as 300M (default 512M)")
    verifying = actions.add_parser("verify", help="compare every object with its checksum; status 1 when one differs")
    verifying.add_argument("--repair", action="store_true", help="delete what is damaged")
    options = parser.parse_args(arguments)
    if options.action == "show":
        return show()
    return prune(options.most) if options.action == "prune" else verify(options.repair)
