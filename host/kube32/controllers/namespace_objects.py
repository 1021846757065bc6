"""What every namespace has: the ServiceAccount "default", and the ConfigMap with the cluster's CA certificate."""

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer
from kube32.contract import NAMES, text
from kube32.controllers.objects import Obj, is_deleting
from kube32.controllers.queue import WorkQueue

# The namespace is being deleted or gone; somebody else made the object.
_NO_MATTER = (403, 404, 409)


class NamespaceObject:
    """Keeps one object of a fixed name in each namespace: made anew when it is deleted, put right when changed.

    `objects` watches that name in all namespaces. `body` is the object without name and namespace.
    """

    def __init__(
        self, client: ApiClient, namespaces: Informer, objects: Informer, kind: str, name: str, body: Obj
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._objects = objects
        self._kind = kind
        self._name = name
        self._body = body
        self._queue: WorkQueue[str] = WorkQueue()
        namespaces.subscribe(self._on_namespace)
        objects.subscribe(self._on_object)

    def _on_namespace(self, kind: str, namespace: Obj, old: Obj | None) -> None:
        if kind != "DELETED" and not is_deleting(namespace):
            self._queue.add(namespace["metadata"]["name"])

    def _on_object(self, kind: str, obj: Obj, old: Obj | None) -> None:
        self._queue.add(obj["metadata"]["namespace"])

    async def run(self) -> None:
        """Keeps them until cancelled."""
        await self._queue.run(self._sync)

    async def _sync(self, name: str) -> None:
        namespace = self._namespaces.get("", name)
        if namespace is None or is_deleting(namespace):
            return
        found = self._objects.get(name, self._name)
        try:
            if found is None:
                meta = {"name": self._name, "namespace": name, **self._body.get("metadata", {})}
                await self._client.create(self._kind, {**self._body, "metadata": meta})
            elif any(found.get(k) != v for k, v in self._body.items() if k == "data"):
                patch = [{"op": "add", "path": "/data", "value": self._body["data"]}]
                await self._client.patch(self._kind, self._name, patch, name, type="json")
        except ApiError as error:
            if error.code not in _NO_MATTER:
                raise


def service_accounts(client: ApiClient, namespaces: Informer, accounts: Informer) -> NamespaceObject:
    """The default ServiceAccount of each namespace."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount"}
    return NamespaceObject(client, namespaces, accounts, "ServiceAccount", NAMES.service_account, body)


def root_certificates(
    client: ApiClient, namespaces: Informer, config_maps: Informer, ca_pem: str
) -> NamespaceObject:
    """The cluster's CA certificate in each namespace."""
    described = {"kubernetes.io/description": text("descriptions", "configmap_ca")}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"annotations": described},
        "data": {"ca.crt": ca_pem},
    }
    return NamespaceObject(client, namespaces, config_maps, "ConfigMap", NAMES.configmap_ca, body)
