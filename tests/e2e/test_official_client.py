"""The official Python client, and the requests of newer client-go informers, against a running cluster."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

from kube32.contract import LIMITS, RESOURCES, Resource
from tests.conftest import SimCluster
from tests.e2e.raw import Api, assert_status

SPACE = "official"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases"
CONFIG_MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
INITIAL = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
FORMS = {
    "json": "application/json",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
}
END = "k8s.io/initial-events-end"


class CuttingProxy:
    """A TCP proxy in front of the API server whose connections can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        """Ends every connection in the middle of whatever it carries."""
        cut, self._open = self._open, []
        for end in cut:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        """Ends the proxy."""
        self._listener.close()
        self.cut()


@pytest.fixture(scope="module")
def core(cluster: SimCluster) -> Iterator[client.CoreV1Api]:
    """The core API of the official client, and a namespace for it."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as api_client:
        core = client.CoreV1Api(api_client)
        core.create_namespace({"metadata": {"name": SPACE}})
        yield core
        core.delete_namespace(SPACE)


@pytest.fixture(scope="module")
def api(cluster: SimCluster) -> Api:
    """The server without a client library."""
    return Api.of(cluster.kubeconfig)


def config_map(name: str, value: str = "value") -> client.V1ConfigMap:
    """A ConfigMap of one key."""
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"key": value})


def code_of(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str]:
    """HTTP status and the reason of the Status."""
    return error.value.status, json.loads(error.value.body)["reason"]


def test_create_list_patch_replace_and_delete(core: client.CoreV1Api) -> None:
    made = core.create_namespaced_config_map(SPACE, config_map("made"))
    assert made.metadata.uid and made.metadata.creation_timestamp
    with pytest.raises(ApiException) as again:
        core.create_namespaced_config_map(SPACE, config_map("made"))
    assert code_of(again) == (409, "AlreadyExists")
    patched = core.patch_namespaced_config_map("made", SPACE, {"data": {"more": "1"}})
    assert patched.data == {"key": "value", "more": "1"}
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("made", SPACE, made)
    assert code_of(stale) == (409, "Conflict")
    patched.data = {"only": "2"}
    assert core.replace_namespaced_config_map("made", SPACE, patched).data == {"only": "2"}
    listed = core.list_namespaced_config_map(SPACE, field_selector="metadata.name=made")
    assert [item.metadata.name for item in listed.items] == ["made"]
    core.delete_namespaced_config_map("made", SPACE)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("made", SPACE)
    assert code_of(gone) == (404, "NotFound")


def test_long_lists_come_in_pages(core: client.CoreV1Api) -> None:
    for number in range(7):
        core.create_namespaced_secret(SPACE, {"metadata": {"name": f"page-{number}"}})
    names, token = [], None
    while True:
        page = core.list_namespaced_secret(SPACE, limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
        assert len(page.items) == 3
    assert names == [f"page-{number}" for number in range(7)]
    assert page.metadata.remaining_item_count is None


def test_a_pod_runs_logs_and_goes(cluster: SimCluster, core: client.CoreV1Api) -> None:
    cluster.cli("push", "examples/entry/entry.wasm", "--name", "beats")
    container = client.V1Container(
        name="main", image="wasm://beats", env=[client.V1EnvVar(name="BEATS", value="2")]
    )
    spec = client.V1PodSpec(containers=[container], restart_policy="Never", node_name="node-b")
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="beats"), spec=spec)
    version = core.create_namespaced_pod(SPACE, pod).metadata.resource_version
    phases = []
    watcher = watch.Watch()
    selector = "metadata.name=beats"
    for event in watcher.stream(
        core.list_namespaced_pod,
        SPACE,
        field_selector=selector,
        resource_version=version,
        timeout_seconds=20,
    ):
        phases.append(event["object"].status.phase)
        if phases[-1] == "Succeeded":
            watcher.stop()
    assert "Running" in phases and phases[-1] == "Succeeded"
    assert core.read_namespaced_pod_log("beats", SPACE) == "beat 1\nbeat 2\n"
    followed = list(watch.Watch().stream(core.read_namespaced_pod_log, "beats", SPACE))
    assert followed == ["beat 1", "beat 2"]
    ended = core.read_namespaced_pod("beats", SPACE)
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated.exit_code == 0 and terminated.reason == "Completed"
    core.delete_namespaced_pod("beats", SPACE)
    types = []
    for event in watch.Watch().stream(
        core.list_namespaced_pod,
        SPACE,
        field_selector=selector,
        resource_version=ended.metadata.resource_version,
        timeout_seconds=20,
    ):
        types.append(event["type"])
        if types[-1] == "DELETED":
            break
    assert types[-1] == "DELETED"
    assert core.list_namespaced_pod(SPACE, field_selector=selector).items == []


def test_custom_kinds_by_discovery_alone(cluster: SimCluster, core: client.CoreV1Api) -> None:
    found = dynamic.DynamicClient(core.api_client)
    modules = found.resources.get(api_version="kube32.io/v1", kind="Module")
    assert not modules.namespaced and modules.name == "modules"
    checkpoints = found.resources.get(api_version="kube32.io/v1", kind="Checkpoint")
    assert checkpoints.namespaced and checkpoints.short_names == ["ckpt"]
    body = {
        "apiVersion": "kube32.io/v1",
        "kind": "Checkpoint",
        "metadata": {"generateName": "ghost-"},
        "spec": {"podName": "ghost"},
    }
    made = checkpoints.create(body=body, namespace=SPACE)
    assert made.spec.action == "Save" and made.metadata.name.startswith("ghost-")
    custom = client.CustomObjectsApi(core.api_client)
    arguments = ("kube32.io", "v1", SPACE, "checkpoints", made.metadata.name)
    failed = cluster.until(
        "a failed checkpoint",
        lambda: (
            status
            if (status := custom.get_namespaced_custom_object(*arguments).get("status", {})).get("phase")
            == "Failed"
            else None
        ),
    )
    assert failed["message"] == "pod ghost not found"
    checkpoints.delete(name=made.metadata.name, namespace=SPACE)


def test_a_watch_goes_on_after_its_connection_broke(
    cluster: SimCluster, core: client.CoreV1Api, tmp_path: Path
) -> None:
    api = Api.of(cluster.kubeconfig)
    proxy = CuttingProxy(api.host, api.port)
    through_proxy = tmp_path / "kubeconfig"
    through_proxy.write_text(cluster.kubeconfig.read_text().replace(f":{api.port}", f":{proxy.port}"))
    seen: list[tuple[str, str]] = []
    breaks = 0
    with closing(proxy), config.new_client_from_config(str(through_proxy)) as through:
        watched = client.CoreV1Api(through)
        version = watched.list_namespaced_config_map(SPACE).metadata.resource_version
        core.create_namespaced_config_map(SPACE, config_map("broken-0"))
        while len(seen) < 4:
            watcher = watch.Watch()
            try:
                for event in watcher.stream(
                    watched.list_namespaced_config_map, SPACE, resource_version=version, timeout_seconds=20
                ):
                    found = event["object"].metadata
                    version = found.resource_version
                    seen.append((event["type"], found.name))
                    proxy.cut()
                    core.create_namespaced_config_map(SPACE, config_map(f"broken-{len(seen)}"))
            except (urllib3.exceptions.HTTPError, OSError):
                breaks += 1
    assert seen == [("ADDED", f"broken-{number}") for number in range(4)]
    assert breaks >= 3


def test_the_server_ends_a_watch_after_timeout_seconds(core: client.CoreV1Api) -> None:
    version = core.list_namespaced_secret(SPACE).metadata.resource_version
    begun = time.monotonic()
    answer = core.list_namespaced_secret(
        SPACE, watch=True, resource_version=version, timeout_seconds=1, _preload_content=False
    )
    assert answer.read() == b""
    assert time.monotonic() - begun < 10


def turn_the_ring_over(core: client.CoreV1Api, name: str) -> None:
    """More changes of one ConfigMap than the ring of events holds."""
    core.create_namespaced_config_map(SPACE, config_map(name))
    for number in range(LIMITS.watch_ring_events + 8):
        core.patch_namespaced_config_map(name, SPACE, {"data": {"key": str(number)}})


def test_a_watch_that_missed_events_of_its_kind_gets_410_and_recovers(
    core: client.CoreV1Api, api: Api
) -> None:
    old = core.list_namespaced_config_map(SPACE).metadata.resource_version
    turn_the_ring_over(core, "spinning")
    with pytest.raises(ApiException) as expired:
        for _ in watch.Watch().stream(
            core.list_namespaced_config_map, SPACE, resource_version=old, timeout_seconds=10
        ):
            pass
    assert expired.value.status == 410
    answer = api.ask("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={old}&timeoutSeconds=1")
    if answer.status == 200:
        events = [json.loads(line) for line in answer.body.splitlines()]
        assert [event["type"] for event in events] == ["ERROR"]
        status = events[0]["object"]
        assert status["kind"] == "Status" and status["code"] == 410 and status["reason"] == "Expired"
        assert status["metadata"] == {}
    else:
        status = assert_status(answer, 410, "Expired")
    assert "too old resource version" in status["message"]
    fresh = core.list_namespaced_config_map(SPACE).metadata.resource_version
    core.patch_namespaced_config_map("spinning", SPACE, {"data": {"key": "recovered"}})
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, SPACE, resource_version=fresh, timeout_seconds=10
    )
    assert next(stream)["object"].data["key"] == "recovered"


def test_a_quiet_kind_resumes_after_others_turned_the_ring_over(core: client.CoreV1Api, api: Api) -> None:
    quiet = core.list_namespaced_secret(SPACE).metadata.resource_version
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "busy"},
        "spec": {"holderIdentity": "busy"},
    }
    assert api.ask("POST", LEASES, lease).status == 201
    merge = {"Content-Type": "application/merge-patch+json"}
    for number in range(3 * LIMITS.watch_ring_events):
        renewal = {"spec": {"leaseTransitions": number}}
        assert api.ask("PATCH", f"{LEASES}/busy", renewal, merge).status == 200
    stream = watch.Watch().stream(
        core.list_namespaced_secret, SPACE, resource_version=quiet, timeout_seconds=10
    )
    core.create_namespaced_secret(SPACE, {"metadata": {"name": "at-last"}})
    event = next(stream)
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "at-last")


def test_a_watch_that_sees_nothing_gets_a_bookmark_before_the_ring_turns_over(
    core: client.CoreV1Api, api: Api
) -> None:
    listed = core.list_namespaced_config_map(SPACE).metadata.resource_version
    path = f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&labelSelector=rare"
    with api.watching(f"{path}&resourceVersion={listed}") as events:
        turn_the_ring_over(core, "turning")
        event = next(events)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap" and event["object"]["apiVersion"] == "v1"
    marked = event["object"]["metadata"]["resourceVersion"]
    assert int(marked) > int(listed)
    rare = {"metadata": {"name": "rare", "labels": {"rare": "yes"}}}
    with api.watching(f"{path}&resourceVersion={marked}") as events:
        core.create_namespaced_config_map(SPACE, rare)
        added = next(event for event in events if event["type"] != "BOOKMARK")
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "rare")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("resource", [r for r in RESOURCES if "watch" in r.verbs], ids=lambda r: r.kind)
def test_initial_events_end_with_an_annotated_bookmark(api: Api, resource: Resource, form: str) -> None:
    headers = {"Accept": FORMS[form]}
    for namespace in ("", "kube-public"):
        if namespace and not resource.namespaced:
            continue
        path = resource.collection_path(namespace)
        present = {
            (item["metadata"].get("namespace"), item["metadata"]["name"])
            for item in api.ask("GET", path).json["items"]
        }
        for version in ("", "0"):
            query = f"{INITIAL}&resourceVersion={version}"
            begun = time.monotonic()
            added, bookmark = initial_events(api, f"{path}?{query}", headers)
            assert time.monotonic() - begun < 5
            names = {names_of(event, form) for event in added}
            # Events and Leases come and go meanwhile; what was there and stays is there.
            assert names <= present or resource.kind == "Event"
            assert resource.kind == "Event" or names == present
            check_bookmark(bookmark, resource, form)


def initial_events(
    api: Api, path: str, headers: dict[str, str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The ADDED events and the first other one."""
    added = []
    with api.watching(path, headers) as events:
        for event in events:
            if event["type"] != "ADDED":
                return added, event
            added.append(event)
    raise AssertionError(f"the watch ended after {len(added)} events")


