"""The older launcher: `python -m flambeau.distributed.launch`, which passes `--local-rank` to programs unless `--use-env`."""

from __future__ import annotations

import sys
from typing import Any

from flambeau.distributed.run import get_args_parser, run

__all__ = ["main"]


def main(args: Any = None) -> None:
    arguments = list(sys.argv[1:] if args is None else args)
    uses_environment = any(flag in arguments for flag in ("--use-env", "--use_env"))
    arguments = [argument for argument in arguments if argument not in ("--use-env", "--use_env")]
    parsed = get_args_parser().parse_args(arguments)
    if not uses_environment:
        # Each worker knows its rank from the environment; a small program passes it on as an argument.
        code = (
            "import os, sys, runpy; sys.argv = sys.argv[1:2] + ['--local-rank=' + os.environ['LOCAL_RANK']] + sys.argv[2:]; "
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        parsed.training_script_args = ["-u", "-c", code, parsed.training_script, *parsed.training_script_args]
        parsed.training_script, parsed.no_python = sys.executable, True
    run(parsed)


if __name__ == "__main__":
    main()
