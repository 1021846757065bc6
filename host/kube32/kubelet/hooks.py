"""Lifecycle hooks of a container: postStart and preStop, by httpGet to its own k32_handle or by sleep."""

import asyncio

from kube32.contract import text
from kube32.kubelet.calls import NotDelivered
from kube32.kubelet.pod_thread import PodThread
from kube32.kubelet.probes import http_call, port_of
from kube32.kubelet.values import Obj


class HookFailed(Exception):
    """A hook's request was refused or answered with an error; str() says which."""


async def run_hook(container: Obj, name: str, thread: PodThread, host: str) -> None:
    """Runs a hook of the container, if it has it. HookFailed; cancelled by whoever has waited for long enough."""
    hook = (container.get("lifecycle") or {}).get(name) or {}
    if (pause := hook.get("sleep")) is not None:
        await asyncio.sleep(float(pause.get("seconds") or 0))
    elif (wanted := hook.get("httpGet")) is not None:
        port = port_of(container, wanted.get("port"))
        if port is None:
            raise HookFailed(text("probes", "port", port=wanted.get("port")))
        try:
            answered = await thread.submit(http_call(wanted, host, port))
        except NotDelivered as refused:
            raise HookFailed(refused.cause or text("probes", refused.kind)) from None
        if not 200 <= answered.response_status < 400:
            raise HookFailed(text("probes", "status", status=answered.response_status))
