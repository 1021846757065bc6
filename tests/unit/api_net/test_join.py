"""A worker joins: what it sends is checked, a name that is alive is not given away."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509

from kube32.api import join, pki
from kube32.api.http import Response
from kube32.api.liveness import NodeLiveness
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, VERSIONS
from kube32.store import Store

PATH = "/apis/kube32.io/v1/join"


def body(name: str = "devkit", **changes: Any) -> bytes:
    _, client = pki.make_request(name)
    _, serving = pki.make_request(name, ["127.0.0.1"])
    spec = {
        "nodeName": name,
        "request": client,
        "servingRequest": serving,
        "addresses": ["127.0.0.1"],
        "versions": VERSIONS,
    }
    return orjson.dumps({"apiVersion": "kube32.io/v1", "kind": "Join", "spec": {**spec, **changes}})


def answered(response: Response) -> dict[str, Any]:
    assert isinstance(response.body, bytes)
    status: dict[str, Any] = orjson.loads(response.body)["status"]
    return status


async def joined(world: Any, token: str | None = None, data: bytes | None = None) -> dict[str, Any]:
    return answered(
        await world.call(
            join.handle,
            "POST",
            PATH,
            world.security.join_token if token is None else token,
            body=body() if data is None else data,
        )
    )


async def refused(world: Any, token: str | None = None, data: bytes | None = None) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await joined(world, token, data)
    return failure.value


async def test_a_worker_gets_certificates_and_a_token_of_its_own(world: Any) -> None:
    status = await joined(world)
    certificate = x509.load_pem_x509_certificate(status["certificate"].encode())
    ca = x509.load_pem_x509_certificate(status["ca"].encode())
    certificate.verify_directly_issued_by(ca)
    x509.load_pem_x509_certificate(status["servingCertificate"].encode()).verify_directly_issued_by(ca)
    assert world.request("GET", "/api", status["token"]).user.name == "system:node:devkit"


async def test_a_restarted_worker_joins_again_with_the_token_it_has(world: Any) -> None:
    first = await joined(world)
    second = await joined(world, first["token"])
    assert second["token"] == first["token"]
    assert second["certificate"] != first["certificate"]


async def test_a_name_that_is_alive_is_refused_to_others(world: Any) -> None:
    token = (await joined(world))["token"]
    world.put("Lease", "devkit", "kube-node-lease")
    failure = await refused(world)
    assert failure.code == 409
    assert failure.message == ("a node named devkit is alive; join under another name or with its credential")
    assert (await joined(world, token))["token"] == token


async def test_a_name_is_held_from_the_join_until_its_first_lease(world: Any) -> None:
    await joined(world)
    assert (await refused(world)).code == 409


async def test_of_two_workers_that_want_one_name_at_once_one_gets_it(world: Any) -> None:
    results = await asyncio.gather(joined(world), joined(world), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["ApiFailure", "dict"]


async def test_the_control_planes_own_name_is_never_given_away(world: Any) -> None:
    local = world.security.local_node_credentials("main", ["127.0.0.1"])
    assert (await refused(world, data=body("main"))).code == 409
    assert (await refused(world, local.token, body("main"))).code == 403


async def test_a_node_cannot_join_under_another_name(world: Any) -> None:
    token = (await joined(world))["token"]
    assert (await refused(world, token, body("other"))).code == 403


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"kind": "Join"}', 400),
        (b'{"apiVersion": "kube32.io/v1", "kind": "Join"}', 400),
        (b'{"apiVersion": "kube32.io/v1", "kind": "Join", "spec": []}', 400),
        (b"x" * (LIMITS.join_body_bytes + 1), 413),
        (body(request=1), 400),
        (body(addresses=None), 400),
        (body(addresses=[]), 400),
        (body(addresses=["127.0.0.1"] * 17), 400),
        (body(addresses="127.0.0.1"), 400),
        (body(addresses=["localhost"]), 422),
        (body(addresses=["0.0.0.0"]), 422),
        (body(addresses=["224.0.0.1"]), 422),
        (body(addresses=["fe80::1%eth0"]), 422),
        (body(addresses=["127.0.0.1/8"]), 422),
        (body(addresses=[1]), 422),
        (body(addresses=["10.0.0.1"]), 422),
        (body(request="x"), 422),
        (body(servingRequest=""), 422),
        (body(request=pki.make_request("other")[1]), 422),
    ],
)
async def test_a_bad_join_is_refused_and_leaves_nothing(world: Any, data: bytes, code: int) -> None:
    assert (await refused(world, data=data)).code == code
    assert world.security.joined_nodes() == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "a_b",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a.",
        "a/b",
        "../a",
        "a b",
        "ä",
        "a\n",
        "a" * 53,
        "system:node:a",
    ],
)
async def test_a_name_that_no_node_can_have_is_refused(world: Any, name: str) -> None:
    failure = await refused(world, data=body("devkit", nodeName=name))
    assert failure.code == 422
    assert "is not a DNS subdomain" in failure.message
    assert world.security.joined_nodes() == []


@pytest.mark.parametrize("name", ["a", "cardputer-2", "esp.home.arpa", "a" * 52, "10.0.0.1"])
async def test_a_name_that_a_node_can_have_is_taken(world: Any, name: str) -> None:
    assert (await joined(world, data=body(name)))["token"]


async def test_a_body_that_is_no_json_by_its_own_word_is_415(world: Any) -> None:
    with pytest.raises(ApiFailure) as failure:
        await world.call(join.handle, "POST", PATH, headers={"Content-Type": "text/plain"}, body=body())
    assert failure.value.code == 415


async def test_a_full_table_makes_room_for_who_comes_from_who_is_gone(
    tmp_path: Path, make_world: Any
) -> None:
    world = make_world(LIMITS.replace(join_nodes=2, node_lost_ms=0))
    await joined(world, data=body("gone"))
    await joined(world, data=body("stays"))
    world.put("Node", "stays")
    await joined(world, data=body("new"))
    assert sorted(world.security.joined_nodes()) == ["new", "stays"]
    world.put("Node", "new")
    assert (await refused(world, data=body("another"))).code == 429


@pytest.fixture
def make_world(tmp_path: Path, world_type: Callable[..., Any]) -> Callable[..., Any]:
    return lambda limits: world_type(tmp_path / "world", limits)


def test_a_node_is_alive_while_its_lease_is_renewed_by_our_clock() -> None:
    now = [1000.0]
    store = Store(LIMITS)
    liveness = NodeLiveness(store, LIMITS, lambda: now[0])
    key = "/registry/leases/kube-node-lease/devkit"
    assert not liveness.alive("devkit", known=False)
    # Its own stamps say nothing: they may be of any year.
    store.put(key, {"metadata": {}, "spec": {"renewTime": "1970-01-01T00:00:00Z"}})
    now[0] += 19.9
    assert liveness.alive("devkit", known=False)
    now[0] += 0.2
    assert not liveness.alive("devkit", known=True)
    store.put(key, {"metadata": {}, "spec": {"renewTime": "1970-01-01T00:00:05Z"}})
    assert liveness.alive("devkit", known=False)
    store.delete(key)
    assert not liveness.alive("devkit", known=False)


def test_a_known_node_counts_as_alive_until_it_had_time_to_renew_after_a_restart() -> None:
    now = [5.0]
    liveness = NodeLiveness(Store(LIMITS), LIMITS, lambda: now[0])
    assert liveness.alive("devkit", known=True)
    assert not liveness.alive("stranger", known=False)
    now[0] += LIMITS.node_lost_ms / 1000 + 0.1
    assert not liveness.alive("devkit", known=True)


@pytest.mark.parametrize("what", sorted(VERSIONS))
@pytest.mark.parametrize("found", [0, 2, None, "1"])
async def test_a_node_with_other_formats_is_refused_at_the_join(world: Any, what: str, found: Any) -> None:
    failure = await refused(world, data=body(versions={**VERSIONS, what: found}))
    assert failure.code == 422
    assert f"{what} version {found}" in failure.message and "pods could not move" in failure.message
    assert not world.security.has_joined("devkit")


async def test_a_join_that_tells_no_versions_is_refused(world: Any) -> None:
    failure = await refused(world, data=body(versions=None))
    assert failure.code == 400 and "spec.versions" in failure.message
