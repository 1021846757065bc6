"""The rooms know only whom the architecture lets them know (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "host" / "kube32"
MAY_KNOW = {
    "contract": set(),
    "formats": {"contract"},
    "store": {"contract", "formats"},
    "api": {"contract", "formats", "store"},
    "client": {"contract", "formats"},
    "controllers": {"contract", "formats", "client"},
    "wasm": {"contract", "formats"},
    "kubelet": {"contract", "formats", "client", "wasm"},
    "proxy": {"contract", "formats", "client"},
    "sim": {"contract", "formats", "store", "api", "client", "controllers", "kubelet", "wasm", "proxy"},
    "cli": {"contract", "formats", "store", "client"},
}


def imports(path: Path) -> set[tuple[str, int]]:
    """Every imported module name of a file, imports inside functions too, with its line."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(alias.name, node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide who knows whom"
            found.add((node.module or "", node.lineno))
    return found


def test_every_room_stands_in_the_rule() -> None:
    rooms = {p.name for p in HOST.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(MAY_KNOW)


@pytest.mark.parametrize("room", sorted(MAY_KNOW))
def test_a_room_knows_only_the_rooms_below_it(room: str) -> None:
    faults = []
    files = sorted((HOST / room).rglob("*.py"))
    assert files
    for path in files:
        for module, line in imports(path):
            parts = module.split(".")
            if parts[0] == "kube32_build":
                faults.append(f"{path}:{line}: {module}")
            if (
                parts[0] == "kube32"
                and len(parts) > 1
                and parts[1] != room
                and parts[1] not in MAY_KNOW[room]
            ):
                faults.append(f"{path}:{line}: {room} knows {module}")
    assert not faults, "\n".join(faults)


def test_kube32_build_knows_the_contract_alone() -> None:
    for path in (ROOT / "kube32_build").rglob("*.py"):
        for module, line in imports(path):
            if module.startswith("kube32."):
                assert module.split(".")[1] == "contract", f"{path}:{line}: {module}"
