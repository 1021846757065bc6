"""kube32-cli journal, on the images of a control plane."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import BIN, SimCluster

IMAGE = "kube32/store/journal.img"


@pytest.fixture
def image(own_cluster: SimCluster) -> Path:
    process = own_cluster.control_plane("control", "--enable-flash")
    own_cluster.kubectl("create", "configmap", "a", "--from-literal=k=v")
    own_cluster.kubectl("create", "secret", "generic", "s", "--from-literal=k=hidden")
    own_cluster.kubectl("create", "configmap", "gone")
    own_cluster.kubectl("delete", "configmap", "gone")
    process.stop(signal.SIGKILL)
    return own_cluster.folder / "control" / IMAGE


def test_dump_prints_records_as_json_lines(own_cluster: SimCluster, image: Path) -> None:
    lines = [json.loads(line) for line in own_cluster.cli("journal", "dump", str(image)).splitlines()]
    assert {line["type"] for line in lines} == {"Put", "Delete", "RevisionMark"}
    assert all(line["slot"] == line["sector"] % 1024 for line in lines)
    by_key = {line.get("key"): line for line in lines}
    config = by_key["/registry/configmaps/default/a"]
    assert (config["state"], config["value"]["data"]) == ("live", {"k": "v"})
    assert config["revision"] == int(config["value"]["metadata"]["resourceVersion"])
    assert by_key["/registry/configmaps/default/gone"]["type"] == "Delete"
    secret = "/registry/secrets/default/s"
    assert by_key[secret]["value"].endswith("bytes, shown with --show-secrets>")
    shown = own_cluster.cli("journal", "dump", "--live", "--show-secrets", str(image)).splitlines()
    assert {json.loads(line)["state"] for line in shown} == {"live"}
    assert any("aGlkZGVu" in line for line in shown)
    assert all(
        "value" not in json.loads(line)
        for line in own_cluster.cli("journal", "dump", "--keys", str(image)).splitlines()
    )


def test_check_tells_the_place_of_the_first_fault(own_cluster: SimCluster, image: Path) -> None:
    assert own_cluster.cli("journal", "check", str(image)).strip().endswith(", no faults")
    data = bytearray(image.read_bytes())
    at = data.index(b'"k":"v"')
    data[at] ^= 1
    image.write_bytes(data)
    output = own_cluster.cli("journal", "check", str(image), code=1)
    first = output.splitlines()[0]
    assert first.startswith(f"{image}: slot {at // 4096} offset ")
    assert first.endswith("a record is damaged, it seems of /registry/configmaps/default/a")
    for verb in ("dump", "stats"):
        assert f"slot {at // 4096} offset " in own_cluster.cli("journal", verb, str(image), code=1)


def test_stats_say_how_full_and_how_worn(own_cluster: SimCluster, image: Path) -> None:
    facts = json.loads(own_cluster.cli("journal", "stats", "-o", "json", str(image)))
    assert facts["resources"]["secrets"] == 1
    assert facts["liveKeys"] == sum(facts["resources"].values())
    assert (facts["sectors"], facts["capacityBytes"], facts["faults"]) == (1024, 1945600, 0)
    assert facts["erasesPerSector"] == {"least": 0, "most": 1}
    assert facts["projectedLifeYears"] is None
    text = own_cluster.cli("journal", "stats", str(image))
    assert f"{facts['liveKeys']} objects, {facts['liveBytes']} of 1945600 bytes" in text


def test_salvage_saves_what_a_boot_refuses(own_cluster: SimCluster, image: Path, tmp_path: Path) -> None:
    """A file that was cut off: no boot takes it, and most of it can still be read."""
    cut = tmp_path / "cut.img"
    cut.write_bytes(image.read_bytes()[: 64 * 4096 + 100])
    before = cut.read_bytes()
    new = tmp_path / "new.img"
    assert "objects of" in own_cluster.cli("journal", "salvage", str(cut), "--to", str(new))
    assert "is there already" in own_cluster.cli("journal", "salvage", str(cut), "--to", str(new), code=1)
    assert cut.read_bytes() == before
    image.write_bytes(new.read_bytes())
    own_cluster.control_plane("control", "--enable-flash")
    assert own_cluster.get("configmap/a")["data"] == {"k": "v"}
    assert own_cluster.kubectl("get", "configmap", "gone", "--ignore-not-found") == ""


def test_what_is_no_journal_is_one_line(own_cluster: SimCluster, tmp_path: Path) -> None:
    own_cluster.folder.joinpath("control").mkdir()
    cases = {
        "empty": b"",
        "odd": b"x" * 70_000,
        "zeros": b"\x00" * 65536,
        "noise": bytes(range(256)) * 256,
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "erased").write_bytes(b"\xff" * 65536)
    assert "erased" in own_cluster.cli("journal", "check", str(tmp_path / "erased"))
    for name in [*cases, "missing", "."]:
        for verb in ("dump", "check", "stats"):
            output = own_cluster.cli("journal", verb, str(tmp_path / name), code=1)
            assert len(output.strip().splitlines()) == 1
            assert output.startswith("kube32-cli: ")


def test_a_reader_that_goes_away_is_no_fault(image: Path) -> None:
    command = f"{BIN / 'kube32-cli'} journal dump {image} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
