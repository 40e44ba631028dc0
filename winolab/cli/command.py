"""The command ``winolab``: a module a command, imported when it is asked for; errors are one line
and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from winolab.cli import process
from winolab.version import __version__

# What each module registers, in the order in which the help names it.
MODULES = {
    "plan": ("plan",),
    "matrices": ("transforms", "points"),
    "records": ("records",),
    "accuracy": ("accuracy",),
    "installation": ("reproduce", "doctor", "warmup"),
    "cost": ("cost",),
    "tolerance": ("tolerance",),
    "judge": ("judge",),
    "bench": ("bench",),
    "listing": ("algorithms", "devices"),
}


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Winograd convolution, exact: its matrices, its errors, and the papers' tables.

    Start with:

    ```
    winolab transforms 6 3
    winolab accuracy --algorithm gamma:8:6:3 --input 32x48x48x64 --filter 64x3x3
    winolab algorithms
    ```
    """
    if version:
        print(f"winolab {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def application(modules: Sequence[str] = tuple(MODULES)) -> typer.Typer:
    """The command with the subcommands of these modules, by default of all."""
    made = typer.Typer(
        name="winolab",
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(root)
    for name in modules:
        import_module(f"winolab.cli.{name}").register(made)
    return made


def __getattr__(name: str) -> Any:
    """``app``, the whole command."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = application()
    return made


def asked(arguments: Sequence[str]) -> tuple[str, ...]:
    """The module whose command the arguments name, or all where they name none; the version needs
    none."""
    if [*arguments] == ["--version"]:
        return ()
    command = next((text for text in arguments if not text.startswith("-")), "")
    return tuple(name for name, has in MODULES.items() if command in has) or tuple(MODULES)


def main() -> None:
    """Run the command, as ``process.run`` says."""
    process.run(lambda **how: application(asked(sys.argv[1:]))(**how))


if __name__ == "__main__":
    main()
