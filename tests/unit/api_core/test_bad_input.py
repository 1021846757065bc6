"""Hostile and broken requests: each is a Status, none is a 500, none gets past authentication."""

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube32.api.catalog import Catalog
from kube32.api.http import BodyCut, Request
from kube32.api.routes import parse
from kube32.api.status import ApiFailure
from kube32.contract import limits_for

CORE = "/api/v1/namespaces/default"
CATALOG = Catalog("sim")
LIMITS = limits_for("sim")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/namespaces/default/../pods", 400),
        ("/api/v1/namespaces/%2e%2e/pods", 400),
        ("/api/v1/namespaces/default/pods/%2E", 400),
        ("/api/v1/namespaces/de%2ffault/pods", 400),
        ("/api/v1/namespaces/default/pods/a%5cb", 400),
        ("/api/v1/namespaces/default/pods/a%00", 400),
        ("/api/v1/namespaces/default/pods/a\x00", 400),
        ("/api/v1/namespaces/default/pods/%ff%fe", 400),
        ("/api/v1/namespaces/default/pods/a/proxy/%2e%2e/%2e%2e/checkpoint", 400),
        ("/api/v1/namespaces/default/pods/a/proxy/..%2f..%2fcheckpoint", 400),
        ("api/v1/pods", 400),
        ("http://h/api/v1/pods", 400),
        ("", 400),
        ("/", 200),
        ("//", 200),
        ("/api/v1/", 200),
        ("/api/v2/pods", 404),
        ("/apis/kube32.io/v2/checkpoints", 404),
        ("/api/v1/gadgets", 404),
        ("/api/v1/namespaces/default/nodes/n", 404),
        ("/api/v1/pods/p", 404),
        ("/api/v1/namespaces//pods", 404),
        ("/api/v1/namespaces/default/pods/p/none", 404),
        ("/api/v1/namespaces/default/pods/p/status/more", 404),
        ("/metrics", 404),
        ("/healthz/", 404),
    ],
)
async def test_paths_that_lead_nowhere_are_a_status(api: Any, path: str, code: int) -> None:
    answer = await api.get(path)
    assert answer.status == code, answer.body
    if code != 200:
        assert answer.message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("BREW", f"{CORE}/pods"),
        ("OPTIONS", f"{CORE}/pods"),
        ("PUT", f"{CORE}/pods"),
        ("PATCH", f"{CORE}/pods"),
        ("POST", f"{CORE}/pods/p"),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/pods"),
        ("DELETE", f"{CORE}/pods/p/status"),
        ("GET", f"{CORE}/pods/p/binding"),
        ("GET", f"{CORE}/bindings"),
        ("POST", "/version"),
        ("POST", "/healthz"),
    ],
)
async def test_verbs_that_a_path_does_not_have_are_405(api: Any, method: str, path: str) -> None:
    answer = await api.send(method, path)
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", 400, "unexpected end of JSON input (<empty>)"),
        (b"   ", 400, "unexpected end of JSON input"),
        (b'{"kind":"Pod"', 400, 'unexpected end of JSON input ({"kind":"Pod")'),
        (b"[]", 400, "cannot unmarshal array"),
        (b"5", 400, "cannot unmarshal number"),
        (b"null", 400, "cannot unmarshal null"),
        (b'{"metadata":NaN}', 400, "json parse error"),
        (b'{"metadata":{"name":"a"},"x":1e999}', 400, "json parse error"),
        (b'{"metadata":{"name":"\xff"}}', 400, "json parse error"),
        (b'{"metadata":{"name":"\\ud800"}}', 400, "json parse error"),
        (b"[" * 100_000, 400, "json parse error"),
        (b'{"data":' + b'{"a":' * 1000 + b"1" + b"}" * 1001, 400, ""),
        (b'{"metadata":[]}', 400, "cannot unmarshal array into Go struct field ObjectMeta.metadata"),
        (
            b'{"metadata":{"name":5}}',
            400,
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.name",
        ),
        (b'{"metadata":{"name":"a","labels":{"x":1}}}', 400, "metadata.labels.x"),
        (b'{"metadata":{"name":"a","labels":[]}}', 400, "metadata.labels"),
        (b'{"metadata":{"name":"a","finalizers":[1]}}', 400, "metadata.finalizers"),
        (b'{"metadata":{"name":"a","generation":true}}', 400, "metadata.generation"),
        (b'{"kind":5}', 400, "cannot unmarshal number into field .kind"),
        (b'{"metadata":{"name":"a"},"data":[]}', 400, "cannot unmarshal array"),
        (b'{"metadata":{"name":"a","resourceVersion":"7"}}', 400, "resourceVersion should not be set"),
        (b'{"metadata":{"name":"A b"}}', 422, "metadata.name"),
        (b'{"metadata":{"name":".."}}', 422, "metadata.name"),
        (b'{"metadata":{"name":"a/b"}}', 422, "metadata.name"),
        (b"x" * (LIMITS.api_body_bytes + 1), 413, "limit is"),
    ],
)
async def test_bodies_that_are_no_object_are_a_status(api: Any, body: bytes, code: int, said: str) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps", body)
    assert answer.status == code, answer.body
    assert said in answer.message
    assert (await api.get(f"{CORE}/configmaps")).json["items"] == []


