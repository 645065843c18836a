"""Packs the library for programs without Python: python tools/make_archive.py [--build FOLDER] [--into dist]

The archive flambeau-VERSION-linux-PROCESSOR.tar.gz has one folder:

    include/                 the C and C++ interfaces
    lib/libflambeau.so       the library, and libflambeau.a; oneDNN beside them, where it is installed here
    share/cmake/             find_package(flambeau): flambeau::flambeau and flambeau::static; find_package(Torch)
    share/pkgconfig/         flambeau.pc

`make archive` builds the library for all processors of this kind first. FOLDER is another build, as build/aarch64.
"""

from __future__ import annotations

import argparse
import io
import platform
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINES = {62: "x86_64", 183: "aarch64"}  # by the numbers of ELF
DATE = 315532800  # of all members, so that the same files make the same archive

PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: flambeau
Description: Tensors, operators and models compiled ahead of time
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lflambeau -Wl,-rpath,${{libdir}}
Libs.private: -Wl,--whole-archive -l:libflambeau.a -Wl,--no-whole-archive -lstdc++ -lgomp -lm -ldl -lpthread
"""


def machine_of(library: Path) -> str:
    """The kind of processor that a shared object is for."""
    with open(library, "rb") as file:
        header = file.read(20)
    if header[:4] != b"\x7fELF":
        raise SystemExit(f"[archive] expected a shared object, got {library}")
    number = int.from_bytes(header[18:20], "little")
    return MACHINES.get(number, f"machine{number}")


def onednn(machine: str) -> Path | None:
    """oneDNN's library, where it is for the same kind of processor."""
    if machine != platform.machine():
        return None
    command = [sys.executable, str(ROOT / "tools" / "find_onednn.py")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    library = Path(answer.stdout.strip()).parent / "lib" / "libdnnl.so.3"
    return library if answer.returncode == 0 and library.is_file() else None


def members(folder: Path, version: str) -> Iterator[tuple[str, bytes]]:
    """Paths and contents of the archive."""
    package = ROOT / "flambeau"
    for part in ("include", "share/cmake"):
        for path in sorted((package / part).rglob("*")):
            if path.is_file():
                yield str(path.relative_to(package)), path.read_bytes()
    yield "share/pkgconfig/flambeau.pc", PKG_CONFIG.format(version=version).encode()
    library = folder / "libflambeau.so"
    yield "lib/libflambeau.so", library.read_bytes()
    static = folder / "static" / "libflambeau.a"
    if static.is_file():
        yield "lib/libflambeau.a", static.read_bytes()
    if (dnnl := onednn(machine_of(library))) is not None:
        yield "lib/libdnnl.so.3", dnnl.read_bytes()
        for path in sorted((dnnl.parents[1] / "share" / "doc" / "onednn").glob("[LT]*")):
            yield f"share/licenses/onednn/{path.name}", path.read_bytes()
    yield "share/licenses/flambeau/LICENSE", (ROOT / "LICENSE").read_bytes()


def pack(folder: Path, into: Path) -> Path:
    """Writes the archive of a build and gives its path."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    top = f"flambeau-{version}-linux-{machine_of(folder / 'libflambeau.so')}"
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"{top}.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=6) as archive:
        for path, content in members(folder, version):
            info = tarfile.TarInfo(f"{top}/{path}")
            info.size, info.mtime = len(content), DATE
            info.mode = 0o755 if ".so" in path else 0o644
            archive.addfile(info, io.BytesIO(content))
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build", type=Path, default=ROOT / "flambeau", help="the folder of libflambeau.so and static/"
    )
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parsed = parser.parse_args()
    if not (parsed.build / "libflambeau.so").is_file():
        parser.error(f"expected libflambeau.so in {parsed.build}, got none")
    target = pack(parsed.build, parsed.into)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
