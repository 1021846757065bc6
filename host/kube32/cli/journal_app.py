"""kube32-cli journal: reads journal images offline."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from kube32.cli.cluster import run_verb
from kube32.cli.errors import CliError

journal_app = typer.Typer(
    no_args_is_help=True, help="Reads a journal offline: DIR/kube32/store/journal.img, or a board's flash."
)
File = Annotated[Path, typer.Argument(metavar="FILE")]


def _print(lines: Iterable[str]) -> None:
    """Prints lines; quietly to an end when nobody reads them any more (`| head`). CliError for a full disk."""
    try:
        for line in lines:
            print(line)
        # Absent when the caller closed it (`>&-`).
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise CliError(f"the output cannot be written: {error.strerror or error}", 1) from None


@journal_app.command()
def dump(
    file: File,
    live: Annotated[bool, typer.Option("--live", help="Only the objects that are there.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Leave the values out.")] = False,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print what Secrets hold.")] = False,
) -> None:
    """Print each record as a JSON line; exit code 1, with the place of the first fault, where one is damaged."""
    from kube32.cli import journal

    def verb() -> int:
        image = journal.Image(file)
        _print(journal.dump(image, live=live, keys_only=keys, show_secrets=show_secrets))
        if image.faults:
            print(f"kube32-cli: {file}: {image.faults[0]}", file=sys.stderr)
        return 1 if image.faults else 0

    run_verb(verb)


@journal_app.command()
def check(file: File) -> None:
    """Say whether a journal is whole; exit code 1, with the place of each fault, where it is not."""
    from kube32.cli import journal

    def verb() -> int:
        image = journal.Image(file)
        if image.scan.blank:
            _print([f"{file}: erased, no log has been begun in it"])
            return 0
        faults = journal.check(image)
        torn = (f"an unfinished commit, which nobody was told of: {line}" for line in image.torn)
        counts = f"{len(image.says.live)} live objects, {len(image.scan.records)} records"
        total = f"{counts}, {len(faults) or 'no'} fault{'' if len(faults) == 1 else 's'}"
        _print(f"{file}: {line}" for line in (*faults, *torn, total))
        return 1 if faults else 0

    run_verb(verb)


@journal_app.command()
def stats(
    file: File,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="json", help="Print JSON instead of text.")
    ] = "",
) -> None:
    """Print how full a journal is, how worn, and how long the flash will last at this pace."""
    from kube32.cli import journal

    def verb() -> int:
        if output not in ("", "json"):
            raise CliError(f'-o "{output}": only json is offered')
        image = journal.Image(file)
        facts = journal.stats(image)
        _print([json.dumps(facts, indent=2)] if output == "json" else _lines(facts))
        if image.faults:
            print(f"kube32-cli: {file}: {image.faults[0]}", file=sys.stderr)
        return 1 if image.faults else 0

    run_verb(verb)


def _lines(facts: dict[str, Any]) -> list[str]:
    capacity = f" of {facts['capacityBytes']}" if facts["capacityBytes"] else ""
    erases, life = facts["erasesPerSector"], facts["projectedLifeYears"]
    names = (f"{count} {name}" for name, count in facts["resources"].items())
    records = (f"{count} {name}" for name, count in facts["records"].items())
    return [
        f"live       {facts['liveKeys']} objects, {facts['liveBytes']}{capacity} bytes",
        f"           {', '.join(names) or 'none'}",
        *(f"           {key}  {size} bytes" for key, size in facts["biggest"]),
        f"sectors    {facts['sectorsUsed']} of {facts['sectors']} used, numbers {facts['tail']} to {facts['head']}",
        f"records    {', '.join(records) or 'none'}",
        f"revision   {facts['nextRevision']} is where the next boot starts",
        f"erases     {erases['least']} to {erases['most']} a sector",
        f"life       {'unknown: the records span too little time' if life is None else f'{life} years at this pace'}",
        f"faults     {facts['faults']}, and {facts['torn']} places of an unfinished commit",
    ]


@journal_app.command()
def salvage(
    file: File,
    to: Annotated[Path, typer.Option("--to", metavar="NEW", help="The journal to write.")],
    profile: Annotated[
        str, typer.Option(help="Whose journal NEW is (default: by FILE's size, else sim).")
    ] = "",
) -> None:
    """Save what can still be read of FILE, which is left alone, into a new journal."""
    from kube32.cli import journal

    def verb() -> int:
        count, made_for = journal.salvage(file, to, profile)
        _print([f"{to}: {count} objects of {file}, a journal for --profile {made_for}"])
        return 0

    run_verb(verb)
