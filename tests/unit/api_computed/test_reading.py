"""Computed kinds are read and watched like stored ones: one order of revisions, each change once."""

import asyncio
from typing import Any

import pytest
from tests.unit.api_computed.conftest import SPACE, Cluster
from tests.unit.api_core.conftest import Frames

ENDPOINTS = f"{SPACE}/endpoints"


def version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def test_a_change_has_a_version_of_its_own_between_those_of_stored_objects(cluster: Cluster) -> None:
    service = cluster.service()
    pod = cluster.pod("a")
    found = await cluster.endpoints()
    later = cluster.pod("b", "10.0.0.2")
    listed = (await cluster.get(ENDPOINTS)).json
    versions = [version(o) for o in (service, pod, found, later, listed["items"][-1])]
    assert versions == sorted(set(versions))
    assert version(listed) >= versions[-1]
    (found_slice,) = await cluster.slices()
    assert version(found_slice) not in versions


async def test_nothing_changes_when_it_comes_out_as_before(cluster: Cluster) -> None:
    cluster.service()
    pod = cluster.pod("a")
    before = await cluster.endpoints()
    pod["status"]["message"] = "of no interest"
    cluster.put("Pod", pod)
    cluster.service(sessionAffinity="ClientIP")
    assert await cluster.endpoints() == before


async def test_a_watch_sees_pods_come_and_go_without_any_reader(cluster: Cluster) -> None:
    cluster.service()
    frames = await cluster.watch(f"{ENDPOINTS}?watch=1&fieldSelector=metadata.name%3Dweb")
    assert "subsets" not in (await frames.next())["object"]
    cluster.pod("a", ready=False)
    cluster_ready = (await frames.next())["object"]["subsets"][0]
    assert "addresses" not in cluster_ready
    cluster.pod("a")
    frame = await frames.next()
    assert frame["type"] == "MODIFIED" and frame["object"]["subsets"][0]["addresses"]
    cluster.drop("Service", "web")
    frame = await frames.next()
    assert (frame["type"], frame["object"]["metadata"]["name"]) == ("DELETED", "web")
    await frames.close()


async def test_a_service_made_anew_is_deleted_and_added_to_watches(cluster: Cluster) -> None:
    cluster.service()
    frames = await cluster.watch(f"{ENDPOINTS}?watch=1&resourceVersion={version(await cluster.endpoints())}")
    cluster.drop("Service", "web")
    cluster.service()
    assert [(await frames.next())["type"] for _ in range(2)] == ["DELETED", "ADDED"]
    await frames.close()


async def test_a_watch_goes_on_from_a_lists_version(cluster: Cluster) -> None:
    cluster.service()
    listed = (await cluster.get(ENDPOINTS)).json
    cluster.pod("a")
    frames = await cluster.watch(f"{ENDPOINTS}?watch=1&resourceVersion={version(listed)}")
    frame = await frames.next()
    assert frame["type"] == "MODIFIED" and version(frame["object"]) > version(listed)
    await frames.close()


async def test_a_watch_list_ends_with_its_bookmark(cluster: Cluster) -> None:
    cluster.service()
    query = (
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        "&labelSelector=kubernetes.io%2Fservice-name%3Dweb"
    )
    frames = await cluster.watch(f"/apis/discovery.k8s.io/v1/endpointslices?{query}")
    assert (await frames.next())["type"] == "ADDED"
    bookmark = await frames.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await frames.close()


async def test_versions_that_are_lost_or_not_given_out_are_expired(cluster: Cluster) -> None:
    cluster.service()
    first = version(await cluster.endpoints())
    for number in range(40):
        cluster.pod("a", f"10.0.0.{number}")
        await cluster.endpoints()
    for asked in (first, 10**9):
        frames = await cluster.watch(f"{ENDPOINTS}?watch=1&resourceVersion={asked}")
        frame = await frames.next()
        assert frame["type"] == "ERROR" and frame["object"]["code"] == 410


async def test_lists_come_in_pages_and_as_tables(cluster: Cluster) -> None:
    for name in "abc":
        cluster.service(name)
        cluster.pod(f"pod-{name}", app=name)
    page = (await cluster.get(f"{ENDPOINTS}?limit=2")).json
    token = page["metadata"]["continue"]
    rest = (await cluster.get(f"{ENDPOINTS}?limit=2&continue={token}")).json
    assert [o["metadata"]["name"] for o in page["items"] + rest["items"]] == ["a", "b", "c"]
    table = await cluster.get(ENDPOINTS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [r["cells"][:2] for r in table.json["rows"]] == [[n, "10.0.0.1:8080"] for n in "abc"]


async def test_streams_of_computed_and_stored_kinds_have_one_cap(cluster: Cluster) -> None:
    cap = cluster.server.limits.watch_streams
    paths = [f"{SPACE}/pods?watch=1", f"{ENDPOINTS}?watch=1"]
    streams = [await cluster.response("GET", paths[n % 2], remote=True) for n in range(cap)]
    answer = await cluster.response("GET", ENDPOINTS + "?watch=1", remote=True)
    assert answer.status == 429
    for stream in streams:
        await Frames(stream).close()
    answer = await cluster.response("GET", ENDPOINTS + "?watch=1", remote=True)
    assert answer.status == 200
    await Frames(answer).close()


async def test_a_thousand_pods_that_become_ready_are_computed_a_few_times_only(cluster: Cluster) -> None:
    cluster.service()
    for number in range(1000):
        cluster.pod(f"p{number}", f"10.1.{number // 250}.{number % 250}", ready=False)
    frames = await cluster.watch(f"{ENDPOINTS}?watch=1&fieldSelector=metadata.name%3Dweb")
    await frames.next()
    for number in range(1000):
        cluster.pod(f"p{number}", f"10.1.{number // 250}.{number % 250}")
        if number % 10 == 0:
            await asyncio.sleep(0)
    seen = 0
    while True:
        subset = (await frames.next())["object"]["subsets"][0]
        seen += 1
        if "notReadyAddresses" not in subset:
            break
    assert len(subset["addresses"]) == 1000 and seen <= 100
    await frames.close()


async def test_a_pod_of_another_service_computes_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        cluster.service(f"s{number}")
    cluster.server.views.settle()
    computed: list[str] = []
    original = type(cluster.server.views)._compute

    def noted(views: Any, owner: Any) -> None:
        computed.append(owner.obj["metadata"]["name"])
        original(views, owner)

    monkeypatch.setattr(type(cluster.server.views), "_compute", noted)
    cluster.pod("a", app="s7")
    cluster.pod("b", app="nobody")
    cluster.server.views.settle()
    assert computed == ["s7"]
    cluster.pod("a", app="s8")
    cluster.server.views.settle()
    assert sorted(computed) == ["s7", "s7", "s8"]


async def test_one_object_that_cannot_be_computed_leaves_the_others_alone(cluster: Cluster) -> None:
    cluster.service("broken", ports=[{"port": 80, "targetPort": 80, "protocol": None, "name": 5}])
    cluster.service()
    for name in ("broken", "web"):
        cluster.pod(name, app=name)
    cluster.service("broken", ports="nonsense")
    cluster.pod("web", "10.0.0.2")
    assert (await cluster.endpoints())["subsets"][0]["addresses"][0]["ip"] == "10.0.0.2"
