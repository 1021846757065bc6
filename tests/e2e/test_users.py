"""Users with kubeconfigs of their own, and what the real kubectl says to them."""

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube32.api import pki
from kube32.contract import LIMITS
from tests.conftest import SimCluster


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, cluster: SimCluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--kubeconfig", str(self.path), *arguments, code=code, stdin=stdin)


@pytest.fixture(scope="module")
def admin(cluster: SimCluster) -> Kubectl:
    return Kubectl(cluster, cluster.kubeconfig)


@pytest.fixture
def vera(cluster: SimCluster, tmp_path: Path) -> Iterator[Kubectl]:
    path = tmp_path / "vera.kubeconfig"
    said = cluster.cli("user", "add", "vera", "--role", "view", "--output", str(path))
    assert said == f"user vera: credential made; role view in the whole cluster\nexport KUBECONFIG={path}\n"
    yield Kubectl(cluster, path)
    cluster.cli("user", "remove", "vera", code=None)


def test_the_kubeconfig_is_the_users_alone(vera: Kubectl) -> None:
    assert stat.S_IMODE(vera.path.stat().st_mode) == 0o600
    config = yaml.safe_load(vera.path.read_text())
    assert config["current-context"] == "vera@kube32"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_a_viewer_sees_pods_and_no_secrets(vera: Kubectl) -> None:
    assert "node-a" in vera("get", "nodes")
    vera("get", "pods", "-A")
    vera("get", "all")
    assert vera("get", "secrets", code=1).strip() == (
        'Error from server (Forbidden): secrets is forbidden: User "vera" cannot list resource "secrets" in API '
        'group "" in the namespace "default"'
    )
    assert "Forbidden" in vera("delete", "pod", "x", code=1)
    assert "Forbidden" in vera("get", "--raw", "/api/v1/nodes/node-a/proxy/pods", code=1)


def test_kubectl_answers_what_somebody_may_do(vera: Kubectl, admin: Kubectl) -> None:
    assert vera("auth", "can-i", "get", "pods") == "yes\n"
    assert vera("auth", "can-i", "get", "secrets", code=1) == "no\n"
    assert vera("auth", "can-i", "get", "pods", "--subresource=log") == "yes\n"
    assert vera("auth", "can-i", "get", "/version") == "yes\n"
    assert vera("auth", "can-i", "get", "/metrics", code=1) == "no\n"
    assert admin("auth", "can-i", "*", "*", "--all-namespaces") == "yes\n"
    assert admin("auth", "can-i", "get", "secrets", "--as", "vera", code=1) == "no\n"
    listed = vera("auth", "can-i", "--list")
    rows = [line.split() for line in listed.splitlines()]
    assert rows[0] == ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"]
    assert ["pods", "[]", "[]", "[get", "list", "watch]"] in rows
    assert ["[/version]", "[]", "[get]"] in rows
    assert not any("secrets" in line for line in listed.splitlines())
    assert ["*.*", "[]", "[]", "[*]"] in [
        line.split() for line in admin("auth", "can-i", "--list").splitlines()
    ]


def test_whoami(vera: Kubectl, admin: Kubectl) -> None:
    rows = [line.split(maxsplit=1) for line in vera("auth", "whoami").splitlines()]
    assert rows == [["ATTRIBUTE", "VALUE"], ["Username", "vera"], ["Groups", "[system:authenticated]"]]
    assert "system:masters" in admin("auth", "whoami")


def test_asking_as_somebody_else(admin: Kubectl, vera: Kubectl) -> None:
    assert "node-a" in admin("get", "nodes", "--as", "vera")
    assert 'User "vera" cannot list resource "secrets"' in admin("get", "secrets", "--as", "vera", code=1)
    assert "team" in admin("auth", "whoami", "--as", "x", "--as-group", "team")
    assert vera("get", "pods", "--as", "kubernetes-admin", code=1).strip() == (
        'Error from server (Forbidden): users "kubernetes-admin" is forbidden: User "vera" cannot impersonate '
        'resource "users" in API group "" at the cluster scope'
    )


