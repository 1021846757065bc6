"""The command kube32-cli."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kube32 import __version__
from kube32.cli.cluster import Cluster, Target, run_in_cluster, run_verb
from kube32.cli.errors import CliError
from kube32.cli.journal_app import journal_app

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pushes modules, deploys, saves and moves pods, reads snapshots. Finds the cluster as kubectl does.",
)

Output = Annotated[str, typer.Option("-o", "--output", metavar="json", help="Print JSON instead of text.")]


def _show_version(value: bool) -> None:
    if value:
        print(f"kube32-cli {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: $KUBECONFIG, then ~/.kube/config.")
    ] = None,
    cluster: Annotated[str, typer.Option("--context", help="A context of the kubeconfig.")] = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Default: the context's.")] = "",
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Global options, kept for the verbs."""
    context.obj = Target(kubeconfig, cluster, namespace)


def _as_json(output: str) -> bool:
    if output not in ("", "json"):
        raise CliError(f'-o "{output}": only json is offered')
    return output == "json"


def print_json(obj: Any) -> None:
    """Prints what -o json asks for."""
    json.dump(obj, sys.stdout, indent=2)
    print()


def _pairs(values: list[str] | None, flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values or []:
        key, equals, rest = value.partition("=")
        if not key or not equals:
            raise CliError(f'{flag} "{value}": give KEY=VALUE')
        found[key] = rest
    return found


@app.command()
def push(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.wasm")],
    name: Annotated[str, typer.Option(help="The Module's name (default: the file's).")] = "",
    output: Output = "",
) -> None:
    """Store FILE.wasm as a Module: pods name it as image wasm://NAME."""
    from kube32.cli import modules

    async def verb(cluster: Cluster) -> int:
        as_json = _as_json(output)
        module = await modules.push(cluster, file, modules.check_name(name or file.stem))
        if as_json:
            print_json(module)
        else:
            status = module["status"]
            size = f"{status['sizeBytes']} bytes, SHA-256 {status['sha256']}"
            print(f"module/{module['metadata']['name']} pushed: {size}")
        return 0

    run_in_cluster(context.obj, verb)


@app.command()
def deploy(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.wasm")],
    name: Annotated[str, typer.Option(help="The pod's name, and the Module's.")],
    env: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An environment variable.")
    ] = None,
    topics: Annotated[str, typer.Option(metavar="A,B", help="Topics whose events reach k32_event.")] = "",
    tick: Annotated[str, typer.Option(metavar="500ms", help="Interval of k32_tick.")] = "",
    memory: Annotated[str, typer.Option(metavar="32Ki", help="Limit of the pod's memory.")] = "",
    node: Annotated[str, typer.Option(help="The node to run on (default: the scheduler picks).")] = "",
    embed: Annotated[bool, typer.Option("--embed", help="Carry the module inside the Pod.")] = False,
    output: Output = "",
) -> None:
    """Push FILE.wasm and create a pod of it, with an emptyDir at /tmp."""
    from kube32.cli import modules

    async def verb(cluster: Cluster) -> int:
        as_json = _as_json(output)
        flags = modules.PodFlags(
            modules.check_name(name), _pairs(env, "--env"), topics, tick, memory, node, embed
        )
        pod = await modules.deploy(cluster, file, flags)
        if as_json:
            print_json(pod)
        else:
            print(f"pod/{pod['metadata']['name']} created")
        return 0

    run_in_cluster(context.obj, verb)


@app.command()
def checkpoint(
    context: typer.Context,
    pod: Annotated[str, typer.Argument(metavar="POD")],
    output: Annotated[
        str, typer.Option("-o", metavar="FILE.k32s|json", help="Also write the snapshot, or JSON.")
    ] = "",
) -> None:
    """Save POD's state; the pod keeps running."""
    from kube32.cli import checkpoints

    async def verb(cluster: Cluster) -> int:
        result = await checkpoints.run_checkpoint(cluster, checkpoints.manifest(pod, "Save"), lambda _: None)
        name, status = result["metadata"]["name"], result.get("status", {})
        if status.get("phase") != "Saved":
            raise CliError(_failure(f"checkpoint/{name} failed", status), 1)
        if output == "json":
            print_json(result)
            return 0
        print(f"checkpoint/{name} saved: {status['sizeBytes']} bytes from node {status['nodeName']}")
        if output:
            size = await checkpoints.download(cluster, name, Path(output))
            print(f"{output}: {size} bytes, SHA-256 {status['snapshotSha256']}")
        return 0

    run_in_cluster(context.obj, verb)


def _failure(what: str, status: dict[str, Any]) -> str:
    blockers = status.get("blockers") or []
    return "\n".join([f"{what}: {status.get('message', '')}", *(f"  blocker: {b}" for b in blockers)])


