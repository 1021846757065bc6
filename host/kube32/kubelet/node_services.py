"""What all pods of one node share."""

from collections.abc import Callable
from dataclasses import dataclass

from kube32.client.api import ApiClient
from kube32.client.events import EventRecorder
from kube32.contract import Limits
from kube32.kubelet.downward import NodeFacts
from kube32.kubelet.images import Images
from kube32.kubelet.volumes import Volumes
from kube32.wasm import ChannelHub


@dataclass(slots=True)
class NodeServices:
    """What pods need of their node.

    `lease_fresh` tells, on any thread, whether the node cannot have been declared lost; `receivers` how many
    pods of a namespace take a topic; `topics_changed` is told that this may differ now.
    """

    node_name: str
    facts: NodeFacts
    client: ApiClient
    limits: Limits
    images: Images
    volumes: Volumes
    channels: ChannelHub
    events: EventRecorder
    unix_ms: Callable[[], int]
    lease_fresh: Callable[[], bool]
    receivers: Callable[[str, str], int]
    topics_changed: Callable[[], None]