@pytest.mark.parametrize(
    ("media", "code"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        (None, 201),
        ("application/yaml", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/vnd.kubernetes.protobuf", 400),
        ("application/cbor", 415),
    ],
)
async def test_formats_that_are_read(api: Any, media: str | None, code: int) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps", b'{"metadata":{"name":"a"}}', media=media)
    assert answer.status == code, answer.body


async def test_yaml_is_read_without_dates(api: Any) -> None:
    body = b"metadata:\n  name: a\n  annotations:\n    when: '2020-01-01'\ndata:\n  d: 'x'\n"
    created = await api.create(f"{CORE}/configmaps", body, media="application/yaml")
    assert created["data"] == {"d": "x"}
    dated = await api.send(
        "POST",
        f"{CORE}/configmaps",
        b"{metadata: {name: b}, data: {d: 2020-01-01}}",
        media="application/yaml",
    )
    assert (dated.status, dated.json["data"]) == (201, {"d": "2020-01-01"})


@pytest.mark.parametrize(
    "body",
    [
        b"a: &a [1,1]\nb: *a\n",
        b"a: 1\n---\nb: 2\n",
        b"[" * 3000,
        b"a: !!python/object:os.system x\n",
        b"{a: 1",
        b"\xff",
        b"a: 123456789012345678901234567890\n",
        b"? [1]\n: 2\n",
        b"",
    ],
)
async def test_hostile_yaml_is_400(api: Any, body: bytes) -> None:
    answer = await api.send("POST", f"{CORE}/configmaps", body, media="application/yaml")
    assert answer.status == 400, answer.body
    assert answer.message


async def test_a_body_that_is_cut_is_400(api: Any) -> None:
    async def cut() -> Any:
        yield b'{"metadata":'
        raise BodyCut("the peer went away")

    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
    request = Request("POST", f"{CORE}/configmaps", headers=headers, body=cut())
    response = await api.server.dispatch(request)
    assert response.status == 400
    assert b"incomplete: the peer went away" in response.body


async def test_a_streamed_body_past_the_limit_is_not_read_to_its_end(api: Any) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 65536
            yield b" " * 65536

    headers = {"Authorization": f"Bearer {api.token}"}
    response = await api.server.dispatch(
        Request("POST", f"{CORE}/configmaps", headers=headers, body=endless())
    )
    assert response.status == 413
    assert sent <= LIMITS.api_body_bytes + 65536


async def test_nothing_but_public_information_answers_without_a_credential(api: Any) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.get(path, token="")
        assert (answer.status, answer.body) == (200, b"ok")
    assert (await api.get("/version", token="")).status == 200
    for path in ("/", "/api", "/openapi/v3", f"{CORE}/pods", "/nope"):
        answer = await api.get(path, token="")
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert 'User "system:anonymous" cannot' in answer.message
    for path in ("/", "/api", "/version", "/openapi/v3", f"{CORE}/pods", "/api/v1/../x", "/nope"):
        answer = await api.get(path, token="wrong")
        assert (answer.status, answer.message) == (401, "Unauthorized")


async def test_readiness_follows_start_and_close(api: Any) -> None:
    await api.server.close()
    assert (await api.get("/readyz", token="")).status == 500
    assert (await api.get("/livez", token="")).status == 200


async def test_a_fault_inside_is_a_status_with_500(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(api.server.store.settled, "get", broken)
    answer = await api.get(f"{CORE}/pods/p")
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in answer.message


@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    st.lists(
        st.sampled_from(
            [
                "api",
                "apis",
                "v1",
                "namespaces",
                "default",
                "pods",
                "nodes",
                "kube32.io",
                "",
                "..",
                "%2e",
                "proxy",
            ]
        )
        | st.text(max_size=4),
        max_size=9,
    ),
)
def test_any_path_is_parsed_or_refused(method: str, parts: list[str]) -> None:
    try:
        info = parse(method, "/" + "/".join(parts), {}, CATALOG)
    except ApiFailure as failure:
        assert failure.code in (400, 405)
    else:
        assert ".." not in (info.namespace, info.name)
        assert "/" not in info.namespace + info.name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "metadata",
                        "spec",
                        "status",
                        "name",
                        "kind",
                        "labels",
                        "containers",
                        "env",
                        "image",
                        "data",
                    ]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=25,
    ),
    st.sampled_from(["pods", "configmaps", "secrets", "events"]),
)
async def test_any_json_is_created_or_refused_and_never_a_500(api: Any, body: Any, plural: str) -> None:
    try:
        data = orjson.dumps(body)
    except TypeError:  # an integer past 64 bits
        return
    for method, path in (("POST", f"{CORE}/{plural}"), ("PUT", f"{CORE}/{plural}/x")):
        answer = await api.send(method, path, data)
        assert answer.status in (200, 201, 400, 404, 413, 422), answer.body
