"""Make this checkout importable in the virtual environment that runs this file, and put the command `flambeau` there.

python tools/link.py

A `.pth` file names the checkout; the command is a script as pip would write it. An installed wheel comes first.
"""

import pathlib
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = """#!{python}
import sys

from flambeau.__main__ import main

sys.exit(main())
"""


def write(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    if sys.prefix == sys.base_prefix:
        sys.exit("[link] expected the Python of a virtual environment, got " + sys.executable)
    write(pathlib.Path(sysconfig.get_path("purelib")) / "flambeau-checkout.pth", f"{ROOT}\n")
    command = pathlib.Path(sysconfig.get_path("scripts")) / "flambeau"
    write(command, COMMAND.format(python=sys.executable))
    command.chmod(0o755)


if __name__ == "__main__":
    main()
