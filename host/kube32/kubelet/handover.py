"""After a move, events that came too late for the snapshot go to the replacement ("decisions", K32S,
Events).
"""

import asyncio

from kube32.client.api import ApiClient, ApiError
from kube32.kubelet.pod_worker import PodWorker
from kube32.kubelet.publisher import post_event
from kube32.kubelet.values import metadata

_TRIES = 20
_RETRY_S = 0.25
NOT_FOUND = 404
TIMEOUT = 504


async def hand_over(client: ApiClient, worker: PodWorker) -> None:
    """Posts the stopped worker's late events to the pod of the same name, in order, each at most once.

    A node may not read a pod that is bound elsewhere. A replaced pod vanished from the node's watch without
    having been marked for deletion; when it was removed by force there is nobody of its name (404).
    """
    namespace, name = worker.key
    if metadata(worker.pod).get("deletionTimestamp"):
        return
    for event in worker.late_events():
        # 0: the replacement's kubelet does not know the pod yet, so nobody has the event.
        for _ in range(_TRIES):
            try:
                if await post_event(client, namespace, event.topic, event.payload, pod=name):
                    break
            except ApiError as error:
                if error.code == NOT_FOUND:
                    return
                if error.code == TIMEOUT:
                    # Perhaps delivered: a second time would be one too many.
                    break
                raise
            await asyncio.sleep(_RETRY_S)
