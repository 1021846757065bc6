"""kube32-sim --worker: joins a cluster, runs a kubelet until a signal."""

import asyncio
import random
import sys

from kube32.client.api import ApiClient
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import ClusterAccess, KubeconfigError, load_kubeconfig
from kube32.contract import NAMES, limits_for
from kube32.sim import credentials
from kube32.sim.listeners import make_listeners, start_listeners
from kube32.sim.node import make_kubelet, node_options, start_kubelet
from kube32.sim.options import SimOptions, StartError
from kube32.sim.process import until_signal, write_ready_file

_JOIN_S = 30.0
_RETRY_FIRST_S = 0.25
_RETRY_MOST_S = 5.0


async def run_worker(options: SimOptions) -> None:
    """The worker's whole life."""
    limits = limits_for(options.profile)
    try:
        access = load_kubeconfig(options.kubeconfig)
    except KubeconfigError as error:
        raise StartError(f"--kubeconfig: {error}") from None
    own = await _join(access, options)

    def transport() -> HttpTransport:
        return HttpTransport(
            access.server, ssl_context=access.ssl_context, token=own.token, user_agent=NAMES.agent_kubelet
        )

    node_access = transport()
    node = node_options(options, limits)
    kubelet = make_kubelet(options, limits, ApiClient(node_access), transport, own, node)
    listeners = make_listeners(options, kubelet, node_access, limits)
    try:
        await start_listeners(listeners, options, node)
        await start_kubelet(kubelet, options)
        await kubelet.ready.wait()
        write_ready_file(
            options.ready_file, {"node": options.name, "url": access.server, "kubeletPort": kubelet.port}
        )
        print(f"kube32-sim: node {options.name} serves pods of {access.server}", flush=True)
        await until_signal()
    finally:
        await listeners.stop()
        await kubelet.stop()
        await node_access.close()


async def _join(access: ClusterAccess, options: SimOptions) -> credentials.WorkerCredentials:
    """What this node is known by. One that has joined before waits for a control plane that is away: after a
    power failure both come back, in any order.
    """
    path = options.data_dir / "node" / "credentials.json"
    joined_before, pause_s = path.exists(), _RETRY_FIRST_S
    while True:
        try:
            async with asyncio.timeout(_JOIN_S):
                return await credentials.join(access, options.name, options.node_ip, path)
        except (OSError, TimeoutError) as error:
            cause = f"{access.server} does not answer ({str(error) or type(error).__name__})"
            if not joined_before:
                raise StartError(f"{cause}; is the control plane running?") from None
            if pause_s == _RETRY_FIRST_S:
                print(f"kube32-sim: {cause}; node {options.name} waits for it", file=sys.stderr, flush=True)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1))
        pause_s = min(pause_s * 2, _RETRY_MOST_S)
