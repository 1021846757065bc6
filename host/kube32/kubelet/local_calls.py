"""A request to a pod of this node from the node's own listeners, which need no TLS to their own kubelet."""

from kube32.contract import Limits, text
from kube32.kubelet.calls import STATUS_BAD_GATEWAY, STATUS_UNAVAILABLE, NotDelivered
from kube32.kubelet.proxy_endpoint import acceptable, hold
from kube32.kubelet.registry import Registry
from kube32.wasm import HttpCall


class LocalCalls:
    """Has pods answer, as the kubelet's /proxy endpoint does."""

    def __init__(self, registry: Registry, limits: Limits) -> None:
        self._registry = registry
        self._limits = limits

    async def call(
        self, namespace: str, pod: str, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body. NotDelivered: with status 503 the pod saw nothing of the request."""
        worker = self._registry.worker(namespace, pod)
        if worker is None:
            raise NotDelivered("not_running")
        if len(headers) > self._limits.pod_request_headers:
            raise NotDelivered("headers_too_many", STATUS_BAD_GATEWAY)
        held = 0
        try:
            worker.check()
            held = hold(worker, held, len(body))
            path, _, query = target.partition("?")
            done = await worker.submit(
                HttpCall(method=method, path=path, query=query, headers=headers, body=body)
            )
            held = hold(worker, held, len(body) + len(done.response_body))
        except NotDelivered as refused:
            if refused.kind == "not_running" and worker.restoring:
                raise NotDelivered("frozen", STATUS_UNAVAILABLE) from None
            raise
        finally:
            hold(worker, held, 0)
        if not 200 <= done.response_status <= 599:
            words = text("answers", "headers_refused", pod=pod, status=done.response_status)
            return STATUS_BAD_GATEWAY, [("Content-Type", "text/plain; charset=utf-8")], words.encode()
        kept = [(n, v) for n, v in done.response_headers if acceptable(n, v)]
        return done.response_status, kept, bytes(done.response_body)
