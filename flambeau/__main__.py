"""The command `flambeau`, also `python -m flambeau`.

flambeau run script.py [args…]      run a PyTorch program, unchanged, on flambeau
flambeau run -m module [args…]      the same for a module
flambeau doctor paths…              list what a program uses of torch that flambeau lacks, without running it
flambeau explain script.py [args…]  run it and tell how its compile() calls were captured, and where graphs broke
flambeau bench                      time a few operators, eager and compiled
flambeau cache show|prune|verify    look after the kernels that compile() keeps on disk
flambeau env                        versions, processor and settings, for bug reports
flambeau version

Each has --help. For a start: flambeau doctor train.py && flambeau run train.py
"""

from __future__ import annotations

import os
import sys

COMMANDS = ("bench", "cache", "env", "explain")  # modules of flambeau._commands


def run(arguments: list[str]) -> int:
    """Replace this process by Python running the program, with `import torch` meaning flambeau."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: flambeau run script.py [args…]\n       flambeau run -m module [args…]", file=sys.stderr)
        return 2
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

    from flambeau._alias import environment

    if not arguments[0].startswith("-") and not os.path.exists(arguments[0]):
        print(f"flambeau run: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    os.environ.update(environment(os.environ))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *_args_from_interpreter_flags(), *arguments])
    return 1  # not reached


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "run":
        return run(rest)
    if command == "doctor":
        from flambeau import _doctor

        return _doctor.main(rest)
    if command in COMMANDS:
        from importlib import import_module

        return import_module(f"flambeau._commands.{command}").main(rest)
    if command in ("version", "--version"):
        from flambeau.version import __version__

        print(f"flambeau {__version__}")
        return 0
    if command in ("help", "-h", "--help"):
        print(__doc__)
        return 0
    print(f"flambeau: there is no command {command!r}\n" if command else "", __doc__, sep="", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
