"""Clients as they are: tables of any version, watches whose version has expired, OpenAPI (user demand, E6, E8)."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kube32.contract import LIMITS
from tests.conftest import BIN, SimCluster
from tests.e2e.world import Watch, World

SPACE = "clients"
CONFIG_MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
OLD_TABLE = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.fixture(scope="module")
def world(cluster: SimCluster) -> Iterator[World]:
    """With a namespace for this file."""
    cluster.kubectl("create", "namespace", SPACE)
    yield World(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def config_map(name: str, **data: str) -> dict[str, Any]:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def get(cluster: SimCluster, path: str, accept: str, code: int = 200) -> dict[str, Any]:
    """A GET of what `accept` asks for."""
    status, _, body = cluster.http("GET", path, headers={"Accept": accept})
    assert status == code, body
    found: dict[str, Any] = json.loads(body)
    return found


def expire(world: World, name: str) -> str:
    """Changes ConfigMaps until the version from before is older than all that is kept of them; that version."""
    version: str = world.json("GET", CONFIG_MAPS)["metadata"]["resourceVersion"]
    for number in range(LIMITS.watch_ring_events + 1):
        world.json("POST", CONFIG_MAPS, config_map(f"{name}-{number}"))
    return version


def test_a_client_that_knows_v1beta1_tables_alone_gets_them_everywhere(world: World) -> None:
    world.json("POST", CONFIG_MAPS, config_map("old", a="1"))
    watch = Watch(world.cluster, f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Dold", OLD_TABLE)
    world.json("PATCH", f"{CONFIG_MAPS}/old", {"data": {"b": "2"}})
    world.cluster.until("two frames", lambda: len(watch.events) >= 2)
    watch.close()
    tables = [get(world.cluster, path, OLD_TABLE) for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/old")]
    tables += [event["object"] for event in watch.events]
    for table in tables:
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1beta1")
        row = next(row for row in table["rows"] if row["cells"][0] == "old")
        assert row["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert [column["name"] for column in tables[0]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [event["object"]["rows"][0]["cells"][1] for event in watch.events] == [1, 2]


def test_a_watch_of_rows_from_an_expired_version_says_so_and_a_list_goes_on(world: World) -> None:
    version = expire(world, "expired")
    watch = Watch(world.cluster, f"{CONFIG_MAPS}?watch=true&resourceVersion={version}", TABLE)
    world.cluster.until("the end of the watch", lambda: not watch.open)
    watch.close()
    [error] = watch.events
    assert error["type"] == "ERROR"
    status = error["object"]
    assert (status["kind"], status["apiVersion"], status["metadata"]) == ("Status", "v1", {})
    assert (status["code"], status["reason"]) == (410, "Expired")
    newest = get(world.cluster, CONFIG_MAPS, TABLE)["metadata"]["resourceVersion"]
    again = Watch(world.cluster, f"{CONFIG_MAPS}?watch=true&resourceVersion={newest}", TABLE)
    world.json("POST", CONFIG_MAPS, config_map("expired-next"))
    world.cluster.until("the next change", lambda: again.events)
    assert again.events[0]["type"] == "ADDED"
    assert again.events[0]["object"]["rows"][0]["cells"][:2] == ["expired-next", 0]
    again.close()


def test_kubectl_watches_on_through_more_changes_than_are_kept(world: World) -> None:
    world.json("POST", CONFIG_MAPS, config_map("stream-listed"))
    command = [str(BIN / "kubectl"), "-n", SPACE, "get", "configmaps", "-w", "--no-headers", "-o", "name"]
    process = subprocess.Popen(command, env=world.cluster.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        # The second one is seen by the watch: it is open.
        for marker in ("stream-listed", "stream-watched"):
            while process.stdout.readline().strip() != f"configmap/{marker}":
                assert process.poll() is None
            if marker == "stream-listed":
                world.json("POST", CONFIG_MAPS, config_map("stream-watched"))
        expire(world, "stream")
        seen: set[str] = set()
        last = f"configmap/stream-{LIMITS.watch_ring_events}"
        for line in process.stdout:
            seen.add(line.strip())
            if line.strip() == last:
                break
    finally:
        process.kill()
        process.wait()
    assert {f"configmap/stream-{number}" for number in range(LIMITS.watch_ring_events + 1)} <= seen


def test_kubectl_reads_what_it_needs_from_openapi_v3_and_nothing_is_missing(world: World) -> None:
    manifest = json.dumps(config_map("applied", a="1"))
    commands = {
        "apply": (["apply", "-f", "-"], "configmap/applied created"),
        "apply again": (["apply", "-f", "-"], "configmap/applied unchanged"),
        "strict": (["apply", "--validate=strict", "-f", "-"], "configmap/applied unchanged"),
        "dry run": (["apply", "--dry-run=server", "-f", "-"], "configmap/applied unchanged (server dry run)"),
        "explain": (["explain", "checkpoint.spec.target"], "nodeSelector"),
        "create": (["create", "--dry-run=server", "--validate=strict", "-f", "-"], "already exists"),
    }
    world.cluster.kubectl("-n", SPACE, "delete", "configmap", "applied", "--ignore-not-found")
    read: set[str] = set()
    for name, (arguments, words) in commands.items():
        done = subprocess.run(
            [str(BIN / "kubectl"), "-n", SPACE, "-v=6", *arguments],
            env={**world.cluster.environment, "HOME": str(world.cluster.folder / f"home-{name[:5]}")},
            input=manifest,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert words in done.stdout + done.stderr, (name, done.stderr)
        assert "failed to download openapi" not in done.stderr
        assert "/openapi/v2" not in done.stderr
        answers = re.findall(r'/openapi/v3(\S*?)"? (?:status="?)?(\d+)', done.stderr)
        assert {code for _, code in answers} <= {"200", "304"}, done.stderr
        read |= {path.partition("?")[0] for path, _ in answers}
    assert {"", "/api/v1", "/apis/kube32.io/v1"} <= read
    unknown = {**config_map("applied"), "dta": {}}
    refused = world.cluster.kubectl(
        "-n", SPACE, "apply", "--validate=strict", "-f", "-", stdin=json.dumps(unknown), code=1
    )
    assert 'unknown field "dta"' in refused


def test_openapi_v2_is_json_for_those_who_take_it_and_a_clear_refusal_for_others(world: World) -> None:
    cluster = world.cluster
    for accept in (f"{PROTOBUF_V2}, application/json", "application/json, */*", f"{PROTOBUF_V2}, */*;q=0.1"):
        status, headers, body = cluster.http("GET", "/openapi/v2", headers={"Accept": accept})
        assert status == 200 and headers["Content-Type"].startswith("application/json")
        swagger = json.loads(body)
        assert swagger["swagger"] == "2.0" and "io.k8s.api.core.v1.Pod" in swagger["definitions"]
    refusal = get(cluster, "/openapi/v2", PROTOBUF_V2, 406)
    assert (refusal["kind"], refusal["reason"]) == ("Status", "NotAcceptable")


def test_openapi_v3_has_hash_urls_that_a_client_keeps(world: World) -> None:
    cluster = world.cluster
    index = get(cluster, "/openapi/v3", "application/json")["paths"]
    for name, entry in index.items():
        url = entry["serverRelativeURL"]
        status, headers, body = cluster.http("GET", url)
        assert status == 200 and f"hash={headers['ETag'].strip(chr(34))}" in url, name
        assert "immutable" in headers["Cache-Control"]
        assert json.loads(body)["openapi"].startswith("3.")
        assert cluster.http("GET", url, headers={"If-None-Match": headers["ETag"]})[0] == 304
