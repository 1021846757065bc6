"""The contract holds the specification's numbers, names and states, and is one whole."""

import re
import string
from typing import Any

import pytest

from kube32.contract import ABI, EVENTS, K32S, LIMITS, NAMES, PROFILES, RESOURCES, limits_for, resource_of
from kube32.contract.data import load
from kube32.contract.messages import CHECKPOINT_ACTIONS, CHECKPOINT_PHASES

# Specification and decisions: the name, then the value of sim, board-psram and board.
NUMBERS = [
    ("watch_ring_events", 32, 32, 32),
    ("watch_streams", 16, 8, 4),
    ("watch_stream_buffer_events", 16, 16, 16),
    ("watch_bookmark_ms", 30_000, 30_000, 30_000),
    ("store_value_bytes", 65_536, 65_536, 65_536),
    ("journal_revision_block", 10_000, 10_000, 10_000),
    ("journal_controller_flush_ms", 1_000, 1_000, 1_000),
    ("journal_heartbeat_flush_ms", 600_000, 600_000, 600_000),
    ("snapshot_pool_bytes", 16 << 20, 256 << 10, 256 << 10),
    ("snapshot_read_stall_ms", 30_000, 30_000, 30_000),
    ("pod_freeze_timeout_ms", 10_000, 10_000, 10_000),
    ("pod_freeze_timeout_min_ms", 1, 1, 1),
    ("pod_freeze_timeout_max_ms", 60_000, 60_000, 60_000),
    ("pod_call_timeout_ms", 60_000, 60_000, 60_000),
    ("pod_held_events", 8, 8, 8),
    ("pod_retry_after_s", 1, 1, 1),
    ("pod_not_ready_report_ms", 2_000, 2_000, 2_000),
    ("pod_frozen_ready_ms", 500, 500, 500),
    ("move_timeout_ms", 60_000, 60_000, 60_000),
    ("node_drain_ms", 20_000, 20_000, 20_000),
    ("node_memory_pressure_bytes", 24 << 10, 24 << 10, 24 << 10),
    ("pressure_move_ms", 60_000, 60_000, 60_000),
    ("auto_move_cooldown_ms", 600_000, 600_000, 600_000),
    ("placement_speed_ratio", 2, 2, 2),
    ("checkpoint_interval_min_ms", 10_000, 10_000, 10_000),
    ("checkpoint_retention_ms", 3_600_000, 3_600_000, 3_600_000),
    ("k32s_sections", 4_096, 4_096, 4_096),
    ("module_embedded_bytes", 20 << 10, 20 << 10, 20 << 10),
    ("interp_mops_ms", 50, 50, 50),
    ("node_fence_ms", 12_000, 12_000, 12_000),
    ("node_lost_ms", 20_000, 20_000, 20_000),
]


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row[0])
def test_the_numbers_of_the_specification(row: tuple[str, int, int, int]) -> None:
    assert tuple(limits_for(profile)[row[0]] for profile in PROFILES) == row[1:]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_node_fences_itself_before_it_can_be_declared_lost(profile: str) -> None:
    limits = limits_for(profile)
    assert limits.node_lease_renew_ms < limits.node_fence_ms < limits.node_lost_ms
    assert limits.node_lost_ms <= limits.node_lease_duration_s * 1000


@pytest.mark.parametrize("profile", PROFILES)
def test_a_board_never_offers_more_than_the_simulator(profile: str) -> None:
    larger = {n for n, v in limits_for(profile).items() if v > LIMITS[n]}
    # A slower node may wait longer.
    assert all(name.endswith("_ms") for name in larger)


def test_an_unknown_limit_is_a_mistake_and_not_zero() -> None:
    with pytest.raises(AttributeError, match="watch_streems"):
        _ = LIMITS.watch_streems
    with pytest.raises(KeyError):
        LIMITS.replace(watch_streems=1)
    with pytest.raises(ValueError, match="board-psram"):
        limits_for("toaster")


def test_phases_actions_and_events_are_those_of_the_specification() -> None:
    assert CHECKPOINT_PHASES == ("Pending", "Saving", "Saved", "Moving", "Completed", "Failed")
    assert CHECKPOINT_ACTIONS == ("Save", "Move")
    assert {"Checkpointed", "CheckpointFailed", "Moving", "Moved", "MoveFailed", "Restored"} <= set(EVENTS)


def test_every_text_can_be_filled_in() -> None:
    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return [t for part in parts for t in texts(part)]

    for line in texts(load("messages.yaml")):
        for _, field, _, _ in string.Formatter().parse(line):
            assert field is None or re.fullmatch(r"[a-z_]+", field), line


KEYS = {
    "Node": "/registry/nodes/n",
    "Namespace": "/registry/namespaces/n",
    "Pod": "/registry/pods/s/n",
    "ConfigMap": "/registry/configmaps/s/n",
    "Secret": "/registry/secrets/s/n",
    "Event": "/registry/events/s/n",
    "Lease": "/registry/leases/s/n",
}


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_the_keys_of_the_specification(kind: str) -> None:
    assert resource_of(kind).object_key("s", "n") == KEYS[kind]


def test_checkpoints_are_named_as_the_specification_names_them() -> None:
    checkpoint = resource_of("Checkpoint")
    assert (checkpoint.api_version, checkpoint.plural, checkpoint.short_names) == (
        "kube32.io/v1",
        "checkpoints",
        ("ckpt",),
    )
    assert checkpoint.object_path("ns", "x", "data") == "/apis/kube32.io/v1/namespaces/ns/checkpoints/x/data"


def test_no_two_kinds_share_a_name_or_a_key() -> None:
    kept = [r for r in RESOURCES if r.key]
    # Metrics of pods and nodes have the plural of what they measure, in a group of their own.
    names = [n for r in kept for n in {r.plural, r.kind.lower(), *r.short_names}]
    assert len(names) == len(set(names))
    assert len({r.prefix for r in kept}) == len(kept)
    assert len({(r.group, r.plural) for r in RESOURCES}) == len(RESOURCES)


def test_the_k32s_layout_has_the_sizes_of_the_specification() -> None:
    assert (K32S.header.size, K32S.section_header.size, K32S.trailer_bytes) == (68, 6, 32)
    assert (K32S.global_entry.size, K32S.table_header.size) == (13, 8)
    assert K32S.section_types == {"MEMORY": 1, "GLOBALS": 2, "TABLE": 3, "CHANNELS": 4, "EVENTS": 5}
    assert K32S.value_types == {"i32": 0x7F, "i64": 0x7E, "f32": 0x7D, "f64": 0x7C, "funcref": 0x70}


def test_the_abi_names_its_kinds_of_pods() -> None:
    assert ABI.request_exports == ("k32_handle", "k32_tick", "k32_event")
    assert ABI.entry_points == ("_start", "app_main", "main")
    assert len(ABI.functions) == 31
    assert set(ABI.errors.values()) == {-2, -9, -12, -14, -22, -28, -38}


def test_annotations_stand_under_kube32_io_unless_they_are_kubernetes_own() -> None:
    found = {v for k, v in vars(NAMES).items() if k.startswith(("ann_", "label_"))}
    own = {name for name in found if not name.partition("/")[0].endswith("kubernetes.io")}
    assert all(name.startswith("kube32.io/") for name in own)