def names_of(event: dict[str, Any], form: str) -> tuple[str | None, str]:
    """Namespace and name of the event's object."""
    obj = event["object"]
    if form == "table":
        assert obj["kind"] == "Table" and len(obj["rows"]) == 1
        obj = obj["rows"][0]["object"]
    if form != "json":
        assert obj["kind"] == "PartialObjectMetadata"
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]


def check_bookmark(event: dict[str, Any], resource: Resource, form: str) -> None:
    """The bookmark of the end: of the kind that was asked for, annotated, with a version to go on from."""
    assert event["type"] == "BOOKMARK"
    obj = event["object"]
    if form == "table":
        assert obj["kind"] == "Table" and len(obj["rows"]) == 1
        metadata = obj["rows"][0]["object"]["metadata"]
    elif form == "partial":
        assert (obj["kind"], obj["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        metadata = obj["metadata"]
    else:
        assert (obj["kind"], obj["apiVersion"]) == (resource.kind, resource.api_version)
        metadata = obj["metadata"]
    assert metadata["annotations"][END] == "true"
    assert int(metadata["resourceVersion"]) > 0


def test_an_initial_list_longer_than_the_stream_buffer_comes_whole(core: client.CoreV1Api, api: Api) -> None:
    count = 4 * LIMITS.watch_stream_buffer_events
    for number in range(count):
        core.create_namespaced_config_map(SPACE, config_map(f"many-{number}", "x" * 2000))
    added, bookmark = initial_events(api, f"{CONFIG_MAPS}?{INITIAL}&resourceVersion=", {})
    assert sum(event["object"]["metadata"]["name"].startswith("many-") for event in added) == count
    since = bookmark["object"]["metadata"]["resourceVersion"]
    core.delete_namespaced_config_map("many-0", SPACE)
    with api.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}") as events:
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "many-0")


def test_a_version_that_was_never_given_out_is_told_apart(api: Api) -> None:
    answer = api.ask("GET", f"{CONFIG_MAPS}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan")
    status = assert_status(answer, 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_an_expired_page_says_how_to_go_on(core: client.CoreV1Api, api: Api) -> None:
    page = api.ask("GET", f"{CONFIG_MAPS}?limit=1").json
    token = page["metadata"]["continue"]
    turn_the_ring_over(core, "paging")
    answer = api.ask("GET", f"{CONFIG_MAPS}?limit=500&continue={token}")
    if answer.status == 200:  # Lists go on over what is there now: nothing has expired.
        assert answer.json["items"]
    else:
        status = assert_status(answer, 410, "Expired")
        again = api.ask("GET", f"{CONFIG_MAPS}?limit=500&continue={status['metadata'].get('continue', '')}")
        assert again.status == 200
