"""LIST and WATCH: selectors, pages, revisions, initial events, bookmarks, the ends of streams."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from kube32.contract import RESOURCES, Resource, limits_for

CORE = "/api/v1/namespaces/default"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
WATCH_LIST = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"


async def fill(api: Any, objects: Any, count: int) -> None:
    for n in range(count):
        labels = {"n": str(n), "half": "low" if n < count / 2 else "high"}
        await api.create(f"{CORE}/configmaps", objects.config_map(f"c{n:03}", metadata={"labels": labels}))


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


async def test_a_list_holds_the_stored_bytes_and_the_stores_revision(api: Any, objects: Any) -> None:
    await fill(api, objects, 3)
    answer = await api.get(f"{CORE}/configmaps")
    assert answer.json["kind"] == "ConfigMapList"
    assert answer.json["metadata"] == {"resourceVersion": str(api.server.store.revision)}
    entries, _ = api.server.store.scan("/registry/configmaps/default/")
    assert answer.body.endswith(b"[" + b",".join(e.value for e in entries) + b"]}")


@pytest.mark.parametrize("selector", ["", "half%3Dlow"])
async def test_pages_together_are_the_list(api: Any, objects: Any, selector: str) -> None:
    await fill(api, objects, 7)
    whole = names(await api.get(f"{CORE}/configmaps?labelSelector={selector}"))
    found, token, remaining = [], "", []
    while True:
        page = await api.get(f"{CORE}/configmaps?labelSelector={selector}&limit=2&continue={quote(token)}")
        found += names(page)
        remaining.append(page.json["metadata"].get("remainingItemCount"))
        token = page.json["metadata"].get("continue", "")
        if not token:
            break
        assert len(page.json["items"]) == 2
    assert found == whole
    if not selector:
        assert remaining == [5, 3, 1, None]


async def test_pages_keep_the_revision_of_the_first(api: Any, objects: Any) -> None:
    await fill(api, objects, 3)
    first = await api.get(f"{CORE}/configmaps?limit=2")
    await api.send("DELETE", f"{CORE}/configmaps/c000")
    await api.create(f"{CORE}/configmaps", objects.config_map("d"))
    second = await api.get(f"{CORE}/configmaps?limit=5&continue={first.json['metadata']['continue']}")
    assert names(second) == ["c002", "d"]
    since = first.json["metadata"]["resourceVersion"]
    assert second.json["metadata"]["resourceVersion"] == since
    frames = await api.watch(f"{CORE}/configmaps?watch=true&resourceVersion={since}")
    seen = [await frames.next(), await frames.next()]
    assert [(f["type"], f["object"]["metadata"]["name"]) for f in seen] == [
        ("DELETED", "c000"),
        ("ADDED", "d"),
    ]
    await frames.close()


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("continue=zzz", 400, "continue key is not valid"),
        ("continue=e30", 400, "continue key is not valid"),
        ("limit=-1", 400, "limit"),
        ("limit=x", 400, "limit"),
        ("resourceVersion=x", 400, "resource version"),
        ("resourceVersion=99999", 504, "Too large resource version: 99999, current:"),
        ("resourceVersionMatch=Exact", 422, "is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Odd&resourceVersion=1", 422, 'Unsupported value: "Odd"'),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, 'is forbidden for resourceVersion "0"'),
        ("resourceVersionMatch=Exact&resourceVersion=1", 410, "too old resource version"),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("fieldSelector=spec.foo%3Dbar", 400, "field label not supported: spec.foo"),
        ("fieldSelector=x", 400, "invalid selector: 'x'; can't understand 'x'"),
        ("labelSelector=a%20in%20b", 400, "unable to parse requirement"),
        ("labelSelector=%ff", 400, "the query cannot be read"),
    ],
)
async def test_a_list_with_a_mistake_is_a_status(api: Any, query: str, code: int, said: str) -> None:
    answer = await api.get(f"{CORE}/configmaps?{query}")
    assert answer.status == code
    assert said in answer.message


async def test_a_revision_that_is_too_large_has_the_cause_that_clients_look_for(api: Any) -> None:
    answer = await api.get(f"{CORE}/configmaps?resourceVersion=99999")
    assert answer.json["reason"] == "Timeout"
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_any_revision_that_was_given_out_lists(api: Any, objects: Any) -> None:
    await fill(api, objects, 2)
    for version in range(api.server.store.revision + 1):
        query = f"resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        assert names(await api.get(f"{CORE}/configmaps?{query}")) == ["c000", "c001"]


async def test_a_list_as_a_table_has_pages_too(api: Any, objects: Any) -> None:
    await fill(api, objects, 3)
    answer = (await api.get(f"{CORE}/configmaps?limit=2", headers=TABLE)).json
    assert [row["cells"][0] for row in answer["rows"]] == ["c000", "c001"]
    assert answer["metadata"]["continue"]
    assert answer["metadata"]["remainingItemCount"] == 1


# --- watches ---


async def test_a_watch_without_a_revision_begins_with_what_is_there(api: Any, objects: Any) -> None:
    await fill(api, objects, 2)
    for version in ("", "&resourceVersion=0"):
        frames = await api.watch(f"{CORE}/configmaps?watch=true{version}")
        seen = [await frames.next(), await frames.next()]
        assert [(f["type"], f["object"]["metadata"]["name"]) for f in seen] == [
            ("ADDED", "c000"),
            ("ADDED", "c001"),
        ]
        await frames.close()


async def test_a_watch_tells_of_selected_objects_as_they_come_and_go(api: Any, objects: Any) -> None:
    await fill(api, objects, 2)
    since = api.server.store.revision
    selector = quote("half in (low),n!=9")
    frames = await api.watch(f"{CORE}/configmaps?watch=1&resourceVersion={since}&labelSelector={selector}")
    await api.patch(f"{CORE}/configmaps/c000", {"data": {"k": "1"}})
    await api.patch(f"{CORE}/configmaps/c001", {"metadata": {"labels": {"half": "low"}}})
    await api.patch(f"{CORE}/configmaps/c000", {"metadata": {"labels": {"half": "high"}}})
    seen = [await frames.next() for _ in range(3)]
    assert [(f["type"], f["object"]["metadata"]["name"]) for f in seen] == [
        ("MODIFIED", "c000"),
        ("ADDED", "c001"),
        ("DELETED", "c000"),
    ]
    await frames.close()


@pytest.mark.parametrize("accept", [{}, TABLE, PARTIAL], ids=["json", "table", "partial"])
@pytest.mark.parametrize("resource", [r for r in RESOURCES if "watch" in r.verbs], ids=lambda r: r.kind)
async def test_initial_events_end_with_a_marked_bookmark_for_every_kind(
    api: Any, resource: Resource, accept: dict[str, str]
) -> None:
    for version in ("", "&resourceVersion=", "&resourceVersion=0", "&resourceVersion=1"):
        frames = await api.watch(f"{resource.collection_path()}?{WATCH_LIST}{version}", headers=accept)
        while (frame := await frames.next())["type"] == "ADDED":
            pass
        assert frame["type"] == "BOOKMARK"
        obj = frame["object"]
        if obj["kind"] == "Table":
            obj = obj["rows"][0]["object"]
        elif accept is PARTIAL:
            assert obj["kind"] == "PartialObjectMetadata"
        else:
            assert (obj["kind"], obj["apiVersion"]) == (resource.kind, resource.api_version)
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["metadata"]["resourceVersion"] == str(api.server.store.revision)
        await frames.close()


async def test_initial_events_are_not_bound_by_the_streams_buffer(api: Any, objects: Any) -> None:
    await fill(api, objects, 60)
    frames = await api.watch(f"{CORE}/configmaps?{WATCH_LIST}")
    for n in range(40):
        await api.patch(f"{CORE}/configmaps/c{n:03}", {"data": {"k": "1"}})
    state: dict[str, Any] = {}
    ended = False
    while not ended or any("data" not in state[f"c{n:03}"] for n in range(40)):
        frame = await frames.next()
        ended = ended or frame["type"] == "BOOKMARK"
        if frame["type"] != "BOOKMARK":
            state[frame["object"]["metadata"]["name"]] = frame["object"]
    assert len(state) == 60
    await frames.close()


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("sendInitialEvents=true&allowWatchBookmarks=true", 422, "requires setting resourceVersionMatch"),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1", 422, "unless sendInitialEvents is provided"),
        (
            "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=Exact",
            422,
            'Unsupported value: "Exact"',
        ),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422, "requires allowWatchBookmarks"),
        (f"{WATCH_LIST}&resourceVersion=99999", 504, "Too large resource version"),
        ("resourceVersion=x", 400, "resource version"),
        ("timeoutSeconds=x", 400, "timeoutSeconds"),
        ("fieldSelector=a%3Db", 400, "field label not supported: a"),
    ],
)
async def test_a_watch_with_a_mistake_is_a_status(api: Any, query: str, code: int, said: str) -> None:
    answer = await api.get(f"{CORE}/configmaps?watch=true&{query}")
    assert answer.status == code
    assert said in answer.message


@pytest.mark.parametrize("version", ["99999", "1"])
async def test_a_revision_that_cannot_be_resumed_is_one_error_frame(
    api: Any, objects: Any, version: str
) -> None:
    await fill(api, objects, 40)
    frames = await api.watch(f"{CORE}/configmaps?watch=true&resourceVersion={version}")
    frame = await frames.next()
    assert frame["type"] == "ERROR"
    status = frame["object"]
    assert (status["kind"], status["code"], status["reason"], status["metadata"]) == (
        "Status",
        410,
        "Expired",
        {},
    )
    assert await frames.ended()


async def test_a_watch_ends_after_its_timeout(api: Any) -> None:
    frames = await api.watch(f"{CORE}/configmaps?watch=true&timeoutSeconds=1")
    assert await frames.ended()
    assert api.server.hub.stream_count == 0


async def test_streams_over_sockets_are_counted_and_others_are_not(api: Any) -> None:
    limit = limits_for("sim").watch_streams
    path = f"{CORE}/configmaps?watch=true"
    opened = [await api.response("GET", path, remote=True) for _ in range(limit)]
    inside = await api.watch(path)
    refused = await api.response("GET", path, remote=True)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    await opened[0].body.aclose()
    again = await api.response("GET", path, remote=True)
    assert again.status == 200
    for response in [*opened, again]:
        await response.body.aclose()
    await inside.close()
    assert api.server.hub.stream_count == 0


async def test_a_slow_reader_gets_a_clean_end_and_can_go_on(api: Any, objects: Any) -> None:
    limits = limits_for("sim")
    await fill(api, objects, 1)
    frames = await api.watch(f"{CORE}/configmaps?watch=true")
    first = await frames.next()
    waiting = asyncio.ensure_future(anext(frames.body))
    await asyncio.sleep(0)
    for n in range(limits.watch_stream_buffer_events + 8):
        await api.patch(f"{CORE}/configmaps/c000", {"data": {"k": str(n)}})
    pieces = [await waiting, *[piece async for piece in frames.body]]
    lines = b"".join(pieces).splitlines()
    assert all(b'"type":"MODIFIED"' in line for line in lines)
    last = int(first["object"]["metadata"]["resourceVersion"]) + len(lines)
    resumed = await api.watch(f"{CORE}/configmaps?watch=true&resourceVersion={last}")
    assert (await resumed.next())["object"]["metadata"]["resourceVersion"] == str(last + 1)
    await resumed.close()


async def test_only_the_first_frame_of_a_table_watch_has_the_columns(api: Any, objects: Any) -> None:
    await fill(api, objects, 2)
    frames = await api.watch(f"{CORE}/configmaps?watch=true", headers=TABLE)
    first, second = (await frames.next())["object"], (await frames.next())["object"]
    assert first["columnDefinitions"] and not second["columnDefinitions"]
    assert first["rows"][0]["cells"][0] == "c000"
    await frames.close()


async def test_closing_the_server_ends_watches(api: Any) -> None:
    frames = await api.watch(f"{CORE}/configmaps?watch=true")
    await api.server.close()
    assert await frames.ended()
