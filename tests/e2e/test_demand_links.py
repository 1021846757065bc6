"""Connections that go dead without a word between a worker and the control plane (user demand, E4)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from kube32.contract import LIMITS
from tests.conftest import SimCluster
from tests.e2e.link import Link
from tests.e2e.world import HAS_PROC, WITNESS, Watch, World, not_ready

LOST_S = LIMITS.node_lost_ms / 1000


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Link]]:
    """A control plane and a worker that reaches it over a link."""
    cluster, link = SimCluster(tmp_path_factory.mktemp("linked")), None
    try:
        cluster.control_plane()
        folder = cluster.folder / "control"
        config = yaml.safe_load((folder / "worker.kubeconfig").read_text())
        entry = config["clusters"][0]["cluster"]
        link = Link(int(urlsplit(entry["server"]).port or 0))
        entry["server"] = f"https://127.0.0.1:{link.port}"
        through = folder / "linked.kubeconfig"
        through.write_text(yaml.safe_dump(config))
        cluster.start("node-a", "--worker", "--kubeconfig", str(through))
        yield World(cluster), link
    finally:
        cluster.close()
        if link is not None:
            link.close()


def test_a_link_that_is_silent_for_a_while_costs_nothing(linked: tuple[World, Link]) -> None:
    world, link = linked
    world.deploy("before", WITNESS, "node-a", module="linked")
    uid = world.ready("before")["metadata"]["uid"]
    requests = world.seen("before").requests
    nodes = Watch(world.cluster, "/api/v1/nodes?watch=true")
    link.cut()
    # Longer than a Lease's renewal may take, so that this fails once and is tried again.
    time.sleep(LIMITS.node_lease_renew_ms / 1000 + 2)
    world.pod_of("linked", "meanwhile", "node-a")
    link.mend()
    world.ready("meanwhile", LOST_S)
    assert world.ready("before")["metadata"]["uid"] == uid
    assert world.seen("before").requests == requests + 1
    assert nodes.open
    nodes.close()
    assert not_ready(nodes.events) == []
    world.delete("meanwhile")


def test_a_worker_leaves_dead_connections_before_it_can_be_declared_lost(linked: tuple[World, Link]) -> None:
    world, link = linked
    uid = world.ready("before")["metadata"]["uid"]
    nodes = Watch(world.cluster, "/api/v1/nodes?watch=true")
    link.forget()
    began = time.monotonic()
    world.pod_of("linked", "later", "node-a")
    world.ready("later", 60)
    assert time.monotonic() - began < LOST_S
    assert nodes.open
    nodes.close()
    assert not_ready(nodes.events) == []
    assert world.ready("before")["metadata"]["uid"] == uid
    world.delete("later", "before")


@pytest.mark.skipif(not HAS_PROC, reason="timers of sockets are read from /proc")
def test_the_server_probes_silent_watchers_and_frees_their_places_within_a_minute(
    cluster: SimCluster,
) -> None:
    watch = Watch(cluster, "/api/v1/namespaces?watch=true")
    port = cluster.access[1]
    cluster.until("a quiet connection", lambda: probe_in_s(port, watch.port) is not None, 5)
    assert (probe_in_s(port, watch.port) or 0) <= LIMITS.api_keepalive_idle_s
    assert LIMITS.api_keepalive_idle_s + LIMITS.api_keepalive_probes * LIMITS.api_keepalive_interval_s < 60
    watch.close()


def probe_in_s(local: int, remote: int) -> float | None:
    """When the kernel asks a connection's silent peer whether it is alive; None when it does not mean to."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = tuple(int(address.rpartition(":")[2], 16) for address in fields[1:3])
        timer, _, when = fields[5].partition(":")
        if ports == (local, remote) and timer == "02":
            return int(when, 16) / os.sysconf("SC_CLK_TCK")
    return None
