"""POST .../topics/<topic>: an event for every subscribed pod of the namespace.

Decisions, "Freezing and moving", `k32_publish`. Each node with subscribers gets it once, at most once, in the
order of its publisher. A node that cannot be reached costs its own pods the event; others wait for it once,
not with every event.
"""

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import aiohttp
import orjson

from kube32.api.http import BodyCut, Request, Response
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, not_found, timeout, too_large
from kube32.contract import K32S, NAMES, Limits, resource_of, text
from kube32.store import Store

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_ANSWER_BYTES = 4096
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """Answers {"delivered": n}, the pods that got the event.

    With ?pod=NAME it is for that pod alone, and 504 tells that the pod may or may not have it: who sends
    again on 0 delivers at most once.
    """
    topic = check_topic(info.name, server.limits)
    if server.store.get(resource_of("Namespace").object_key("", info.namespace)) is None:
        raise not_found(resource_of("Namespace"), info.namespace)
    only = request.q("pod")
    payload = await _payload(request, server.limits)
    nodes = (
        [_node_of_pod(server.store, info.namespace, only)]
        if only
        else subscribed_nodes(server.store, info.namespace, topic)
    )
    user = request.user
    assert user is not None
    path = f"/events/{quote(info.namespace, safe='')}/{quote(topic, safe='')}"
    query = urlencode({"pod": only}) if only else ""
    counts = await asyncio.gather(
        *(deliver(server, user.name, node, path, query, payload) for node in nodes if node)
    )
    if only and None in counts:
        raise timeout(text("answers", "topic_unknown", pod=only))
    return Response(200, orjson.dumps({"delivered": sum(count or 0 for count in counts)}))


def check_topic(topic: str, limits: Limits) -> str:
    """The topic; ApiFailure 400 when it cannot be one."""
    if not 1 <= len(topic.encode()) <= limits.pod_topic_bytes or topic in (".", ".."):
        raise bad_request(text("answers", "topic_invalid", limit=limits.pod_topic_bytes))
    return topic


async def _payload(request: Request, limits: Limits) -> bytes:
    limit = limits.pod_payload_bytes
    try:
        return await request.body(limit)
    except ApiFailure as failure:
        if failure.code != 413:
            raise
        raise too_large(limit, text("answers", "payload_too_large", limit=limit)) from None


def subscribed_nodes(store: Store, namespace: str, topic: str) -> list[str]:
    """The nodes that are Ready and have pods of the namespace which subscribe to the topic, each once."""
    pods, _ = store.scan(resource_of("Pod").object_key(namespace, ""))
    nodes: dict[str, None] = {}
    for entry in pods:
        if topic in topics_of(entry.obj) and (node := _live_node(entry.obj)):
            nodes[node] = None
    return [node for node in nodes if is_ready(store, node)]


def topics_of(pod: dict[str, Any]) -> list[str]:
    """The topics that a pod subscribes to."""
    listed = (pod["metadata"].get("annotations") or {}).get(NAMES.ann_topics, "")
    return [topic.strip() for topic in listed.split(",")]


def is_ready(store: Store, node: str) -> bool:
    """Whether a node is there and not known to be out of reach."""
    entry = store.get(resource_of("Node").object_key("", node))
    if entry is None:
        return False
    conditions = (entry.obj.get("status") or {}).get("conditions") or []
    ready = [c.get("status") for c in conditions if c.get("type") == "Ready"]
    return not ready or ready[0] == "True"


def _live_node(pod: dict[str, Any]) -> str:
    """The node of a pod that has not ended, or "". One that is being restored may hold events."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return "" if ended else str((pod.get("spec") or {}).get("nodeName") or "")


def _node_of_pod(store: Store, namespace: str, name: str) -> str:
    entry = store.get(resource_of("Pod").object_key(namespace, name))
    if entry is None:
        raise not_found(resource_of("Pod"), name)
    return _live_node(entry.obj)


async def deliver(
    server: "ApiServer", publisher: str, node: str, path: str, query: str, payload: bytes
) -> int | None:
    """Gives one event to one kubelet, behind this publisher's earlier ones.

    The number of pods that got it, None when that cannot be known: the kubelet was asked and did not answer.

    The time limit covers the wait too: behind a dead node events are lost together, not one after the other,
    and for a while after that it is not waited for.
    """
    if server.kubelets.is_resting(node):
        return 0
    try:
        async with (
            asyncio.timeout(server.limits.topic_delivery_ms / 1000),
            server.kubelets.lane(publisher, node),
        ):
            headers = {"Content-Type": K32S.content_type}
            stream = await server.kubelets.request(
                node, "POST", path, query=query, headers=headers, body=payload
            )
            answer = orjson.loads(await stream.read(_ANSWER_BYTES))
            return int(answer["delivered"]) if stream.status == 200 else 0
    except TimeoutError:
        server.kubelets.rest(node)
        return None
    except ApiFailure as failure:
        never_sent = failure.__cause__ is None or isinstance(failure.__cause__, _NOT_CONNECTED)
        return 0 if never_sent else None
    except (BodyCut, orjson.JSONDecodeError, TypeError, KeyError, ValueError):
        return None
