"""Random moves and saves of several pods at once, under requests and events: nothing is lost or doubled.

KUBE32_CHAOS_S is how many seconds it goes on (`make chaos SECONDS=180`).
"""

import asyncio
import collections
import os
import random
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube32.client.api import ApiClient, ApiError
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import load_kubeconfig
from tests.conftest import SimCluster

SECONDS = float(os.environ.get("KUBE32_CHAOS_S", "12"))
NODES = ("control", "node-a", "node-b")
PODS = ("p001", "p002", "p003")

# Counts requests in memory and, by an indirect call, in a global; publishes (pod name, tick number) at each tick.
LEDGER = """
(module
  (import "env" "k32_time_ms" (func $time (result i64)))
  (import "env" "k32_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_publish" (func $publish (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "POD") (data (i32.const 16) "beat")
  (type $step (func (param i32) (result i32)))
  (table $steps 2 funcref)
  (elem (i32.const 0) $bump $bump)
  (global $count (mut i32) (i32.const 0))
  (func $bump (type $step) (i32.add (local.get 0) (i32.const 1)))
  (func $add (param $at i32) (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1))))
  (func (export "k32_init")
    (call $add (i32.const 80))
    (drop (call $env (i32.const 0) (i32.const 3) (i32.const 128) (i32.const 4))))
  (func (export "k32_restored") (call $add (i32.const 76)))
  (func (export "k32_tick")
    (call $add (i32.const 72))
    (i32.store (i32.const 132) (i32.load (i32.const 72)))
    (drop (call $publish (i32.const 16) (i32.const 4) (i32.const 128) (i32.const 8))))
  (func (export "k32_handle")
    (call $add (i32.const 64))
    (global.set $count (call_indirect (type $step) (global.get $count) (i32.const 1)))
    (i32.store (i32.const 68) (global.get $count))
    (i64.store (i32.const 88) (call $time))
    (drop (call $write (i32.const 64) (i32.const 32)))))
"""

# Keeps every event's payload and answers with all of them.
EARS = """
(module
  (import "env" "k32_event_payload" (func $payload (param i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 24)
  (global $at (mut i32) (i32.const 8))
  (func (export "k32_event")
    (drop (call $payload (global.get $at) (i32.const 8)))
    (global.set $at (i32.add (global.get $at) (i32.const 8))))
  (func (export "k32_handle")
    (drop (call $write (i32.const 8) (i32.sub (global.get $at) (i32.const 8))))))
"""


@dataclass(order=True)
class Answer:
    """What a ledger says of itself."""

    count: int
    in_global: int
    ticks: int
    restored: int
    inits: int
    time_ms: int

    FORM = struct.Struct("<IIIII4xQ")


