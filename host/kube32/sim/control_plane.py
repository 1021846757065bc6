"""kube32-sim as a control plane: store, API server, controllers and a node in one process."""

import asyncio
import errno
import ipaddress
from contextlib import AsyncExitStack, suppress

from kube32.api.adapter import HttpsListener
from kube32.api.checkpoint_data import make_pool
from kube32.api.kubelets import KubeletConnector
from kube32.api.modules import ModuleStore
from kube32.api.pki import PkiError
from kube32.api.security import Security
from kube32.api.server import ApiServer
from kube32.client.api import ApiClient
from kube32.client.kubeconfig import render_kubeconfig
from kube32.contract import NAMES, Limits, limits_for
from kube32.controllers.manager import Controllers
from kube32.sim.console import Console
from kube32.sim.durable import open_store, store_facts
from kube32.sim.inprocess import InProcessTransport
from kube32.sim.listeners import make_listeners, start_listeners
from kube32.sim.node import make_kubelet, node_options, start_kubelet
from kube32.sim.options import SimOptions, StartError
from kube32.sim.process import until_signal, write_private, write_ready_file
from kube32.store.watch_hub import WatchHub


async def run_control_plane(options: SimOptions) -> None:
    """The control plane's whole life. Everything that was started is stopped in the reverse order."""
    limits = limits_for(options.profile)
    async with AsyncExitStack() as stack:
        server, security, port = await _serve(options, limits, stack)
        if options.console is not None:
            console = Console(options.console, {"STORE": lambda: store_facts(server.store)}, limits)
            await console.start()
            stack.push_async_callback(console.stop)
        loop = asyncio.get_running_loop()
        ca_pem = security.ca_pem if limits.profile == "sim" else ""
        controllers = Controllers(
            ApiClient(InProcessTransport(server, security.controller_token, loop, NAMES.agent_controllers)),
            limits,
            ca_pem,
        )
        await controllers.start()
        stack.push_async_callback(controllers.stop)
        node = security.local_node_credentials(options.name, [options.node_ip])

        def transport() -> InProcessTransport:
            return InProcessTransport(server, node.token, loop, NAMES.agent_kubelet)

        offer = node_options(options, limits)
        kubelet = make_kubelet(options, limits, ApiClient(transport()), transport, node, offer)
        listeners = make_listeners(options, kubelet, transport(), limits)
        stack.push_async_callback(kubelet.stop)
        stack.push_async_callback(listeners.stop)
        await start_listeners(listeners, options, offer)
        await start_kubelet(kubelet, options)
        url = _url(options, port)
        kubeconfig = _write_kubeconfigs(options, security, url)
        print(f"kube32-sim: serving {url}; export KUBECONFIG={kubeconfig}", flush=True)
        await kubelet.ready.wait()
        write_ready_file(
            options.ready_file,
            {
                "node": options.name,
                "url": url,
                "kubeconfig": str(kubeconfig),
                "workerKubeconfig": str(options.data_dir / "worker.kubeconfig"),
                "kubeletPort": kubelet.port,
            },
        )
        await until_signal()
        print("kube32-sim: stopping", flush=True)


async def _serve(
    options: SimOptions, limits: Limits, stack: AsyncExitStack
) -> tuple[ApiServer, Security, int]:
    """The API server, listening."""
    advertise = [*options.advertise, _reach(options.host)]
    try:
        security = await asyncio.to_thread(Security.create, options.data_dir, limits, advertise=advertise)
    except (PkiError, OSError) as error:
        raise StartError(str(error)) from None
    store = await open_store(options, limits)
    stack.push_async_callback(store.close)
    kubelets = KubeletConnector(store, limits, security.kubelet_client_ssl_context())
    stack.push_async_callback(kubelets.close)
    server = ApiServer(
        store=store,
        hub=WatchHub(store.settled, limits),
        limits=limits,
        security=security,
        data_dir=options.data_dir,
        kubelets=kubelets,
        pool=make_pool(store, limits),
        modules=ModuleStore(options.data_dir / "modules", store, limits),
    )
    await server.start()
    stack.push_async_callback(server.close)
    listener = HttpsListener(server, options.host, options.port, security.server_ssl_context(), limits)
    try:
        await listener.start()
    except OSError as error:
        where = f"{options.host}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            raise StartError(f"{where} is in use; choose another with --listen HOST:PORT") from None
        raise StartError(f"--listen {where}: {error.strerror or error}") from None
    address = _address(advertise)
    if address:
        server.views.set_api_server(address, listener.bound_port)
    stack.push_async_callback(listener.stop)
    # First of these three: the listener waits for what is under way, and watches are without end.
    stack.callback(server.hub.close)
    return server, security, listener.bound_port


def _reach(host: str) -> str:
    """The address under which a listener on `host` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _address(hosts: list[str]) -> str:
    """The first that is an IP address; endpoints have no names."""
    for host in hosts:
        with suppress(ValueError):
            return str(ipaddress.ip_address(host))
    return ""


def _url(options: SimOptions, port: int) -> str:
    host = options.advertise[0] if options.advertise else _reach(options.host)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _write_kubeconfigs(options: SimOptions, security: Security, url: str) -> str:
    """DIR/kubeconfig (admin) and DIR/worker.kubeconfig (join token only), mode 0600; the first one's path."""
    for name, user, token in (
        ("kubeconfig", "admin", security.admin_token),
        ("worker.kubeconfig", "worker", security.join_token),
    ):
        content = render_kubeconfig(
            url, security.ca_pem, user=user, token=token, context=f"kube32-{options.name}"
        )
        write_private(options.data_dir / name, content)
    return str(options.data_dir / "kubeconfig")
