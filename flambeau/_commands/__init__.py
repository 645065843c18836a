"""What the command `flambeau` does, a module for each of its subcommands; `flambeau.__main__` chooses one."""
