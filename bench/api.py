"""Bench "api": the API server over HTTPS beside an empty aiohttp handler; writes, watches, start, memory."""

import asyncio
import ssl
import statistics
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.cluster import BenchCluster, BenchFailed, Process, free_port
from bench.harness import Report, percentile, resident_bytes
from bench.load import NAME, Load, Rate, drive, tool
from kube32.client.api import ApiClient
from kube32.client.kubeconfig import load_kubeconfig

SPACE = "default"
GET_AIM, SERVING_AIM_S, MEMORY_AIM_MB = 0.6, 1.5, 100
OBJECTS = 1000
PADDING = "x" * 700
ROUNDS, ROUND_S = 5, 1
MANY = 16
STARTS = 4
WATCHED = 200
SETTLE_S = 2.0


async def run() -> Path:
    """Measures, prints the table, gives the JSON's path."""
    report = Report("api", f"The API server over HTTPS (load: {tool()}; medians of rounds in turn)")
    with BenchCluster() as cluster:
        await _starts(report, cluster)
        control = await cluster.control_plane()
        client = cluster.client()
        try:
            await asyncio.sleep(SETTLE_S)
            _memory(report, "resident memory, idle", control)
            await _reads(report, cluster, control, client)
            await _watch(report, client)
            await _writes(report, cluster, control, client)
        finally:
            await client.transport.close()
    return report.finish()


async def _starts(report: Report, cluster: BenchCluster) -> None:
    """From spawning the process to the first 200 of /readyz, and to the Ready node. Byte code is there."""
    firsts: list[float] = []
    agains: list[float] = []
    readies: list[float] = []
    warm_up = cluster.sim("warm-up", "--listen", "127.0.0.1:0")
    await warm_up.until_ready()
    warm_up.stop()
    for number in range(STARTS):
        for found in (firsts, agains):
            port = free_port()
            process = cluster.sim(f"start-{number}", "--listen", f"127.0.0.1:{port}")
            found.append(await _until_served(process, port))
            readies.append(await process.until_ready())
            process.stop()
    for what, samples, aim in (
        ("start to serving, empty directory", firsts, SERVING_AIM_S),
        ("start to serving, again", agains, SERVING_AIM_S),
        ("start to a Ready node", readies, None),
    ):
        note = f"most {max(samples):.2f} s"
        report.add(what, statistics.median(samples), "s", aim=aim, note=note, samples=samples)


async def _until_served(process: Process, port: int) -> float:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        while True:
            process.check()
            try:
                async with session.get(f"https://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return time.perf_counter() - process.spawned
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.005)


def _memory(report: Report, what: str, process: Process, aim: float | None = MEMORY_AIM_MB) -> None:
    megabytes = resident_bytes(process.popen.pid) / 1e6
    if megabytes:
        report.add(what, megabytes, "MB", aim=aim, note="control plane with its node and engine")


def _config_map(name: str) -> dict[str, Any]:
    """A ConfigMap of about 1 KB as stored."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"key": PADDING},
    }


def _pod(number: int) -> dict[str, Any]:
    """A pod that nobody schedules, about as large as pods are."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"listed-{number:04}",
            "labels": {"app": "listed", "number": str(number)},
            "annotations": {"bench.kube32.io/padding": PADDING[:400]},
        },
        "spec": {
            "schedulerName": "nobody",
            "containers": [
                {
                    "name": "main",
                    "image": "wasm://listed",
                    "env": [{"name": "NUMBER", "value": str(number)}],
                    "resources": {"limits": {"memory": "64Ki"}},
                }
            ],
        },
    }


class Target:
    """Our server and its token, and empty handlers with the same certificate."""

    def __init__(self, cluster: BenchCluster, control: Process) -> None:
        access = load_kubeconfig(cluster.folder / "control" / "kubeconfig")
        self.url, self.token = access.server, access.token or ""
        self.folder = cluster.folder
        self._cluster = cluster
        self._pem = control.folder / "pki" / "apiserver.pem"

    async def empty(self, size: int) -> str:
        """Starts an empty handler that answers `size` bytes; its URL."""
        port = free_port()
        command = [sys.executable, "-m", "bench.empty_server", str(port), str(self._pem), str(size)]
        process = self._cluster.spawn(f"empty-{size}", *command)
        while True:
            process.check()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return f"https://127.0.0.1:{port}/"

    async def in_turn(self, loads: list[Load]) -> list[list[Rate]]:
        """Each load's rates; the rounds take turns (A B A B)."""
        rates: list[list[Rate]] = [[] for _ in loads]
        for load in loads:
            await drive(load, 1, self.folder)
        for _ in range(ROUNDS):
            for load, found in zip(loads, rates, strict=True):
                found.append(await drive(load, ROUND_S, self.folder))
        return rates


