"""CronTab of Kubernetes' documentation, defined and used with kubectl."""

from pathlib import Path

from tests.conftest import SimCluster

# https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: crontabs.stable.example.com
spec:
  group: stable.example.com
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                cronSpec:
                  type: string
                  description: When it runs.
                image:
                  type: string
                replicas:
                  type: integer
            status:
              type: object
              properties:
                replicas:
                  type: integer
                labelSelector:
                  type: string
      subresources:
        status: {}
        scale:
          specReplicasPath: .spec.replicas
          statusReplicasPath: .status.replicas
          labelSelectorPath: .status.labelSelector
      additionalPrinterColumns:
      - name: Spec
        type: string
        description: The cron spec defining the interval a CronJob is run
        jsonPath: .spec.cronSpec
      - name: Replicas
        type: integer
        description: The number of jobs launched by the CronJob
        jsonPath: .spec.replicas
      - name: Age
        type: date
        jsonPath: .metadata.creationTimestamp
  scope: Namespaced
  names:
    plural: crontabs
    singular: crontab
    kind: CronTab
    shortNames:
    - ct
    categories:
    - all
"""
OBJECT = """
apiVersion: "stable.example.com/v1"
kind: CronTab
metadata:
  name: my-new-cron-object
spec:
  cronSpec: "* * * * */5"
  image: my-awesome-cron-image
  replicas: 3
"""
NAME = "my-new-cron-object"


def test_a_custom_kind_is_used_like_any_other(cluster: SimCluster, tmp_path: Path) -> None:
    kubectl = cluster.kubectl
    definition, obj = tmp_path / "definition.yaml", tmp_path / "object.yaml"
    definition.write_text(DEFINITION)
    obj.write_text(OBJECT)
    assert "created" in kubectl("apply", "-f", str(definition))
    kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=10s")
    assert "crontabs" in kubectl("api-resources", "--api-group=stable.example.com")
    assert "created" in kubectl("apply", "-f", str(obj))
    assert "unchanged" in kubectl("apply", "-f", str(obj))
    heading, row = kubectl("get", "ct").splitlines()
    assert heading.split() == ["NAME", "SPEC", "REPLICAS", "AGE"]
    assert row.split()[:7] == [NAME, "*", "*", "*", "*", "*/5", "3"]
    assert f"crontab.stable.example.com/{NAME}" in kubectl("get", "all", "-o", "name")
    explained = kubectl("explain", "crontab.spec.cronSpec")
    assert "When it runs." in explained and "<string>" in explained
    assert "scaled" in kubectl("scale", "--replicas=5", f"crontabs/{NAME}")
    assert cluster.get("crontab", NAME)["spec"]["replicas"] == 5
    kubectl("patch", "ct", NAME, "--type=merge", "-p", '{"spec":{"image":"other"}}')
    kubectl("patch", "ct", NAME, "--subresource=status", "--type=merge", "-p", '{"status":{"replicas":5}}')
    kubectl("wait", "ct", NAME, "--for=jsonpath={.status.replicas}=5", "--timeout=10s")
    assert "cronSpec" not in kubectl("describe", "ct", NAME).lower()  # kubectl writes "Cron Spec"
    refused = kubectl("create", "-f", "-", code=1, stdin=OBJECT.replace("image:", "pixture:"))
    assert 'unknown field "spec.pixture"' in refused
    wrong = OBJECT.replace("replicas: 3", "replicas: three").replace(NAME, "wrong")
    assert 'must be of type integer: "string"' in kubectl("create", "-f", "-", code=1, stdin=wrong)
    assert "deleted" in kubectl("delete", "ct", NAME)
    kubectl("apply", "-f", str(obj))
    assert "deleted" in kubectl("delete", "crd", "crontabs.stable.example.com", "--timeout=20s")
    assert "the server could not find the requested resource" in kubectl("get", "crontabs", code=1)


def test_apply_on_the_server_knows_the_fields_of_a_custom_kind(cluster: SimCluster, tmp_path: Path) -> None:
    kubectl = cluster.kubectl
    definition = tmp_path / "definition.yaml"
    definition.write_text(DEFINITION.replace("stable.example.com", "applied.example.com"))
    obj = OBJECT.replace("stable.example.com", "applied.example.com")
    kubectl("apply", "--server-side", "-f", str(definition))
    kubectl("wait", "--for=condition=Established", "crd/crontabs.applied.example.com", "--timeout=10s")
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=obj)
    other = obj.replace("replicas: 3", "replicas: 4")
    conflict = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", code=1, stdin=other)
    assert ".spec.replicas" in conflict
    kubectl("delete", "crd", "crontabs.applied.example.com", "--timeout=20s")
