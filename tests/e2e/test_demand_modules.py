"""What a move restores is the module that the pod runs, whatever its name means by now (user demand, A2)."""

from collections.abc import Callable

import pytest
import wasmtime

from tests.conftest import SimCluster
from tests.e2e.world import Obj, World

# Answers its version and how often it was asked; k32_restored traps where the node's letter is TRAP's.
VERSIONED = """
(module
  (import "env" "k32_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 0) "NODE") (data (i32.const 8) "TRAP") (data (i32.const 32) "{version}")
  (data (i32.const 99) "{name}")
  (global $count (mut i32) (i32.const 48))
  (func $last (param $name i32) (result i32)
    (i32.load8_u (i32.add (i32.const 255)
      (call $env (local.get $name) (i32.const 4) (i32.const 256) (i32.const 64)))))
  (func (export "k32_restored")
    (if (i32.eq (call $last (i32.const 0)) (call $last (i32.const 8))) (then unreachable)))
  (func (export "k32_handle")
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store8 (i32.const 33) (global.get $count))
    (drop (call $write (i32.const 32) (i32.const 2)))))
"""


def module(name: str, version: int) -> str:
    """The text of a module that no other test has, so that no node has it."""
    return VERSIONED.format(name=name, version=version)


def pushed_anew(world: World, name: str) -> None:
    world.push(name, bytes(wasmtime.wat2wasm(module(name, 2))))


def deleted(world: World, name: str) -> None:
    world.json("DELETE", f"/apis/kube32.io/v1/modules/{name}")


def deleted_and_pushed_anew(world: World, name: str) -> None:
    deleted(world, name)
    pushed_anew(world, name)


def traps_on(letter: str) -> list[Obj]:
    """The environment of a pod whose restore fails on the node with that last letter."""
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [node, {"name": "TRAP", "value": letter}]


CHANGES: list[Callable[[World, str], None]] = [pushed_anew, deleted, deleted_and_pushed_anew]


@pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "rolls-back"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.replace("_", "-"))
def test_a_pod_keeps_its_module_and_state_when_its_name_changes_under_it(
    cluster: SimCluster, change: Callable[[World, str], None], arrives: bool
) -> None:
    world = World(cluster)
    name = f"a2-{change.__name__.replace('_', '-')}-{'there' if arrives else 'back'}"
    world.deploy(name, module(name, 1), "node-a", env=traps_on("-" if arrives else "b"))
    digest = world.ready(name)["status"]["containerStatuses"][0]["imageID"]
    assert world.ask(name) == b"11"
    change(world, name)
    status = world.move(name, "node-b")
    pod = world.ready(name)
    if arrives:
        assert status["phase"] == "Completed", status
        assert pod["spec"]["nodeName"] == "node-b"
    else:
        assert status["phase"] == "Failed" and "the pod went back to node-a" in status["message"]
        assert pod["spec"]["nodeName"] == "node-a"
    assert world.ask(name) == b"12"
    assert pod["status"]["containerStatuses"][0]["imageID"] == digest
    world.delete(name)


def test_a_new_pod_of_the_name_runs_what_was_pushed_last(cluster: SimCluster) -> None:
    world = World(cluster)
    for version in (1, 2):
        world.push("a2-news", bytes(wasmtime.wat2wasm(module("a2-news", version))))
        world.pod_of("a2-news", f"a2-news-{version}", "node-a", env=traps_on("-"))
    for version in (1, 2):
        world.ready(f"a2-news-{version}")
        assert world.ask(f"a2-news-{version}") == f"{version}1".encode()
    world.moved("a2-news-1", "node-b")
    assert world.ask("a2-news-1") == b"12"
    world.delete("a2-news-1", "a2-news-2")


def test_a_module_whose_bytes_are_gone_refuses_the_move_before_the_freeze(cluster: SimCluster) -> None:
    world = World(cluster)
    wasm = bytes(wasmtime.wat2wasm(module("a2-lost", 1)))
    digest = world.push("a2-lost", wasm)
    world.pod_of("a2-lost", "a2-lost", "node-a", env=traps_on("-"))
    ready = world.ready("a2-lost")
    assert world.ask("a2-lost") == b"11"
    (cluster.folder / "control" / "modules" / f"{digest}.wasm").unlink()
    status = world.move("a2-lost", "node-b")
    assert status["phase"] == "Failed"
    assert status["blockers"] == [f"module {digest} is no longer stored"]
    # No snapshot was asked for: the pod never stood still.
    assert not {"podTimeMs", "takenAt", "snapshotSha256"} & status.keys()
    assert world.pod("a2-lost")["status"]["conditions"] == ready["status"]["conditions"]
    assert world.ask("a2-lost") == b"12"
    world.push("a2-lost", wasm)
    world.moved("a2-lost", "node-b")
    assert world.ask("a2-lost") == b"13"
    world.delete("a2-lost")
