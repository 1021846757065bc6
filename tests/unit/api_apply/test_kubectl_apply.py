"""Server-side apply with the real kubectl, over TLS."""

from collections.abc import Awaitable, Callable

import yaml
from tests.unit.api_core.test_kubectl import kubectl as kubectl

Kubectl = Callable[..., Awaitable[str]]
APPLY = ("apply", "--server-side", "-f", "-")
MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: x}}
data: {k: "VALUE", l: "1"}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "wasm://echo", ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
"""


async def test_apply_creates_leaves_and_changes(kubectl: Kubectl) -> None:
    assert "configmap/a serverside-applied" in await kubectl(*APPLY, stdin=MANIFEST)
    before = await kubectl("get", "cm/a", "-o", "jsonpath={.metadata.resourceVersion}")
    await kubectl(*APPLY, stdin=MANIFEST)
    assert await kubectl("get", "cm/a", "-o", "jsonpath={.metadata.resourceVersion}") == before
    await kubectl(*APPLY, stdin=MANIFEST.replace(', l: "1"', ""))
    assert await kubectl("get", "cm/a", "-o", "jsonpath={.data}") == '{"k":"VALUE"}'


async def test_a_conflict_is_explained_and_can_be_forced(kubectl: Kubectl) -> None:
    await kubectl(*APPLY, stdin=MANIFEST)
    other = MANIFEST.replace("VALUE", "2")
    said = await kubectl(*APPLY, "--field-manager=other", stdin=other, code=1)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.k' in said
    assert "--force-conflicts" in said
    await kubectl(*APPLY, "--field-manager=other", "--force-conflicts", stdin=other)
    assert await kubectl("get", "cm/a", "-o", "jsonpath={.data.k}") == "2"


async def test_managed_fields_are_hidden_unless_they_are_asked_for(kubectl: Kubectl) -> None:
    await kubectl(*APPLY, stdin=MANIFEST)
    assert "managedFields" not in await kubectl("get", "cm/a", "-o", "yaml")
    shown = yaml.safe_load(await kubectl("get", "cm/a", "-o", "yaml", "--show-managed-fields"))
    (entry,) = shown["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")


async def test_client_side_apply_is_taken_over_by_server_side_apply(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    await kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "serverside-applied" in await kubectl(*APPLY, stdin=MANIFEST.replace("VALUE", "2"))
    assert "serverside-applied" in await kubectl(
        *APPLY, stdin=DEPLOYMENT.replace("replicas: 2", "replicas: 3")
    )
    for kind in ("cm/a", "deploy/web"):
        shown = yaml.safe_load(await kubectl("get", kind, "-o", "yaml", "--show-managed-fields"))
        managers = [(e["manager"], e["operation"]) for e in shown["metadata"]["managedFields"]]
        # The second one is kubectl's own, for its annotation.
        assert managers == [("kubectl", "Apply"), ("kubectl-last-applied", "Apply")]
    await kubectl(*APPLY, stdin=MANIFEST.replace(', l: "1"', ""))
    assert await kubectl("get", "cm/a", "-o", "jsonpath={.data}") == '{"k":"VALUE"}'
    assert "configured" in await kubectl("apply", "-f", "-", stdin=MANIFEST.replace("VALUE", "3"))


async def test_server_side_apply_of_what_client_side_apply_made_changes_nothing(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=MANIFEST)
    await kubectl("diff", "--server-side", "-f", "-", stdin=MANIFEST)
    await kubectl(*APPLY, stdin=MANIFEST)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=MANIFEST)


async def test_diff_dry_run_edit_and_scale_go_with_it(kubectl: Kubectl) -> None:
    await kubectl(*APPLY, stdin=DEPLOYMENT)
    await kubectl("diff", "--server-side", "-f", "-", stdin=DEPLOYMENT)
    changed = DEPLOYMENT.replace("replicas: 2", "replicas: 3")
    said = await kubectl("diff", "--server-side", "-f", "-", stdin=changed, code=1)
    assert "-  replicas: 2" in said and "+  replicas: 3" in said
    assert "(server dry run)" in await kubectl(*APPLY, "--dry-run=server", stdin=changed)
    assert await kubectl("get", "deploy/web", "-o", "jsonpath={.spec.replicas}") == "2"
    await kubectl("edit", "deploy/web", editor="sed -i s#wasm://echo#wasm://other#")
    refused = await kubectl(*APPLY, stdin=DEPLOYMENT, code=1)
    assert (
        'conflict with "kubectl-edit" using apps/v1: .spec.template.spec.containers[name="main"].image'
        in refused
    )


async def test_faults_are_named(kubectl: Kubectl) -> None:
    unknown = await kubectl(*APPLY, "--validate=false", stdin=MANIFEST.replace("\ndata:", "\ndatta:"), code=1)
    assert ".datta: field not declared in schema" in unknown