@dataclass
class World:
    """The cluster as its clients see it, and what they saw."""

    client: ApiClient
    chance: random.Random
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, list[Answer]] = field(default_factory=lambda: collections.defaultdict(list))
    phases: collections.Counter[str] = field(default_factory=collections.Counter)

    async def ask(self, pod: str) -> tuple[int, str | None, bytes]:
        """One request through the pod proxy: status, Retry-After, body."""
        path = f"/api/v1/namespaces/default/pods/{pod}/proxy/"
        async with await self.client.raw("GET", path, timeout_s=60) as response:
            return response.status, response.headers.get("Retry-After"), await response.read()

    async def ask_on(self, pod: str) -> None:
        """Requests without a pause; anything but an answer or "try again" is a failure."""
        while not self.stop.is_set():
            status, retry_after, body = await self.ask(pod)
            if status == 200:
                self.answers[pod].append(Answer(*Answer.FORM.unpack(body)))
            else:
                assert (status, retry_after) == (503, "1"), body
                await asyncio.sleep(0.005)

    async def checkpoint(self, pod: str, **spec: Any) -> str:
        """A new Checkpoint's name."""
        body = {"metadata": {"generateName": f"{pod}-"}, "spec": {"podName": pod, **spec}}
        return str((await self.client.create("Checkpoint", body, "default"))["metadata"]["name"])

    async def ended(self, name: str) -> None:
        """Waits for the end of a Checkpoint and counts it."""
        deadline = time.monotonic() + 60
        while True:
            status = (await self.client.get("Checkpoint", name, "default")).get("status", {})
            phase = status.get("phase")
            if phase in ("Saved", "Completed", "Failed"):
                self.phases[phase] += 1
                return
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.02)

    async def move_on(self, pod: str) -> None:
        """Moves to somewhere, three moves at once, saves: one after the other."""
        while not self.stop.is_set():
            kind = self.chance.random()
            target = {"nodeName": self.chance.choice(NODES)}
            if kind < 0.6:
                names = [await self.checkpoint(pod, action="Move", target=target)]
            elif kind < 0.7:
                names = [await self.checkpoint(pod, action="Move")]
            elif kind < 0.85:
                names = [await self.checkpoint(pod, action="Move", target=target) for _ in range(3)]
            else:
                names = [await self.checkpoint(pod)]
            await asyncio.gather(*(self.ended(name) for name in names))

    async def cordon_on(self) -> None:
        """Cordons one node after another."""
        while not self.stop.is_set():
            node = self.chance.choice(NODES)
            for unschedulable in (True, None):
                await self.client.patch("Node", node, {"spec": {"unschedulable": unschedulable}})
                await asyncio.sleep(self.chance.uniform(0.1, 0.4))


async def played(cluster: SimCluster, seed: int) -> tuple[World, bytes]:
    """SECONDS of chaos; the world afterwards, and what the listener heard."""
    access = load_kubeconfig(cluster.kubeconfig)
    transport = HttpTransport(access.server, ssl_context=access.ssl_context, token=access.token)
    world = World(ApiClient(transport), random.Random(seed))
    try:
        async with asyncio.TaskGroup() as tasks:
            for pod in PODS:
                tasks.create_task(world.ask_on(pod))
                tasks.create_task(world.move_on(pod))
            tasks.create_task(world.cordon_on())
            await asyncio.sleep(SECONDS)
            world.stop.set()
        for pod in PODS:
            status, _, body = await world.ask(pod)
            assert status == 200, f"{pod} does not answer when all is quiet: {status} {body!r}"
            world.answers[pod].append(Answer(*Answer.FORM.unpack(body)))
        await asyncio.sleep(0.5)
        return world, (await world.ask("ears"))[2]
    except* ApiError as errors:
        raise AssertionError([e.body for e in errors.exceptions if isinstance(e, ApiError)]) from errors
    finally:
        await transport.close()


def test_random_moves_lose_and_double_nothing(own_cluster: SimCluster, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print("seed", seed)
    own_cluster.control_plane()
    own_cluster.worker("node-a")
    own_cluster.worker("node-b")
    files = tmp_path / "modules"
    files.mkdir()
    own_cluster.deploy_wat(files, "ears", EARS, "--node", "control", "--topics", "beat")
    for pod in PODS:
        own_cluster.deploy_wat(files, pod, LEDGER, "--tick", "50ms", "--env", f"POD={pod}", ready=False)
    own_cluster.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s")
    world, heard = asyncio.run(played(own_cluster, seed))
    print(dict(world.phases))
    assert world.phases["Completed"] > 2 * SECONDS / 3
    for pod, answers in world.answers.items():
        assert [a.count for a in answers] == list(range(1, len(answers) + 1)), pod
        assert all(a.in_global == a.count and a.inits == 1 for a in answers), pod
        assert [a.time_ms for a in answers] == sorted(a.time_ms for a in answers), pod
        assert answers[-1].restored > 0, pod
    beats: dict[str, list[int]] = collections.defaultdict(list)
    for name, number in struct.iter_unpack("<4sI", heard):
        beats[name.decode()].append(number)
    assert set(beats) == set(PODS)
    for pod, numbers in beats.items():
        assert numbers == sorted(set(numbers)), f"{pod}: an event came twice or out of order"