def test_a_second_add_replaces_the_credential_and_the_role(
    cluster: SimCluster, vera: Kubectl, tmp_path: Path
) -> None:
    new = Kubectl(cluster, tmp_path / "new.kubeconfig")
    said = cluster.cli("user", "add", "vera", "--role", "edit", "--output", str(new.path))
    assert "credential replaced, the old one no longer works; role edit in the whole cluster" in said
    assert "Unauthorized" in vera("get", "pods", code=1)
    assert new("auth", "can-i", "create", "pods") == "yes\n"
    row = next(line for line in cluster.cli("user", "list").splitlines() if line.startswith("vera "))
    assert row.split()[:4] == ["vera", "edit", "<none>", "certificate"]


def test_a_role_in_one_namespace(cluster: SimCluster, tmp_path: Path) -> None:
    path = tmp_path / "nina.kubeconfig"
    cluster.cli("user", "add", "nina", "--role", "admin", "--namespace", "kube-public", "-o", str(path))
    nina = Kubectl(cluster, path)
    assert nina("auth", "can-i", "create", "secrets") == "yes\n"  # the context's namespace
    assert nina("auth", "can-i", "create", "secrets", "-n", "default", code=1) == "no\n"
    rows = json.loads(cluster.cli("user", "list", "-o", "json"))
    assert next(r["roles"] for r in rows if r["name"] == "nina") == ["admin in kube-public"]
    cluster.cli("user", "remove", "nina")
    assert "NotFound" in cluster.kubectl(
        "get", "rolebinding", "kube32:user:nina", "-n", "kube-public", code=1
    )


def test_a_removed_user_is_shut_out(cluster: SimCluster, vera: Kubectl) -> None:
    assert cluster.cli("user", "remove", "vera") == "user vera removed: its credential no longer works\n"
    assert "Unauthorized" in vera("get", "pods", code=1)
    assert "NotFound" in cluster.kubectl("get", "clusterrolebinding", "kube32:user:vera", code=1)
    said = cluster.cli("user", "remove", "vera", code=1)
    assert said == "kube32-cli: no credential was issued to a user vera\n"


def test_a_token_instead_of_a_certificate(cluster: SimCluster, tmp_path: Path) -> None:
    said = cluster.cli("user", "add", "tim", "--token", "--group", "kube32:view", "--output", "-")
    path = tmp_path / "tim.kubeconfig"
    path.write_text(said)
    assert "token" in yaml.safe_load(said)["users"][0]["user"]
    assert "node-a" in Kubectl(cluster, path)("get", "nodes")
    cluster.cli("user", "remove", "tim")
    assert "Unauthorized" in Kubectl(cluster, path)("get", "nodes", code=1)


