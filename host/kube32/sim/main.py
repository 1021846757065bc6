"""The command kube32-sim."""

from pathlib import Path
from typing import Annotated

import typer

from kube32 import __version__
from kube32.contract import PROFILES
from kube32.sim.options import (
    NodeFlags,
    SimOptions,
    StartError,
    check_host,
    check_ip,
    check_name,
    default_data_dir,
    default_name,
    parse_listen,
    prepare_data_dir,
)
from kube32.sim.process import DataDirLock, run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _show_version(value: bool) -> None:
    if value:
        print(f"kube32-sim {__version__}")
        raise typer.Exit


@app.command(help="A Kube32 control plane with a node on this machine; with --worker, a node that joins one.")
def sim(
    name: Annotated[str, typer.Option(help="The node's name (default: this host's).")] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the API server listens.")
    ] = "127.0.0.1:6443",
    data_dir: Annotated[
        Path | None, typer.Option(help="Keys, modules, kubeconfigs (default: ~/.kube32/NAME).")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written, as JSON, when the node is Ready.")] = None,
    worker: Annotated[
        bool, typer.Option("--worker", help="Join the cluster of --kubeconfig as a node.")
    ] = False,
    kubeconfig: Annotated[Path | None, typer.Option(help="With --worker: DIR/worker.kubeconfig.")] = None,
    advertise: Annotated[
        list[str] | None, typer.Option(help="Further names or addresses of the API server.")
    ] = None,
    node_ip: Annotated[
        str, typer.Option(help="Address under which the API server reaches this node.")
    ] = "127.0.0.1",
    kubelet_port: Annotated[
        int, typer.Option(help="The kubelet's port; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    enable_flash: Annotated[
        bool, typer.Option("--enable-flash", help="Keep objects in DIR/kube32/store/journal.img.")
    ] = False,
    console: Annotated[
        Path | None, typer.Option(help="Answer K32_CMD lines here: a Unix socket to make, or a pty.")
    ] = None,
    ingress: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where this node listens for Ingress requests.")
    ] = "",
    profile: Annotated[str, typer.Option(help=f"Limits: {', '.join(PROFILES)}.")] = "sim",
    memory: Annotated[str, typer.Option(help="The node's memory for pods, such as 512Mi.")] = "",
    cpu: Annotated[str, typer.Option(help="The node's CPU, such as 2 or 500m.")] = "",
    pods: Annotated[int, typer.Option(help="How many pods the node takes.", min=0)] = 0,
    resource: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="A resource, such as hardware.kube32.io/led=1.")
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="DISPLAY, KEYBOARD, SPEAKER, SD or CHIP_TEMP.")
    ] = None,
    i2c: Annotated[int, typer.Option(help="I2C devices (kube32.io/i2c-device).", min=0)] = 0,
    storage: Annotated[
        Path | None, typer.Option(help="A directory for volume claims and kube32.io/sd.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the Node.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Checks the options, then runs until a signal."""

    async def main() -> None:
        node_name = check_name(name or default_name())
        if profile not in PROFILES:
            raise StartError(f'--profile "{profile}": the profiles are {", ".join(PROFILES)}')
        if worker and kubeconfig is None:
            raise StartError("--worker needs --kubeconfig FILE, the worker.kubeconfig of the control plane")
        if worker and (enable_flash or console is not None):
            flag = "--enable-flash" if enable_flash else "--console"
            raise StartError(f"{flag} is for a control plane: a worker keeps no objects")
        if kubeconfig is not None and not worker:
            raise StartError("--kubeconfig goes with --worker")
        host, port = parse_listen(listen)
        options = SimOptions(
            name=node_name,
            profile=profile,
            data_dir=(data_dir or default_data_dir(node_name)).absolute(),
            ready_file=ready_file,
            node=NodeFlags(
                memory,
                cpu,
                pods,
                resource or [],
                capability or [],
                i2c,
                storage and storage.absolute(),
                label or [],
            ),
            node_ip=check_ip("--node-ip", node_ip),
            kubelet_port=kubelet_port,
            host=host,
            port=port,
            advertise=[check_host("--advertise", a) for a in advertise or []],
            kubeconfig=kubeconfig,
            enable_flash=enable_flash,
            console=console and console.absolute(),
            ingress=parse_listen(ingress, "--ingress", "127.0.0.1:8080") if ingress else None,
        )
        prepare_data_dir(options.data_dir)
        with DataDirLock(options.data_dir):
            if worker:
                from kube32.sim.worker import run_worker

                await run_worker(options)
            else:
                from kube32.sim.control_plane import run_control_plane

                await run_control_plane(options)

    run(main)


def main() -> None:
    """Entry point of the script kube32-sim."""
    app()
