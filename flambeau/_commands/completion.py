"""`flambeau completion`: lines for a shell's start-up file that complete the command's words."""

from __future__ import annotations

import argparse

_SCRIPTS = {
    "bash": """_flambeau() {{
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "{words}" -- "${{COMP_WORDS[1]}}"))
  else COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}")); fi
}}
complete -o filenames -F _flambeau flambeau
""",
    "zsh": """#compdef flambeau
_flambeau() {{ if (( CURRENT == 2 )); then compadd {words}; else _files; fi }}
compdef _flambeau flambeau
""",
    "fish": "complete -c flambeau -n __fish_use_subcommand -f -a '{words}'\n",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau completion",
        description="Print what makes a shell complete the words of `flambeau`.",
        epilog='example: eval "$(flambeau completion bash)"',
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    options = parser.parse_args(arguments)
    from flambeau.__main__ import COMMANDS

    print(_SCRIPTS[options.shell].format(words=" ".join(sorted([*COMMANDS, "run", "doctor", "version"]))), end="")
    return 0
