"""user add, list and remove: people with a kubeconfig of their own. The private key is made here and never sent.

A role is given by a binding named kube32:user:NAME; clusters without role objects (boards) know the groups
kube32:view and system:masters instead.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube32.cli.cluster import Cluster
from kube32.cli.errors import CliError
from kube32.client.api import ApiError
from kube32.client.kubeconfig import render_kubeconfig
from kube32.contract import NAMES, Resource, resource_of
from kube32.contract.rbac import API_VERSION as RBAC_VERSION
from kube32.contract.rbac import GROUP as RBAC

Obj = dict[str, Any]
PATH = "/apis/kube32.io/v1/users"
_GROUPS_OF: dict[str, str] = {"view": NAMES.group_view, "cluster-admin": NAMES.group_masters}
_CONTEXT = "kube32"


@dataclass(slots=True)
class UserFlags:
    """What `user add` was told. `namespace` "" gives the role in the whole cluster."""

    name: str
    role: str = ""
    groups: tuple[str, ...] = ()
    namespace: str = ""
    output: str = ""
    token: bool = False


async def add(cluster: Cluster, flags: UserFlags) -> list[str]:
    """Makes the credential, gives the role and writes the kubeconfig; lines that say what was done."""
    path = Path(flags.output or f"{flags.name}.kubeconfig")
    if flags.output != "-":
        _check_own(path, flags.name)
    groups, binding = list(flags.groups), None
    if flags.role:
        if await _has_roles(cluster):
            binding = await _checked_binding(cluster, flags)
        else:
            groups.append(_group_of(flags))
    key = ec.generate_private_key(ec.SECP256R1())
    spec: Obj = {"groups": groups}
    if not flags.token:
        spec["request"] = _certificate_request(key, flags.name, groups)
    body = {
        "apiVersion": "kube32.io/v1",
        "kind": "User",
        "metadata": {"name": flags.name},
        "spec": spec,
    }
    issued = (await _ask(cluster, "POST", PATH, body))["status"]
    if binding is not None:
        await _bind(cluster, flags.name, binding)
    config = _kubeconfig(cluster, flags, key, issued)
    if flags.output == "-":
        print(config, end="")
        return []
    _write(path, config)
    replaced = issued.get("replaced")
    done = "replaced, the old one no longer works" if replaced else "made"
    return [f"user {flags.name}: credential {done}; {_rights(flags)}", f"export KUBECONFIG={path}"]


async def listed(cluster: Cluster) -> list[Obj]:
    """Every user: name, groups, credential, created, and the roles that `user add` gave."""
    users = (await _ask(cluster, "GET", PATH))["items"]
    roles: dict[str, list[str]] = {}
    for kind, binding in await _bindings(cluster, ""):
        name = binding["metadata"]["name"].removeprefix(NAMES.binding_user_prefix)
        where = f" in {binding['metadata']['namespace']}" if kind == "RoleBinding" else ""
        roles.setdefault(name, []).append(f"{binding['roleRef']['name']}{where}")
    return [
        {
            "name": user["metadata"]["name"],
            "roles": roles.get(user["metadata"]["name"], []),
            "groups": user["spec"]["groups"],
            "credential": user["status"]["credential"],
            "created": user["metadata"].get("creationTimestamp"),
        }
        for user in users
    ]


async def remove(cluster: Cluster, name: str) -> None:
    """Ends the user's credential and takes the role that `user add` gave. ApiError 404 for an unknown user."""
    await _ask(cluster, "DELETE", f"{PATH}/{name}")
    await _unbind(cluster, name)


# --- roles ---


async def _has_roles(cluster: Cluster) -> bool:
    """Whether the cluster has role objects."""
    try:
        await _ask(cluster, "GET", f"/apis/{RBAC}/v1")
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


def _group_of(flags: UserFlags) -> str:
    """The group that stands for a role where there are no role objects."""
    group = _GROUPS_OF.get(flags.role)
    if group is None:
        known = " or ".join(_GROUPS_OF)
        raise CliError(f"this cluster has no role objects: --role is {known}, not {flags.role}")
    if flags.namespace:
        raise CliError(
            "this cluster has no role objects: a role is given in the whole cluster, not by namespace"
        )
    return group


