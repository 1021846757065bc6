"""The command kube32-build. Each verb is thin: it calls one module and turns its errors into exit code 2."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kube32 import __version__
from kube32_build import abi

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Builds what Kube32 generates from its contract.",
)
render = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write sources that are generated from the contract.",
)
app.add_typer(render, name="render")


def _show_version(value: bool) -> None:
    if value:
        print(f"kube32-build {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


@render.command("abi")
def render_abi(
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write it; without it, to standard output."
        ),
    ] = None,
) -> None:
    """Write kube32.h, the C header of the pod ABI, for authors of pods."""
    header = abi.render()
    if output is None:
        sys.stdout.write(header)
        return
    try:
        output.write_text(header, encoding="utf-8")
    except OSError as error:
        raise typer.Exit(_fail(f"{output}: cannot be written: {error.strerror}")) from None


def _fail(message: str) -> int:
    """Says what went wrong in one line; the exit code for it."""
    print(f"kube32-build: {message}", file=sys.stderr)
    return 2


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