@app.command()
def move(
    context: typer.Context,
    pod: Annotated[str, typer.Argument(metavar="POD")],
    to: Annotated[
        str, typer.Option("--to", metavar="NODE", help="The target node (default: the scheduler picks).")
    ] = "",
    selector: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label the target must have.")
    ] = None,
    output: Output = "",
) -> None:
    """Move POD with its state to another node and wait for it; exit code 1 when it did not move."""
    from kube32.cli import checkpoints

    async def verb(cluster: Cluster) -> int:
        as_json = _as_json(output)
        labels = _pairs(selector, "--selector")
        if to and labels:
            raise CliError("give --to or --selector, not both")
        target: dict[str, Any] = {"nodeName": to} if to else ({"nodeSelector": labels} if labels else {})
        begun = time.monotonic()

        def on_phase(current: dict[str, Any]) -> None:
            if not as_json:
                status = current.get("status", {})
                where = (
                    f" {status.get('nodeName', '?')} -> {status['targetNode']}"
                    if status.get("targetNode")
                    else ""
                )
                print(
                    f"{(time.monotonic() - begun) * 1000:6.0f} ms  {status.get('phase', 'Pending')}{where}",
                    flush=True,
                )

        result = await checkpoints.run_checkpoint(
            cluster, checkpoints.manifest(pod, "Move", target), on_phase
        )
        status = result.get("status", {})
        done = status.get("phase") == "Completed"
        if as_json:
            print_json(result)
        elif done:
            print(status.get("message") or f"pod {pod} moved")
        else:
            raise CliError(_failure(f"pod {pod} did not move", status), 1)
        return 0 if done else 1

    run_in_cluster(context.obj, verb)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE.k32s")],
    output: Output = "",
) -> None:
    """Print a snapshot's header, sections, globals and channels; exit code 1 when it is not whole."""
    from kube32.cli import snapshots

    def verb() -> int:
        as_json = _as_json(output)
        facts = snapshots.read(file)
        if as_json:
            print_json(facts)
        else:
            snapshots.show(facts)
        return 1 if facts["problem"] else 0

    run_verb(verb)


users_app = typer.Typer(
    no_args_is_help=True, help="Adds, lists and removes users with kubeconfigs of their own."
)
app.add_typer(users_app, name="user")
app.add_typer(journal_app, name="journal")


@users_app.command("add")
def user_add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    role: Annotated[
        str, typer.Option(metavar="view|edit|admin|cluster-admin", help="A ClusterRole that the user gets.")
    ] = "",
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="G", help="A group of the user; may be repeated.")
    ] = None,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NS", help="Give the role in this namespace only.")
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The kubeconfig (default: NAME.kubeconfig; - prints it)."
        ),
    ] = "",
    token: Annotated[
        bool, typer.Option("--token", help="A bearer token instead of a client certificate.")
    ] = False,
) -> None:
    """Make a user and write a kubeconfig that only its owner can read.

    A user that is there already gets a new credential, and the old one no longer works; with --role also
    the role is replaced.
    """
    from kube32.cli import users

    async def verb(cluster: Cluster) -> int:
        space = namespace or context.obj.namespace
        flags = users.UserFlags(name, role, tuple(group or ()), space, output, token)
        if namespace and not role:
            raise CliError("--namespace says where a role counts: give --role too")
        for line in await users.add(cluster, flags):
            print(line)
        return 0

    run_in_cluster(context.obj, verb)


@users_app.command("list")
def user_list(context: typer.Context, output: Output = "") -> None:
    """List the users that were added, with their roles."""
    from kube32.cli import users

    async def verb(cluster: Cluster) -> int:
        as_json = _as_json(output)
        rows = await users.listed(cluster)
        if as_json:
            print_json(rows)
            return 0
        table = [("NAME", "ROLES", "GROUPS", "CREDENTIAL", "CREATED")]
        for row in rows:
            roles, groups = ", ".join(row["roles"]) or "<none>", ", ".join(row["groups"]) or "<none>"
            table.append((row["name"], roles, groups, row["credential"], row["created"] or "<unknown>"))
        widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
        for line in table:
            print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return 0

    run_in_cluster(context.obj, verb)


@users_app.command("remove")
def user_remove(context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """End NAME's credential at once and take the role that `user add` gave."""
    from kube32.cli import users

    async def verb(cluster: Cluster) -> int:
        await users.remove(cluster, name)
        print(f"user {name} removed: its credential no longer works")
        return 0

    run_in_cluster(context.obj, verb)


def main() -> None:
    """Entry point of the script kube32-cli."""
    app()
