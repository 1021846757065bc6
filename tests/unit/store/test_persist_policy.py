"""Which changes are journalled, and how soon (decisions, "Departures")."""

from typing import Any

import orjson
import pytest
from tests.unit.store.conftest import World

from kube32.contract import NAMES
from kube32.store.entry import Entry
from kube32.store.persist_policy import Persist, PersistPolicy

POLICY = PersistPolicy()
Obj = dict[str, Any]


def entry(key: str, obj: Obj | None) -> Entry | None:
    return None if obj is None else Entry(key, orjson.dumps(obj), 1)


def of(key: str, old: Obj | None, new: Obj | None, *, agent: bool = True) -> Persist:
    return POLICY.classify(key, entry(key, old), entry(key, new), agent)


def obj(status: Any = None, spec: Any = None, **metadata: Any) -> Obj:
    return {"metadata": {"name": "x", "uid": "1", **metadata}, "spec": spec or {}, "status": status or {}}


POD, NODE, LEASE = "/registry/pods/d/x", "/registry/nodes/x", "/registry/leases/d/x"
CHECKPOINT = "/registry/checkpoints/d/x"
PERIODIC = {NAMES.label_trigger: "periodic"}


@pytest.mark.parametrize("key", [POD, NODE, CHECKPOINT, "/registry/example.com/lamps/d/x"])
def test_what_users_write_is_durable_before_the_answer(key: str) -> None:
    changes = [(None, obj()), (obj(), obj({"phase": "Running"})), (obj(), obj(a="b")), (obj(), None)]
    for old, new in changes:
        assert of(key, old, new, agent=False) == Persist.DURABLE


@pytest.mark.parametrize("agent", [True, False])
@pytest.mark.parametrize("key", [LEASE, "/registry/events/d/x"])
def test_leases_and_events_are_never_journalled(key: str, agent: bool) -> None:
    for old, new in [(None, obj()), (obj(), obj({"a": 1})), (obj(), None)]:
        assert of(key, old, new, agent=agent) == Persist.NEVER


def test_what_controllers_make_change_and_remove_may_wait_a_second() -> None:
    assert of(POD, None, obj()) == Persist.CONTROLLER
    assert of(POD, obj(), obj({"phase": "Running"})) == Persist.CONTROLLER
    assert of(POD, obj(), obj(labels={"a": "b"})) == Persist.CONTROLLER
    assert of(POD, obj(), None) == Persist.CONTROLLER
    assert of("/registry/example.com/lamps/d/x", obj(), obj({"lit": True})) == Persist.CONTROLLER


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (obj(), obj(spec={"nodeName": "board"})),
        (obj(spec={"nodeName": "a"}), obj(spec={"nodeName": "b"})),
        (obj(), obj(uid="2")),
        (obj(), obj(finalizers=["kube32.io/moving"])),
        (obj(finalizers=["kube32.io/moving"]), obj()),
        (obj(), obj(deletionTimestamp="2026-01-01T00:00:00Z")),
        (obj(ownerReferences=[{"uid": "2"}]), obj()),
    ],
    ids=["binding", "elsewhere", "replacement", "finalizer", "no finalizer", "deletion", "orphan"],
)
def test_what_is_not_made_again_is_durable_though_controllers_write_it(old: Obj, new: Obj) -> None:
    assert of(POD, old, new) == Persist.DURABLE


def test_a_checkpoints_phase_is_durable() -> None:
    assert of(CHECKPOINT, obj({"phase": "Saving"}), obj({"phase": "Moving"})) == Persist.DURABLE


def test_periodic_checkpoints_are_never_journalled_since_their_data_is_not() -> None:
    made = obj({"phase": "Saving"}, labels=PERIODIC)
    for old, new in [(None, made), (made, obj({"phase": "Saved"}, labels=PERIODIC))]:
        for agent in (True, False):
            assert of(CHECKPOINT, old, new, agent=agent) == Persist.NEVER


def test_a_checkpoint_that_became_periodic_and_was_deleted_does_not_come_back(world: World) -> None:
    store = world.store
    store.put(CHECKPOINT, obj({"phase": "Saved"}))
    store.put(CHECKPOINT, obj({"phase": "Saved"}, labels=PERIODIC))
    store.delete(CHECKPOINT)
    assert world.boot().get(CHECKPOINT) is None


def test_a_jobs_pod_is_counted_durably_before_its_finalizer_goes(world: World) -> None:
    store, job = world.store, "/registry/jobs/d/x"
    counted = {"uncountedTerminatedPods": {"succeeded": ["1"]}}
    store.put(job, obj())
    store.put(POD, obj(finalizers=[NAMES.finalizer_job]))
    store.put_extended(job, obj(counted), agent=True)
    store.put_extended(POD, obj(), agent=True)
    after = world.boot().get(job)
    assert after is not None
    assert after.obj["status"] == counted


def test_an_owner_is_not_gone_before_its_orphans_are_free(world: World) -> None:
    store, owner = world.store, "/registry/deployments/d/x"
    store.put(owner, obj())
    store.put(POD, obj(ownerReferences=[{"uid": "2"}]))
    store.put_extended(owner, obj({"observedGeneration": 2}), agent=True)
    world.now += 0.1
    store.put_extended(POD, obj(), agent=True)
    store.delete(owner, agent=True)
    # The owner's status is due now, and with it its deletion.
    world.now += 0.71
    world.journal.flush_due()
    booted = world.boot()
    orphan = booted.get(POD)
    assert booted.get(owner) is None
    assert orphan is not None
    assert "ownerReferences" not in orphan.obj["metadata"]


def test_a_node_is_there_durably_before_pods_are_bound_to_it() -> None:
    assert of(NODE, None, obj()) == Persist.DURABLE
    assert of(NODE, obj(), None) == Persist.DURABLE


def ready(status: str, beat: str) -> Obj:
    return {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": beat}]}


def test_a_heartbeat_waits_for_minutes() -> None:
    assert of(NODE, obj(ready("True", "1")), obj(ready("True", "2"))) == Persist.HEARTBEAT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (obj(ready("True", "1")), obj(ready("Unknown", "1"))),
        (obj(ready("True", "1")), obj(ready("True", "2"), labels={"zone": "a"})),
        (obj(ready("True", "1")), obj(ready("True", "2"), annotations={"kube32.io/left": "true"})),
        (obj(ready("True", "1")), obj(ready("True", "2"), spec={"unschedulable": True})),
    ],
    ids=["Ready", "labels", "annotations", "spec"],
)
def test_what_matters_of_a_node_waits_for_a_second_only(old: Obj, new: Obj) -> None:
    assert of(NODE, old, new) == Persist.CONTROLLER
