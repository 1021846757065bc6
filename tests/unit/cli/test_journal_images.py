"""kube32-cli journal on images that FlashLog wrote: whole, cut, moved, damaged."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from tests.conftest import BIN
from typer.testing import CliRunner

from kube32.cli import journal
from kube32.cli.errors import CliError
from kube32.cli.main import app
from kube32.contract import limits_for
from kube32.formats.k32l import Geometry, RecordType, resolve, scan
from kube32.store.flash import FileFlash
from kube32.store.flash_log import FlashLog, Write
from kube32.store.journal import open_log

BOARD = limits_for("board")
SECTOR = 4096
SECTORS = BOARD.journal_bytes // SECTOR
Objects = dict[bytes, bytes]


def write(path: Path, writes: list[Write]) -> None:
    """A board's journal with these writes, whose revisions count from its first one."""
    flash = FileFlash.open(path, Geometry(SECTORS))
    log = open_log(flash, BOARD)
    for begin in range(0, len(writes), 20):
        batch = {
            w.key: Write(w.key, w.value, log.next_revision + w.revision) for w in writes[begin : begin + 20]
        }
        highest = max(w.revision for w in batch.values())
        log.commit(list(batch.values()), log.next_revision + highest + BOARD.journal_revision_block)
    flash.close()


