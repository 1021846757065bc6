"""Everyday kubectl, command by command (commands.yaml); docs/kubectl.md is that list, for readers.

`KUBE32_WRITE_DOCS=1 pytest tests/conformance/test_commands.py` writes the page after a run without a fault.
"""

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.conftest import Namespace
from tests.conftest import ROOT

HERE = Path(__file__).parent
AREAS: list[dict[str, Any]] = yaml.safe_load((HERE / "commands.yaml").read_text())
PAGE = ROOT / "docs" / "kubectl.md"
PATIENCE_S = 60
EDITOR = """#!/bin/sh
sed -i '{script}' "$1"
"""


class Runner:
    """Runs commands as a shell does, with the placeholders filled in."""

    def __init__(self, space: Namespace, port: int, folder: Path) -> None:
        self.space = space
        self.folder = folder
        self.values = {
            "node": space.node,
            "namespace": space.name,
            "port": str(port),
            "manifests": str(HERE / "manifests"),
        }

    def fill(self, text: str) -> str:
        """`text` with the placeholders' values; other braces stay."""
        return re.sub(r"\{(node|namespace|port|manifests)\}", lambda m: self.values[m[1]], text)

    def run(self, command: dict[str, Any]) -> None:
        """One command; it must say what the list says."""
        wanted = command["refused"] if "refused" in command else command["says"]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, said = self._once(command)
            good = (code != 0) == ("refused" in command) and self._matches(wanted, said)
            if good or not (command.get("again") and time.monotonic() < deadline):
                break
            time.sleep(0.5)
        shown = f"{self.fill(command['run'])}\nexit code {code}\n{said}"
        assert (code != 0) == ("refused" in command), shown
        assert self._matches(wanted, said), f"{shown}\nis not: {wanted}"

    def _matches(self, wanted: str, said: str) -> bool:
        return re.search(self.fill(wanted), said.strip()) is not None

    def _once(self, command: dict[str, Any]) -> tuple[int, str]:
        environment = dict(self.space.environment)
        if "edit" in command:
            editor = self.folder / "editor"
            editor.write_text(EDITOR.format(script=command["edit"]))
            editor.chmod(0o755)
            environment["KUBE_EDITOR"] = str(editor)
        words = shlex.split(self.fill(command["run"]))
        if "meanwhile" in command:
            return self._beside(words, shlex.split(self.fill(command["meanwhile"])), environment)
        done = subprocess.run(
            words,
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=2 * PATIENCE_S,
        )
        return done.returncode, done.stdout

    def _beside(self, words: list[str], other: list[str], environment: dict[str, str]) -> tuple[int, str]:
        """What `other` prints while the command runs."""
        with (self.folder / "beside.log").open("w+b") as log:
            process = subprocess.Popen(words, env=environment, cwd=self.folder, stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + PATIENCE_S
                while True:
                    done = subprocess.run(other, capture_output=True, text=True, timeout=PATIENCE_S)
                    if done.returncode == 0 or time.monotonic() > deadline or process.poll() is not None:
                        break
                    time.sleep(0.2)
            finally:
                process.terminate()
                process.wait(PATIENCE_S)
            log.seek(0)
            return done.returncode, done.stdout + done.stderr + log.read().decode()


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area["area"].lower().replace(" ", "-"))
def test_everyday_commands(area: dict[str, Any], space: Namespace, free_port: int, tmp_path: Path) -> None:
    if "needs" in area:
        space.need(area["needs"])
    runner = Runner(space, free_port, tmp_path)
    for command in area["commands"]:
        if "needs" not in command or space.offers(command["needs"]):
            runner.run(command)


def page() -> str:
    """docs/kubectl.md."""
    total = sum(len(a["commands"]) for a in AREAS)
    refused = sum("refused" in c and c.get("why") != "" for a in AREAS for c in a["commands"])
    lines = [
        "# kubectl on Kube32",
        "",
        "Made from `tests/conformance/commands.yaml`; the test that runs these commands in this order, against any",
        "cluster that `KUBE32_CONFORMANCE_KUBECONFIG` names, checks that this page is true.",
        f"{total} commands, {total - refused} work, {refused} are answered with a reason why not.",
        "`NODE`, `NAMESPACE`, `PORT` and `MANIFESTS` stand for a node, the namespace, a free port of the machine and",
        "`tests/conformance/manifests`.",
    ]
    for area in AREAS:
        lines += ["", f"## {area['area']}", ""]
        if "needs" in area:
            lines += [f"Only where `kubectl api-resources` lists `{area['needs'].partition('.')[0]}`.", ""]
        lines += ["| command | |", "|---|---|"]
        for command in area["commands"]:
            run = re.sub(r"\{(\w+)\}", lambda m: m[1].upper(), command["run"]).replace("|", "\\|")
            note = f"refused: {command['why']}" if "refused" in command else "works"
            if "needs" in command:
                note += f" (where `{command['needs']}` is offered)"
            lines.append(f"| `{run}` | {note} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_what_was_run(request: pytest.FixtureRequest) -> None:
    if os.environ.get("KUBE32_WRITE_DOCS") and not request.session.testsfailed:
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/kubectl.md: run with KUBE32_WRITE_DOCS=1"


def test_there_are_at_least_sixty_commands() -> None:
    assert len({c["run"] for a in AREAS for c in a["commands"]}) >= 60
