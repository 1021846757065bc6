"""A kubelet from the options of the command line, in a control plane or in a worker."""

from collections.abc import Callable

from kube32.api.admission import names
from kube32.client.api import ApiClient
from kube32.client.transport import Transport
from kube32.contract import NAMES, Limits
from kube32.kubelet.kubelet import Credentials, Kubelet
from kube32.kubelet.node_status import NodeOptions
from kube32.sim.options import SimOptions, StartError, pairs, quantity
from kube32.wasm.engine import Engine


def node_options(options: SimOptions, limits: Limits) -> NodeOptions:
    """The node's resources; StartError names the flag that is wrong."""
    flags = options.node
    for name in flags.capabilities:
        if name not in NAMES.grant_capabilities:
            raise StartError(f'--capability "{name}": give one of {", ".join(NAMES.grant_capabilities)}')
    resources = pairs("--resource", flags.resources)
    for name, amount in resources.items():
        if not name.startswith((NAMES.resource_hardware_prefix, NAMES.resource_esp32_prefix)):
            prefixes = f"{NAMES.resource_hardware_prefix} or {NAMES.resource_esp32_prefix}"
            raise StartError(f'--resource "{name}": begins with {prefixes}')
        quantity("--resource", amount)
    labels = pairs("--label", flags.labels)
    for key, value in labels.items():
        if broken := [*names.qualified_name(key), *names.label_value(value)]:
            raise StartError(f'--label "{key}={value}": {broken[0]}')
    for name in resources:
        if broken := names.qualified_name(name):
            raise StartError(f'--resource "{name}": {broken[0]}')
    if flags.i2c:
        resources[NAMES.resource_i2c] = str(flags.i2c)
    if flags.storage is not None and not flags.storage.is_dir():
        raise StartError(f"--storage {flags.storage}: is no directory")
    return NodeOptions(
        memory_bytes=quantity("--memory", flags.memory) if flags.memory else limits.node_memory_bytes,
        cpu_millis=quantity("--cpu", flags.cpu, 1000) if flags.cpu else limits.node_cpu_millis,
        pods=flags.pods or limits.node_pods,
        resources=resources,
        capabilities=tuple(flags.capabilities),
        storage=flags.storage,
        labels=labels,
        node_ip=options.node_ip,
    )


def make_kubelet(
    options: SimOptions,
    limits: Limits,
    client: ApiClient,
    lease_transport: Callable[[], Transport],
    credentials: Credentials,
    node: NodeOptions,
) -> Kubelet:
    """The kubelet of this process, not yet started. Its port listens on the node's address."""
    engine = Engine(limits, cache_dir=options.data_dir / "compiled")
    return Kubelet(
        name=options.name,
        client=client,
        lease_transport=lease_transport,
        engine=engine,
        limits=limits,
        data_dir=options.data_dir / "node",
        credentials=credentials,
        host=options.node_ip,
        port=options.kubelet_port,
        options=node,
    )


async def start_kubelet(kubelet: Kubelet, options: SimOptions) -> None:
    """Starts it; StartError when its port cannot be had."""
    try:
        await kubelet.start()
    except OSError as error:
        where = f"{options.node_ip}:{options.kubelet_port}"
        flags = "--node-ip and --kubelet-port"
        raise StartError(
            f"the kubelet cannot listen on {where}: {error.strerror or error}; see {flags}"
        ) from None