def live(path: Path, sectors: int = SECTORS) -> Objects:
    found = scan(path.read_bytes(), Geometry(sectors))
    return {key: found.value(record) for key, record in resolve(found).live.items()}


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that has gone around its ring more than once."""
    path = tmp_path_factory.mktemp("worn") / "journal.img"
    pick = random.Random(4)
    writes = []
    for revision in range(4000):
        key = f"/registry/configmaps/default/c{pick.randrange(60)}".encode()
        value = json.dumps(
            {"kind": "ConfigMap", "data": {"k": "v" * pick.randrange(900), "n": str(revision)}}
        )
        writes.append(Write(key, None if pick.random() < 0.1 else value.encode(), revision))
    write(path, writes)
    assert scan(path.read_bytes(), Geometry(SECTORS)).head > SECTORS
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    """kube32-cli journal in this process: exit code and all output. Any traceback fails the test."""
    result = CliRunner().invoke(app, ["journal", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.output


def boot(path: Path, profile: str) -> tuple[Objects, int]:
    """What a control plane would find, and its first revision."""
    limits = limits_for(profile)
    flash = FileFlash.open(path, Geometry(limits.journal_bytes // SECTOR))
    try:
        log = open_log(flash, limits)
        assert log.report.faults == []
        return {w.key: w.value or b"" for w in log.take_recovered()}, log.next_revision
    finally:
        flash.close()


@pytest.mark.parametrize("name", ["journal.img", "new.img.new"])
def test_salvage_leaves_the_file_alone_whatever_its_name(worn: Path, tmp_path: Path, name: str) -> None:
    file, new = tmp_path / name, tmp_path / "new.img"
    file.write_bytes(worn.read_bytes())
    assert run("salvage", file, "--to", new)[0] == 0
    assert file.read_bytes() == worn.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "new.img"])
    assert live(new) == live(worn)


def test_a_salvaged_journal_boots_with_a_higher_revision(worn: Path, tmp_path: Path) -> None:
    says = resolve(scan(worn.read_bytes(), Geometry(SECTORS)))
    assert journal.salvage(worn, tmp_path / "board.img") == (len(says.live), "board")
    assert journal.salvage(worn, tmp_path / "sim.img", "sim") == (len(says.live), "sim")
    for profile in ("board", "sim"):
        objects, revision = boot(tmp_path / f"{profile}.img", profile)
        assert objects == live(worn)
        assert revision > says.next_revision


def sectors_of(data: bytes) -> list[bytes]:
    return [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]


@pytest.mark.parametrize("moved", [1, 3, 100])
def test_salvage_reads_sectors_in_other_slots_than_theirs(worn: Path, tmp_path: Path, moved: int) -> None:
    """A part of a flash that was read from a wrong offset."""
    file, new = tmp_path / "moved.img", tmp_path / "new.img"
    sectors = sectors_of(worn.read_bytes())
    file.write_bytes(b"".join(sectors[moved:] + sectors[:moved]))
    assert run("salvage", file, "--to", new)[0] == 0
    assert live(new) == live(worn)


def test_salvage_reads_sectors_in_any_order(worn: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "mixed.img", tmp_path / "new.img"
    sectors = sectors_of(worn.read_bytes())
    random.Random(1).shuffle(sectors)
    file.write_bytes(b"".join(sectors))
    assert run("salvage", file, "--to", new)[0] == 0
    assert live(new) == live(worn)


@pytest.mark.parametrize("sectors", [4, 65, 130, SECTORS - 1])
def test_a_cut_file_gives_a_journal_that_the_simulator_takes(
    worn: Path, tmp_path: Path, sectors: int
) -> None:
    """The newest of what is left of each key is saved."""
    file, new = tmp_path / "cut.img", tmp_path / "new.img"
    file.write_bytes(worn.read_bytes()[: sectors * SECTOR])
    whole = scan(worn.read_bytes(), Geometry(SECTORS))
    left = {
        record.key: record
        for record in whole.records
        if record.key
        and all(
            number % SECTORS < sectors
            for number in range(record.address // SECTOR, (record.end - 1) // SECTOR + 1)
        )
    }
    expected = {key: whole.value(r) for key, r in left.items() if r.type == RecordType.PUT}
    assert expected
    assert "for --profile sim" in run("salvage", file, "--to", new)[1]
    assert boot(new, "sim")[0] == expected


def test_a_sector_without_a_header_is_known_by_its_neighbours(worn: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "headless.img", tmp_path / "new.img"
    sectors = sectors_of(worn.read_bytes())
    for slot in (7, 8, 100):
        sectors[slot] = bytes(16) + sectors[slot][16:]
    file.write_bytes(b"".join(sectors[5:] + sectors[:5]))
    assert run("salvage", file, "--to", new)[0] == 0
    assert live(new) == live(worn)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_cost_only_the_records_that_had_them(worn: Path, tmp_path: Path, seed: int) -> None:
    """No verb ever fails in another way than with a sentence."""
    pick = random.Random(seed)
    data = bytearray(worn.read_bytes())
    for _ in range(pick.choice([1, 10, 2000])):
        data[pick.randrange(len(data))] ^= pick.randrange(1, 256)
    file, new = tmp_path / "rotten.img", tmp_path / "new.img"
    file.write_bytes(data)
    for verb in ("dump", "check", "stats"):
        code, output = run(verb, file)
        assert code in (0, 1)
        assert output
    assert run("salvage", file, "--to", new)[0] == 0
    before, image = live(worn), scan(worn.read_bytes(), Geometry(SECTORS))
    ever: dict[bytes, set[bytes]] = {}
    for record in image.records:
        ever.setdefault(record.key, set()).add(image.value(record))
    after, _ = boot(new, "board")
    assert all(value in ever[key] for key, value in after.items())
    reading = scan(bytes(data), Geometry(SECTORS))
    intact = {(r.key, r.revision) for r in reading.records}
    for key, record in resolve(image).live.items():
        if (key, record.revision) in intact:
            assert after[key] == before[key]


@pytest.mark.parametrize("verb", ["dump", "check", "stats"])
def test_four_sectors_are_enough_to_be_read(worn: Path, tmp_path: Path, verb: str) -> None:
    file = tmp_path / "small.img"
    sectors = sectors_of(worn.read_bytes())
    # Slots of a ring of four: numbers that four divides.
    head = scan(worn.read_bytes(), Geometry(SECTORS)).head
    begin = head % SECTORS // 4 * 4 - 8
    file.write_bytes(b"".join(sectors[begin : begin + 4]))
    code, output = run(verb, file)
    assert code in (0, 1)
    assert "kube32-cli: " not in output or "slot " in output
    file.write_bytes(b"".join(sectors[begin : begin + 3]))
    assert run(verb, file) == (
        1,
        f"kube32-cli: {file} has 12288 bytes: a journal has a whole number of sectors of 4096 bytes, at least 4\n",
    )


def test_salvage_refuses_what_would_cost_something(worn: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        code, output = run("salvage", worn, "--to", tmp_path / name)
        assert (code, output) == (
            1,
            f"kube32-cli: {tmp_path / name} is there already; name a file that is not\n",
        )
    long = "n" * 300
    for name, cause in ((long, "File name too long"), ("no/such.img", "No such file or directory")):
        code, output = run("salvage", worn, "--to", tmp_path / name)
        assert (code, output) == (1, f"kube32-cli: {tmp_path / name}: {cause}\n")
    code, output = run("salvage", worn, "--to", tmp_path / "new", "--profile", "x")
    assert (code, output) == (2, 'kube32-cli: --profile "x": the profiles are sim, board-psram, board\n')
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(1 << 20))
    with pytest.raises(CliError, match="no record of an object can be read; nothing was written"):
        journal.salvage(tmp_path / "noise", tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "noise", "there"]
    assert (tmp_path / "there").read_text() == "mine"


def test_salvage_leaves_out_what_no_store_can_have_written(tmp_path: Path) -> None:
    file, new = tmp_path / "odd.img", tmp_path / "new.img"
    good = Write(b"/registry/configmaps/default/a", b'{"kind":"ConfigMap"}', 1)
    older = Write(b"/registry/configmaps/default/b", b'{"kind":"ConfigMap"}', 0)
    flash = FileFlash.open(file, Geometry(SECTORS))
    log = FlashLog.open(flash, live_bytes=100_000, record_bytes=70_000, revision_block=10_000)
    log.commit([good, older, Write(b"/registry/\xff", b"{}", 2)])
    log.commit([Write(older.key, b"no object", 3)])
    flash.close()
    assert run("salvage", file, "--to", new)[0] == 0
    assert live(new) == {good.key: good.value, older.key: older.value}


def test_values_are_printed_as_they_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "journal.img"
    deep = b'{"a":' * 1000 + b"1" + b"}" * 1000
    exact = b'{"n":123456789012345678901234567890,"x":1.10}'
    write(
        file,
        [
            Write(b"/registry/a/deep", deep, 0),
            Write(b"/registry/a/exact", exact, 1),
            Write(b"/registry/a/lines", b'{\r\n"a": 1\n}', 2),
            Write(b"/registry/a/bytes", b"\x00\xff", 3),
        ],
    )
    code, output = run("dump", "--live", file)
    assert code == 0
    lines = {line.split('"key":"')[1].split('"')[0]: line for line in output.splitlines()}
    assert lines["/registry/a/deep"].endswith(f'"value":{deep.decode()}}}')
    assert lines["/registry/a/exact"].endswith(f'"value":{exact.decode()}}}')
    assert json.loads(lines["/registry/a/lines"])["value"] == {"a": 1}
    assert json.loads(lines["/registry/a/bytes"])["value"] == {"base64": "AP8="}


def test_a_key_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "journal.img"
    write(file, [Write(b"/registry/\x1b[2Ja/\xc2\x9bx", b"no object", 0)])
    for verb in ("check", "stats", "dump"):
        assert "\x1b" not in run(verb, file)[1]
    assert "the record of /registry/\\x1b[2Ja/\\x9bx holds no object" in run("check", file)[1]


@pytest.mark.parametrize("verb", ["dump", "check", "stats", "stats -o json"])
def test_output_that_nobody_takes(worn: Path, verb: str) -> None:
    """A reader that has gone is no fault, a full disk is one; neither ends in a traceback."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [str(BIN / "kube32-cli"), "journal", *verb.split(), str(worn)]

    def outcome(stdout: int) -> tuple[int, str]:
        done = subprocess.run(
            command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
        )
        return done.returncode, done.stderr

    read, gone = os.pipe()
    os.close(read)
    assert outcome(gone) == (0, "")
    os.close(gone)
    with Path("/dev/full").open("wb") as full:
        assert outcome(full.fileno()) == (
            1,
            "kube32-cli: the output cannot be written: No space left on device\n",
        )
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
