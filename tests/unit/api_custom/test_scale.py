"""The scale subresource of custom kinds and of Deployments."""

from tests.unit.api_core.conftest import Api
from tests.unit.api_custom.conftest import TABS, crontab

PATH = f"{TABS}/tab/scale"
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


async def test_scale_reads_and_writes_the_fields_that_the_definition_names(tabs: Api) -> None:
    made = await tabs.create(TABS, crontab())
    await tabs.patch(f"{TABS}/tab/status", {"status": {"replicas": 2, "labelSelector": "app=tab"}})
    scale = (await tabs.get(PATH)).json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "app=tab"})
    scale["spec"]["replicas"] = 5
    written = await tabs.send("PUT", PATH, scale)
    assert written.json["spec"] == {"replicas": 5}
    obj = (await tabs.get(f"{TABS}/tab")).json
    assert (obj["spec"]["replicas"], obj["metadata"]["generation"]) == (5, 2)
    stale = await tabs.send("PUT", PATH, scale)
    assert stale.status == 409
    assert (await tabs.patch(PATH, {"spec": {"replicas": 6}})).json["spec"] == {"replicas": 6}
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 7}]
    assert (await tabs.patch(PATH, operations, "json")).json["spec"] == {"replicas": 7}
    assert (await tabs.patch(PATH, {"spec": {"replicas": 1}}, "strategic")).status == 415
    table = (await tabs.get(PATH, headers=TABLE)).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["tab", 7, 2]


async def test_a_scale_that_the_schema_does_not_take_is_refused(tabs: Api) -> None:
    await tabs.create(TABS, crontab())
    above = await tabs.patch(PATH, {"spec": {"replicas": 11}})
    assert above.status == 422 and "should be less than or equal to 10" in above.message
    below = await tabs.patch(PATH, {"spec": {"replicas": -1}})
    assert below.status == 422
    assert below.message == (
        'Scale.autoscaling "tab" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


async def test_an_object_without_replicas_has_no_scale(tabs: Api) -> None:
    await tabs.create(TABS, crontab(spec={}))
    assert (await tabs.get(PATH)).message.endswith('the spec replicas field ".spec.replicas" does not exist')
    assert (await tabs.get(f"{TABS}/nobody/scale")).status == 404


async def test_a_deployment_is_scaled(api: Api) -> None:
    labels = {"app": "web"}
    container = {"name": "web", "image": "wasm://echo"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    await api.create(path, obj)
    scale = (await api.get(f"{path}/web/scale")).json
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "app=web"})
    zero = await api.patch(f"{path}/web/scale", {"spec": {"replicas": 0}}, "strategic")
    assert zero.json["spec"] == {}
    assert (await api.get(f"{path}/web")).json["spec"]["replicas"] == 0
