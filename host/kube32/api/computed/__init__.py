"""Kinds that are computed from others: Endpoints, EndpointSlices and ReplicaSets, in no store and watchable."""

from kube32.api.computed.store import ComputedStore
from kube32.api.computed.views import Views

__all__ = ["ComputedStore", "Views"]
