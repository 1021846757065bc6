"""What the server gives new Jobs, Ingresses and Pods because of their uid or of other objects."""

from typing import Any

JOBS = "/apis/batch/v1/namespaces/default/jobs"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
PODS = "/api/v1/namespaces/default/pods"


def job(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template: dict[str, Any] = {
        "spec": {"containers": [{"name": "c", "image": "wasm://hello"}], "restartPolicy": "Never"}
    }
    if labels:
        template["metadata"] = {"labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": template, **spec},
    }


def ingress(name: str, **more: Any) -> dict[str, Any]:
    spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}, **more.pop("spec", {})}
    metadata = {"name": name, **more}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


async def test_a_job_gets_the_selector_of_its_own_pods(api: Any) -> None:
    made = await api.create(JOBS, job())
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "once",
        "controller-uid": uid,
        "job-name": "once",
    }
    assert made["spec"]["template"]["metadata"]["labels"] == labels
    assert made["metadata"]["labels"] == labels


async def test_labels_of_the_template_stay_beside_the_generated_ones(api: Any) -> None:
    made = await api.create(JOBS, job({"app": "x"}))
    assert made["spec"]["template"]["metadata"]["labels"]["app"] == "x"
    assert len(made["spec"]["template"]["metadata"]["labels"]) == 5


async def test_a_selector_of_ones_own_needs_manual_selector(api: Any) -> None:
    own = {"matchLabels": {"app": "x"}}
    made = await api.create(JOBS, job({"app": "x"}, selector=own, manualSelector=True))
    assert made["spec"]["selector"] == own
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "x"}
    body = job({"batch.kubernetes.io/controller-uid": "another"})
    answer = await api.send("POST", JOBS, {**body, "metadata": {"name": "b"}})
    assert answer.status == 422
    assert (
        "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Invalid value" in answer.message
    )


async def test_a_job_can_be_changed_where_kubernetes_lets_it(api: Any) -> None:
    made = await api.create(JOBS, job())
    for patch, status in (
        ({"spec": {"suspend": True}}, 200),
        ({"spec": {"parallelism": 3}}, 200),
        ({"spec": {"completions": 3}}, 422),
        ({"metadata": {"labels": {"a": "b"}}}, 200),
    ):
        assert (await api.patch(f"{JOBS}/once", patch)).status == status
    found = (await api.get(f"{JOBS}/once")).json
    assert found["spec"]["selector"] == made["spec"]["selector"]


async def test_an_ingress_without_a_class_gets_the_default_one(api: Any) -> None:
    made = await api.create(INGRESSES, ingress("a"))
    assert made["spec"]["ingressClassName"] == "kube32"
    other = await api.create(INGRESSES, ingress("b", spec={"ingressClassName": "other"}))
    assert other["spec"]["ingressClassName"] == "other"
    older = await api.create(INGRESSES, ingress("c", annotations={"kubernetes.io/ingress.class": "x"}))
    assert "ingressClassName" not in older["spec"]


async def test_without_a_default_class_an_ingress_stays_without(api: Any) -> None:
    await api.patch(
        f"{CLASSES}/kube32",
        {"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "false"}}},
    )
    assert "ingressClassName" not in (await api.create(INGRESSES, ingress("a")))["spec"]


async def test_a_pod_of_an_account_that_is_not_there_is_refused(api: Any, objects: Any) -> None:
    answer = await api.send("POST", PODS, objects.pod("p", spec={"serviceAccountName": "robot"}))
    assert (answer.status, answer.message) == (
        403,
        'pods "p" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found',
    )
    await api.create(
        "/api/v1/namespaces/default/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}},
    )
    made = await api.create(PODS, objects.pod("p", spec={"serviceAccountName": "robot"}))
    assert made["spec"]["serviceAccount"] == "robot"


async def test_each_container_is_pinned_to_its_own_module(api: Any, objects: Any, monkeypatch: Any) -> None:
    digests = {"echo": "1" * 64, "other": "2" * 64}
    monkeypatch.setattr(api.server.modules, "digest_of", digests.get)
    containers = [
        {"name": name, "image": image}
        for name, image in (("main", "wasm://echo"), ("same", "wasm://echo"), ("two", "wasm://other"))
    ]
    init = [{"name": "first", "image": "wasm://absent"}]
    made = await api.create(PODS, objects.pod("p", spec={"containers": containers, "initContainers": init}))
    assert made["metadata"]["annotations"] == {
        "kube32.io/wasm-sha256": "1" * 64,
        "sha256.kube32.io/two": "2" * 64,
    }
    answer = await api.patch(f"{PODS}/p", {"metadata": {"annotations": {"sha256.kube32.io/two": None}}})
    assert answer.status == 422 and "the module of a pod is fixed at creation" in answer.message
