"""The listeners of a simulated node: NodePorts on its address, the Ingress where --ingress says."""

from kube32.client.transport import Transport
from kube32.contract import NAMES, Limits, text
from kube32.kubelet.calls import STATUS_UNAVAILABLE
from kube32.kubelet.calls import NotDelivered as Refused
from kube32.kubelet.kubelet import Kubelet, NodeOptions
from kube32.kubelet.local_calls import LocalCalls
from kube32.proxy.listeners import Listeners
from kube32.proxy.pods import NotDelivered, PodAnswer, PodRequest, RemotePods
from kube32.sim.options import SimOptions, StartError

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]


class LocalPods:
    """The pods of this process's kubelet, as the listeners ask them."""

    def __init__(self, calls: LocalCalls, limits: Limits) -> None:
        self._calls = calls
        self._limits = limits

    async def call(self, namespace: str, pod: str, request: PodRequest) -> PodAnswer:
        """As proxy.pods.Pods.call."""
        try:
            status, headers, body = await self._calls.call(
                namespace, pod, request.method, request.target, list(request.headers.items()), request.body
            )
        except Refused as refused:
            limits = self._limits
            limit = (
                limits.pod_request_bytes_held if refused.kind == "busy_bytes" else limits.pod_request_queue
            )
            if refused.kind == "headers_too_many":
                limit = limits.pod_request_headers
            words = text(
                "answers",
                refused.kind,
                pod=pod,
                namespace=namespace,
                limit=limit,
                found=len(request.headers),
                cause=refused.cause,
            )
            if refused.status == STATUS_UNAVAILABLE:
                raise NotDelivered(words, soon=refused.kind == "frozen") from None
            return PodAnswer(refused.status, list(_PLAIN), f"{words}\n".encode())
        return PodAnswer(status, headers, body)


def make_listeners(options: SimOptions, kubelet: Kubelet, transport: Transport, limits: Limits) -> Listeners:
    """The node's listeners, fed by its kubelet; not yet started."""
    listeners = Listeners(
        options.name,
        local=LocalPods(LocalCalls(kubelet.registry, limits), limits),
        remote=RemotePods(transport, limits.kubelet_answer_ms / 1000),
        limits=limits,
        file=options.data_dir / "node" / "routes.json",
        host=options.node_ip,
        ingress=options.ingress,
    )
    kubelet.take_routes = listeners.replace
    return listeners


async def start_listeners(listeners: Listeners, options: SimOptions, node: NodeOptions) -> None:
    """Starts them and tells the address of the Ingress in the Node; StartError when it cannot be had."""
    (options.data_dir / "node").mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        await listeners.start()
    except OSError as error:
        host, port = options.ingress or ("", 0)
        raise StartError(f"--ingress {host}:{port}: {error.strerror or error}") from None
    if listeners.ingress is not None:
        host = {"0.0.0.0": options.node_ip, "::": options.node_ip}.get(
            listeners.ingress.host, listeners.ingress.host
        )
        shown = f"[{host}]" if ":" in host else host
        node.annotations[NAMES.ann_ingress] = f"{shown}:{listeners.ingress.port}"
