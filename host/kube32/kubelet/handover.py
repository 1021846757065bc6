"""After a move, events that came too late for the snapshot go to the replacement ("decisions", K32S,
Events).
"""

import asyncio

from kube32.client.api import ApiClient, ApiError
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.publisher import post_event
from kube32.kubelet.values import uid_of

_TRIES = 20
_RETRY_S = 0.25
NOT_FOUND = 404


async def hand_over(client: ApiClient, worker: PodWorker) -> None:
    """Posts the stopped worker's late events to the pod of the same name, in order, each at most once."""
    events = worker.late_events()
    namespace, name = worker.key
    if not events or not await _replaced(client, worker):
        return
    for event in events:
        # 0: the replacement's kubelet does not know the pod yet, so nobody has the event.
        for _ in range(_TRIES):
            if await post_event(client, namespace, event.topic, event.payload, pod=name):
                break
            await asyncio.sleep(_RETRY_S)


async def _replaced(client: ApiClient, worker: PodWorker) -> bool:
    namespace, name = worker.key
    try:
        pod = await client.get("Pod", name, namespace)
    except ApiError as error:
        if error.code == NOT_FOUND:
            return False
        raise
    return uid_of(pod) != worker.uid
