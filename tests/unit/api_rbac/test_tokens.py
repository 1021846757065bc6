"""Tokens of ServiceAccounts: made, used, and ended with what they belong to."""

import base64
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.api_rbac.conftest import RBAC, Person, manifest

from kube32.api import pki
from kube32.api.identity import jwt
from kube32.api.identity.accounts import KEY_FILE, Accounts
from kube32.contract import LIMITS

NS = "/api/v1/namespaces/default"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "wasm://echo"}]},
}


def body(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


async def token_of(api: Any, account: str = "robot", **spec: Any) -> str:
    answer = await api.create(f"{NS}/serviceaccounts/{account}/token", body(**spec))
    return str(answer["status"]["token"])


@pytest.fixture
async def robot(api: Any) -> Person:
    await api.create(f"{NS}/serviceaccounts", ACCOUNT)
    return Person(api, "system:serviceaccount:default:robot", await token_of(api))


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


async def test_a_token_tells_whose_it_is(api: Any, robot: Person) -> None:
    account = (await api.get(f"{NS}/serviceaccounts/robot")).json["metadata"]
    claims = claims_of(robot.token)
    assert claims["iss"] == "https://kubernetes.default.svc.cluster.local"
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert claims["aud"] == ["https://kubernetes.default.svc.cluster.local"]
    assert claims["kubernetes.io"] == {
        "namespace": "default",
        "serviceaccount": {"name": "robot", "uid": account["uid"]},
    }
    assert 3590 <= claims["exp"] - time.time() <= 3600
    who = (await robot.review("SelfSubjectReview", {}, group="authentication"))["userInfo"]
    assert who["username"] == "system:serviceaccount:default:robot"
    assert who["uid"] == account["uid"]
    assert who["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    assert who["extra"] == {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}


async def test_a_token_has_the_rights_of_its_account(api: Any, robot: Person) -> None:
    assert await robot.code(f"GET {NS}/pods") == 403
    bound = manifest(
        "RoleBinding",
        "robot",
        subjects=[{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    )
    await api.create(f"{RBAC}/namespaces/default/rolebindings", bound)
    assert await robot.code(f"GET {NS}/pods") == 200
    assert await robot.code("GET /api/v1/namespaces/kube-system/pods") == 403


async def test_a_token_ends_with_its_account(api: Any, robot: Person) -> None:
    assert await robot.code("GET /apis") == 200
    await api.send("DELETE", f"{NS}/serviceaccounts/robot")
    assert await robot.code("GET /apis") == 401
    await api.create(f"{NS}/serviceaccounts", ACCOUNT)
    assert await robot.code("GET /apis") == 401


async def test_a_token_bound_to_a_pod_ends_with_it(api: Any, robot: Person) -> None:
    pod = await api.create(f"{NS}/pods", POD)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
    bound = Person(api, "", await token_of(api, boundObjectRef=reference))
    who = (await bound.review("SelfSubjectReview", {}, group="authentication"))["userInfo"]
    assert who["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    await api.send("DELETE", f"{NS}/pods/p?gracePeriodSeconds=0")
    assert await bound.code("GET /apis") == 401
    answer = await api.send("POST", f"{NS}/serviceaccounts/robot/token", body(boundObjectRef=reference))
    assert (answer.status, answer.message) == (404, 'pods "p" not found')


async def test_a_token_is_bound_to_nothing_that_is_not_there(api: Any, robot: Person) -> None:
    await api.create(
        f"{NS}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}
    )
    await api.create(
        f"{NS}/pods", {**POD, "metadata": {"name": "q"}, "spec": {**POD["spec"], "serviceAccountName": "x"}}
    )
    for reference, code in (
        ({"kind": "Pod", "name": "q"}, 400),
        ({"kind": "Pod", "name": "absent"}, 404),
        ({"kind": "ConfigMap", "name": "c"}, 400),
        ({"kind": "Pod", "name": "q", "uid": "other"}, 409),
    ):
        answer = await api.send("POST", f"{NS}/serviceaccounts/robot/token", body(boundObjectRef=reference))
        assert answer.status == code, (reference, answer.body)


async def test_an_expired_token_is_none(api: Any, robot: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    token = await token_of(api, expirationSeconds=600)
    user = Person(api, "", token)
    assert await user.code("GET /apis") == 200
    monkeypatch.setattr(time, "time", lambda: now + 700)
    assert await user.code("GET /apis") == 401


async def test_a_token_for_others_is_not_for_the_api(api: Any, robot: Person) -> None:
    token = await token_of(api, audiences=["vault"])
    assert await Person(api, "", token).code("GET /apis") == 401
    admin = Person(api, "", api.token)
    status = await admin.review(
        "TokenReview", {"token": token, "audiences": ["vault"]}, group="authentication"
    )
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    status = await admin.review("TokenReview", {"token": token}, group="authentication")
    assert status["authenticated"] is False
    assert "audiences" in status["error"]


async def test_a_token_that_was_touched_is_none(api: Any, robot: Person) -> None:
    head, claims, signature = robot.token.split(".")
    other = (
        base64.urlsafe_b64encode(orjson.dumps({**claims_of(robot.token), "sub": "x"})).rstrip(b"=").decode()
    )
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    stranger = jwt.sign(ec.generate_private_key(ec.SECP256R1()), claims_of(robot.token))
    for token in (
        f"{head}.{other}.{signature}",
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{head}.{claims}.{signature[:-4]}",
        f"{head}.{claims}.{'A' * len(signature)}",
        f"{head}.{claims}.",
        f"{head}.!.{signature}",
        "ey..",
        f"eyJ9.{claims}.{signature}",
        stranger,
        robot.token + "x" * 9000,
    ):
        assert await Person(api, "", token).code("GET /apis") == 401, token


async def test_how_long_a_token_lives_has_bounds(api: Any, robot: Person) -> None:
    for seconds, rule in (
        (599, "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ):
        answer = await api.send("POST", f"{NS}/serviceaccounts/robot/token", body(expirationSeconds=seconds))
        assert answer.status == 422
        assert answer.message.endswith(f"spec.expirationSeconds: Invalid value: {seconds}: {rule}")
    answer = await api.send("POST", f"{NS}/serviceaccounts/absent/token", body())
    assert (answer.status, answer.message) == (404, 'serviceaccounts "absent" not found')
    assert (await api.get(f"{NS}/serviceaccounts/robot/token")).status == 405


async def test_a_node_gets_tokens_bound_to_its_own_pods_only(api: Any, robot: Person) -> None:
    node = api.server.security.local_node_credentials("n", ["127.0.0.1"])
    for name, where in (("p", "n"), ("q", "other")):
        pod = {**POD, "metadata": {"name": name}, "spec": {**POD["spec"], "nodeName": where}}
        await api.create(f"{NS}/pods", pod)
    kubelet = Person(api, "system:node:n", node.token)
    path = f"POST {NS}/serviceaccounts/robot/token"
    assert "not bound to a pod" in await kubelet.refusal(path, body())
    other = body(boundObjectRef={"kind": "Pod", "name": "q"})
    assert "scheduled on a different node" in await kubelet.refusal(path, other)
    own = body(boundObjectRef={"kind": "Pod", "name": "p"})
    answer = await kubelet.send("POST", f"{NS}/serviceaccounts/robot/token", own)
    assert answer.status == 201
    assert claims_of(answer.json["status"]["token"])["kubernetes.io"]["node"] == {"name": "n"}
    assert await kubelet.code(f"POST {NS}/serviceaccounts/default/token", own) == 403


def test_the_key_stays_and_is_private(tmp_path: Path) -> None:
    Accounts.open(tmp_path, LIMITS)
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    Accounts.open(tmp_path, LIMITS)
    assert path.read_bytes() == before
    for damage in (b"", before[:60], b"\xff"):
        path.write_bytes(damage)
        with pytest.raises(pki.PkiError, match=KEY_FILE):
            Accounts.open(tmp_path, LIMITS)
        assert path.read_bytes() == damage


async def test_no_more_verified_tokens_are_kept_than_the_limit(
    api: Any, person: Callable[..., Awaitable[Person]]
) -> None:
    await api.create(f"{NS}/serviceaccounts", ACCOUNT)
    accounts = api.server.security.accounts
    accounts._limits = LIMITS.replace(tokens_verified=3)
    tokens = [await token_of(api) for _ in range(6)]
    for token in [*tokens, *tokens]:
        assert await Person(api, "", token).code("GET /apis") == 200
    assert len(accounts._verified) == 3


async def test_others_can_check_a_token_by_the_published_key(api: Any, robot: Person) -> None:
    answer = await robot.send("GET", "/.well-known/openid-configuration")
    assert answer.json["issuer"] == claims_of(robot.token)["iss"]
    assert answer.json["jwks_uri"].endswith("/openid/v1/jwks")
    answer = await robot.send("GET", "/openid/v1/jwks")
    assert answer.content_type == "application/jwk-set+json"
    row = answer.json["keys"][0]
    x, y = (int.from_bytes(base64.urlsafe_b64decode(row[part] + "=")) for part in ("x", "y"))
    key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    assert jwt.verify(key, robot.token)["sub"] == "system:serviceaccount:default:robot"
    assert (await api.get("/openid/v1/jwks", token="")).status == 403


def token_secret(name: str = "robot-token", account: str = "robot") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    }


async def test_a_token_secret_is_filled_and_goes_with_its_account(api: Any, robot: Person) -> None:
    await api.create(f"{NS}/secrets", token_secret())
    secret = (await api.get(f"{NS}/secrets/robot-token")).json
    data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert data["namespace"] == "default"
    assert data["ca.crt"] == api.server.security.ca_pem
    account = (await api.get(f"{NS}/serviceaccounts/robot")).json["metadata"]
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account["uid"]
    user = Person(api, "", data["token"])
    who = (await user.review("SelfSubjectReview", {}, group="authentication"))["userInfo"]
    assert who["username"] == "system:serviceaccount:default:robot"
    await api.create(f"{NS}/secrets", token_secret("other"))
    await api.send("DELETE", f"{NS}/secrets/robot-token")
    assert await user.code("GET /apis") == 401
    assert (await api.get(f"{NS}/secrets/other")).status == 200
    await api.send("DELETE", f"{NS}/serviceaccounts/robot")
    assert (await api.get(f"{NS}/secrets/other")).status == 404


async def test_a_token_secret_may_come_before_its_account(api: Any) -> None:
    await api.create(f"{NS}/secrets", token_secret())
    assert "token" not in ((await api.get(f"{NS}/secrets/robot-token")).json.get("data") or {})
    await api.create(f"{NS}/serviceaccounts", ACCOUNT)
    assert "token" in (await api.get(f"{NS}/secrets/robot-token")).json["data"]