async def _reads(report: Report, cluster: BenchCluster, control: Process, client: ApiClient) -> None:
    """GET of one ConfigMap and LIST of 1,000 pods."""
    target = Target(cluster, control)
    created = await client.create("ConfigMap", _config_map("read"), SPACE)
    size = len(orjson.dumps(created))
    get = f"{target.url}/api/v1/namespaces/{SPACE}/configmaps/read"
    empty = await target.empty(0)
    await _compare(report, target, f"GET of a ConfigMap of {size} bytes", get, empty, GET_AIM)
    same = await target.empty(size)
    rates = await target.in_turn([Load(get, target.token, MANY), Load(same, connections=MANY)])
    _ratio(report, f"GET, {MANY} connections, to a handler that answers as many bytes", rates, None)
    for number in range(OBJECTS):
        await client.create("Pod", _pod(number), SPACE)
    await asyncio.sleep(SETTLE_S)
    _memory(report, f"resident memory, {OBJECTS:,} pods stored", control)
    path = f"/api/v1/namespaces/{SPACE}/pods"
    async with await client.raw("GET", path, query={"resourceVersion": "0"}) as response:
        body = await response.read()
    if len(orjson.loads(body)["items"]) != OBJECTS:
        raise BenchFailed(f"LIST does not give {OBJECTS} pods")
    same = await target.empty(len(body))
    loads = [Load(target.url + path, target.token), Load(same)]
    rates = await target.in_turn(loads)
    listed = statistics.median(rate.per_second for rate in rates[0])
    note = f"{len(body) / 1e6:.2f} MB each, {listed * len(body) / 1e6:,.0f} MB/s, 1 connection"
    report.add(f"LIST of {OBJECTS:,} pods", listed, "/s", note=note)
    _ratio(report, "LIST to a handler that answers as many bytes", rates, None)


async def _compare(
    report: Report, target: Target, what: str, ours: str, empty: str, aim: float | None
) -> None:
    for connections in (1, MANY):
        loads = [
            Load(ours, target.token, connections),
            Load(empty, connections=connections),
        ]
        rates = await target.in_turn(loads)
        plural = "connection" if connections == 1 else "connections"
        label = f"{connections} {plural}"
        for name, found in ((what, rates[0]), ("empty aiohttp handler", rates[1])):
            p50 = statistics.median(rate.p50_ms for rate in found)
            samples = [rate.per_second for rate in found]
            report.add(
                f"{name}, {label}",
                statistics.median(samples),
                "/s",
                note=f"p50 {p50:.2f} ms",
                samples=samples,
            )
        _ratio(report, f"GET to empty handler, {label}", rates, aim)


def _ratio(report: Report, what: str, rates: list[list[Rate]], aim: float | None) -> None:
    found = [a.per_second / b.per_second for a, b in zip(*rates, strict=True)]
    report.add(what, statistics.median(found), "ratio", aim=aim, more_is_better=True, samples=found)


async def _watch(report: Report, client: ApiClient) -> None:
    """From sending a POST to reading its event on an open watch."""
    listed = await client.list("ConfigMap", SPACE)
    watch = client.watch("ConfigMap", SPACE, resource_version=listed.resource_version)
    samples = []
    async with aclosing(watch) as events:
        for number in range(WATCHED):
            begun = time.perf_counter()
            creation = asyncio.create_task(client.create("ConfigMap", _config_map(f"seen-{number}"), SPACE))
            async for kind, obj in events:
                if kind == "ADDED" and obj["metadata"]["name"] == f"seen-{number}":
                    break
            samples.append((time.perf_counter() - begun) * 1000)
            await creation
    note = f"p99 {percentile(samples, 0.99):.2f} ms, client in Python"
    report.add("POST to its watch event", percentile(samples, 0.5), "ms", note=note, samples=samples)


async def _writes(report: Report, cluster: BenchCluster, control: Process, client: ApiClient) -> None:
    """POSTs of ConfigMaps by one writer and by many."""
    target = Target(cluster, control)
    body = orjson.dumps(_config_map(NAME))
    url = f"{target.url}/api/v1/namespaces/{SPACE}/configmaps"
    for writers in (1, MANY):
        rates = (await target.in_turn([Load(url, target.token, writers, body)]))[0]
        samples = [rate.per_second for rate in rates]
        p50 = statistics.median(rate.p50_ms for rate in rates)
        label = "1 writer" if writers == 1 else f"{writers} writers"
        report.add(
            f"POST of ConfigMaps of 1 KB, {label}",
            statistics.median(samples),
            "/s",
            note=f"p50 {p50:.2f} ms",
            samples=samples,
        )
    made = len((await client.list("ConfigMap", SPACE)).items)
    _memory(report, f"resident memory, {made + OBJECTS:,} objects stored", control, None)