async def _checked_binding(cluster: Cluster, flags: UserFlags) -> Obj:
    """The binding of the role, once the server has said that it would take it."""
    try:
        await cluster.client.get("ClusterRole", flags.role)
    except ApiError as error:
        if error.code != 404:
            raise
        raise CliError(
            f'--role: there is no ClusterRole "{flags.role}"; kubectl get clusterroles lists them'
        ) from None
    kind = "RoleBinding" if flags.namespace else "ClusterRoleBinding"
    metadata: Obj = {"name": f"{NAMES.binding_user_prefix}{flags.name}"}
    if flags.namespace:
        metadata["namespace"] = flags.namespace
    binding = {
        "apiVersion": RBAC_VERSION,
        "kind": kind,
        "metadata": metadata,
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": flags.name}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": flags.role},
    }
    try:
        await _ask(cluster, "POST", _collection(kind, flags.namespace), binding, {"dryRun": "All"})
    except ApiError as error:
        if error.reason != "AlreadyExists":  # it will be replaced
            raise
    return binding


async def _bind(cluster: Cluster, name: str, binding: Obj) -> None:
    """Gives a role in the place of the one that the user has from here: a binding's role cannot be changed."""
    await _unbind(cluster, name)
    await cluster.client.create(binding["kind"], binding)


async def _unbind(cluster: Cluster, name: str) -> None:
    for kind, binding in await _bindings(cluster, name):
        metadata = binding["metadata"]
        await cluster.client.delete(kind, metadata["name"], metadata.get("namespace", ""))


async def _bindings(cluster: Cluster, name: str) -> list[tuple[str, Obj]]:
    """The bindings that `user add` made, of one user or (name "") of all."""
    if not await _has_roles(cluster):
        return []
    selector = f"metadata.name={NAMES.binding_user_prefix}{name}" if name else ""
    found: list[tuple[str, Obj]] = []
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        rows = (await cluster.client.list(kind, field_selector=selector)).items
        found.extend(
            (kind, row) for row in rows if row["metadata"]["name"].startswith(NAMES.binding_user_prefix)
        )
    return found


def _collection(kind: str, namespace: str) -> str:
    resource: Resource = resource_of(kind)
    return resource.collection_path(namespace)


# --- credentials ---


def _certificate_request(key: ec.EllipticCurvePrivateKey, name: str, groups: list[str]) -> str:
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in dict.fromkeys(groups)]
    try:
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    except ValueError:
        raise CliError(f'"{name}" is no name: at most 64 characters fit a certificate') from None
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _kubeconfig(cluster: Cluster, flags: UserFlags, key: ec.EllipticCurvePrivateKey, issued: Obj) -> str:
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = issued.get("certificate", "")
    return render_kubeconfig(
        cluster.server,
        issued["ca"],
        user=flags.name,
        token=issued.get("token", ""),
        context=f"{flags.name}@{_CONTEXT}",
        certificate_pem=certificate,
        key_pem=key_pem.decode() if certificate else "",
        namespace=flags.namespace,
    )


def _check_own(path: Path, name: str) -> None:
    """CliError when the file is there and anything else than this user's kubeconfig, or cannot be made."""
    if not path.parent.is_dir():
        raise CliError(f"{path}: there is no directory {path.parent}")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(
            f"{path}: {getattr(error, 'strerror', None) or 'is not text'}; name another file with --output"
        ) from None
    try:
        config = yaml.safe_load(text)
        users = [row["name"] for row in config["users"]]
    except (yaml.YAMLError, TypeError, KeyError):
        users = []
    if users != [name]:
        raise CliError(
            f"{path}: exists and is not the kubeconfig of user {name}; name another file with --output"
        )


def _write(path: Path, content: str) -> None:
    """Writes the file in one step; only its owner may read it."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None


def _rights(flags: UserFlags) -> str:
    if not flags.role:
        return "no role was given (kubectl create clusterrolebinding gives one)"
    where = f"namespace {flags.namespace}" if flags.namespace else "the whole cluster"
    return f"role {flags.role} in {where}"


async def _ask(
    cluster: Cluster, method: str, path: str, body: Obj | None = None, query: dict[str, str] | None = None
) -> Obj:
    """One request; ApiError when it is refused."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    data = None if body is None else orjson.dumps(body)
    async with await cluster.client.raw(method, path, query=query, headers=headers, body=data) as response:
        await cluster.client.check(response)
        answer: Obj = orjson.loads(await response.read())
        return answer