def test_the_cli_of_a_viewer_moves_nothing(cluster: SimCluster, vera: Kubectl) -> None:
    for verb in (["move", "x"], ["checkpoint", "x"], ["user", "add", "eve", "-o", "-"], ["user", "list"]):
        said = cluster.cli("--kubeconfig", str(vera.path), *verb, code=1)
        assert 'User "vera" cannot' in said, said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["system:node:x"],
            1,
            '"system:node:x" is reserved: names that begin with system: belong to the cluster',
        ),
        (["a b"], 1, '"a b" is no name of a user'),
        (["vera", "--group", "system:nodes"], 1, '"system:nodes" is reserved'),
        (["vera", "--role", "nothing"], 2, '--role: there is no ClusterRole "nothing"'),
        (["vera", "--namespace", "default"], 2, "--namespace says where a role counts: give --role too"),
        (["vera", "--role", "view", "--namespace", "nowhere"], 1, 'namespaces "nowhere" not found'),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_no_file(
    cluster: SimCluster, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    path = tmp_path / "x.kubeconfig"
    answer = cluster.cli("user", "add", *arguments, "--output", str(path), code=code)
    assert said in answer
    assert answer.count("\n") == 1
    assert not path.exists()


def test_a_file_of_somebody_else_is_not_overwritten(cluster: SimCluster, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(cluster.kubeconfig.read_bytes())
    before = path.read_bytes()
    answer = cluster.cli("user", "add", "vera", "--output", str(path), code=2)
    assert f"{path}: exists and is not the kubeconfig of user vera" in answer
    assert path.read_bytes() == before
    assert "no directory" in cluster.cli("user", "add", "vera", "--output", str(tmp_path / "a" / "b"), code=2)


def test_help_says_what_happens(cluster: SimCluster) -> None:
    said = " ".join(cluster.cli("user", "add", "--help").split())
    assert "the old one no longer works" in said
    assert "view|edit|admin|cluster-admin" in said


def test_a_service_accounts_token(cluster: SimCluster, admin: Kubectl, tmp_path: Path) -> None:
    admin("create", "serviceaccount", "robot")
    token = admin("create", "token", "robot", "--duration", "20m").strip()
    admin("create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "robot.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    robot = Kubectl(cluster, path)
    assert "system:serviceaccount:default:robot" in robot("auth", "whoami")
    robot("get", "pods")
    assert "Forbidden" in robot("get", "secrets", code=1)
    assert "Forbidden" in robot("get", "pods", "-n", "kube-system", code=1)
    admin("delete", "serviceaccount", "robot")
    admin("delete", "rolebinding", "robot")
    assert "Unauthorized" in robot("get", "pods", code=1)
    assert 'serviceaccounts "robot" not found' in admin("create", "token", "robot", code=1)


ROLES: list[dict[str, Any]] = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reconciled"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reconciled", "namespace": "default"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "rita"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reconciled"},
    },
]


def test_auth_reconcile(admin: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text(yaml.safe_dump_all(ROLES))
    said = admin("auth", "reconcile", "-f", str(file))
    assert "clusterrole.rbac.authorization.k8s.io/reconciled reconciled" in said
    assert "rolebinding.rbac.authorization.k8s.io/reconciled reconciled" in said
    ROLES[0]["rules"][0]["verbs"] = ["list"]
    file.write_text(yaml.safe_dump_all(ROLES))
    admin("auth", "reconcile", "-f", str(file))
    assert admin("auth", "can-i", "get", "pods", "--as", "rita") == "yes\n"
    assert admin("auth", "can-i", "list", "pods", "--as", "rita") == "yes\n"
    admin("delete", "clusterrole,rolebinding", "reconciled")


def test_roles_are_made_and_described(admin: Kubectl) -> None:
    admin("create", "clusterrole", "podreader", "--verb=get,list", "--resource=pods,pods/log")
    admin("create", "clusterrole", "summed", "--aggregation-rule=sum=yes")
    admin("label", "clusterrole", "podreader", "sum=yes")
    assert "pods/log" in admin("describe", "clusterrole", "summed")
    admin(
        "create", "clusterrolebinding", "podreaders", "--clusterrole=summed", "--group=readers", "--user=ro"
    )
    assert admin("auth", "can-i", "get", "pods", "--as", "ro", "--subresource", "log") == "yes\n"
    assert admin("auth", "can-i", "get", "pods", "--as", "x", "--as-group", "readers") == "yes\n"
    assert "cluster-admin" in admin("get", "clusterroles")
    assert "secrets" not in admin("describe", "clusterrole", "view")
    admin("delete", "clusterrole", "podreader", "summed")
    admin("delete", "clusterrolebinding", "podreaders")


def test_a_certificate_that_the_cas_owner_signs_by_hand_counts(cluster: SimCluster, tmp_path: Path) -> None:
    authority = pki.Authority.open(cluster.folder / "control" / "pki", LIMITS)
    pair = authority.make("hanna", ("kube32:view",))
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(pair.cert_pem.encode()).decode(),
        "client-key-data": base64.b64encode(pair.key_pem.encode()).decode(),
    }
    path = tmp_path / "hanna.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    assert "node-a" in Kubectl(cluster, path)("get", "nodes")


def test_a_board_gives_roles_by_groups(own_cluster: SimCluster, tmp_path: Path) -> None:
    own_cluster.control_plane("control", "--profile", "board")
    path = tmp_path / "vera.kubeconfig"
    own_cluster.cli("user", "add", "vera", "--role", "view", "-o", str(path))
    vera = Kubectl(own_cluster, path)
    assert "control" in vera("get", "nodes")
    assert 'User "vera" cannot list resource "secrets"' in vera("get", "secrets", code=1)
    own_cluster.cli("user", "add", "vera", "--role", "cluster-admin", "-o", str(path))
    vera("get", "secrets")
    answer = own_cluster.cli("user", "add", "vera", "--role", "edit", "-o", str(path), code=2)
    assert "this cluster has no role objects: --role is view or cluster-admin, not edit" in answer
    own_cluster.cli("user", "remove", "vera")
    assert "Unauthorized" in vera("get", "nodes", code=1)
