"""The command `flambeau`, also `python -m flambeau`.

flambeau run script.py [args…]      run a PyTorch program, unchanged, on flambeau
flambeau run -m module [args…]      the same for a module
flambeau doctor paths…              list what a program uses of torch that flambeau lacks, without running it
flambeau explain script.py [args…]  run it and tell how its compile() calls were captured, and where graphs broke
flambeau compare script.py [args…]  run it on PyTorch, too: what it prints, time, memory, the first difference
flambeau profile script.py [args…]  run it and tell where the time goes: table, trace, flame chart
flambeau launch script.py [args…]   run it in several processes, with the options of torchrun
flambeau package model.py:make -o f  compile a model ahead of time into a file for C, C++ and Python
flambeau dist-status [pid]          a table of the running groups of processes of this host: what each rank is in
flambeau plan model.py --gpus 64    propose how to divide a model over many GPUs, with modelled times
flambeau bench                      time a few operators, eager and compiled, and on PyTorch where it is installed
flambeau cache show|prune|verify    look after the kernels that compile() keeps on disk
flambeau device-check NAME          check a registered device against the CPU, operator by operator
flambeau companion install|remove   let pip take flambeau for PyTorch, so that libraries do not install it
flambeau completion bash|zsh|fish   complete these words in a shell
flambeau env                        versions, processor and settings, for bug reports
flambeau version

Each has --help. For a start: flambeau doctor train.py && flambeau run train.py
"""

from __future__ import annotations

import os
import sys

COMMANDS = (
    "bench cache companion compare completion device-check dist-status env explain launch package plan profile".split()
)  # of flambeau._commands

RUN_HELP = """usage: flambeau run script.py [args…]
       flambeau run -m module [args…]

Run a PyTorch program, unchanged: in it, and in processes it starts, `import torch` means flambeau.

examples: flambeau run train.py --epochs 3
          flambeau run -m package.train --epochs 3
          flambeau run -c "import torch; print(torch.__version__)"
"""


def run(arguments: list[str]) -> int:
    """Replace this process by Python running the program, with `import torch` meaning flambeau."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(RUN_HELP, end="")
        return 0
    if not arguments:
        print("flambeau run: expected a program\n" + RUN_HELP, end="", file=sys.stderr)
        return 2
    from subprocess import _args_from_interpreter_flags

    from flambeau._compat.alias import environment

    if not arguments[0].startswith("-") and not os.path.exists(arguments[0]):
        print(f"flambeau run: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    os.environ.update(environment(os.environ))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *_args_from_interpreter_flags(), *arguments])
    return 1  # not reached


def main(arguments: list[str] | None = None) -> int:
    try:
        status = perform(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `flambeau env | head`: nobody reads on, which is no error to show
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def perform(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "run":
        return run(rest)
    if command == "doctor":
        from flambeau._commands import doctor

        return doctor.main(rest)
    if command in COMMANDS:
        from importlib import import_module

        return import_module(f"flambeau._commands.{command.replace('-', '_')}").main(rest)
    if command in ("version", "--version"):
        from flambeau.version import __version__

        print(f"flambeau {__version__}")
        return 0
    if command in ("help", "-h", "--help"):
        print(__doc__)
        return 0
    if command:
        from difflib import get_close_matches

        near = get_close_matches(command, ["run", "doctor", "version", *COMMANDS], 1)
        hint = f"did you mean `flambeau {near[0]}`?" if near else "`flambeau help` lists them"
        print(f"flambeau: there is no command {command!r}; {hint}", file=sys.stderr)
    else:
        print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
