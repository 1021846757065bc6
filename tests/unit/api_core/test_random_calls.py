"""Random calls, valid and not, on a whole server: what was answered is what is stored, and watches tell all of it.

A call that is refused changes nothing. A watch opened anywhere gets each change once and in order, or a 410.
"""

import asyncio
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api_core.conftest import Api, make_server

from kube32.api.http import Response
from kube32.api.server import ApiServer
from kube32.contract import limits_for

SPACE = "/api/v1/namespaces/default"
KINDS = {"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service"}
NAMES = ["a", "b", "c"]
VERBS = [
    "create",
    "put",
    "put-stale",
    "merge",
    "json",
    "delete",
    "delete-uid",
    "finalize",
    "empty",
    "collection",
]
CALL = st.tuples(
    st.sampled_from(VERBS),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(NAMES),
    st.integers(0, 3),
    st.sampled_from(["", "", "", "bad-name", "bad-type", "other-kind", "dry-run", "no-such-key"]),
)
WATCH = st.tuples(
    st.just("watch"), st.sampled_from(sorted(KINDS)), st.sampled_from(["now", "old", "all", "none"])
)
Obj = dict[str, Any]


class Watch:
    """An open watch and what it has told."""

    def __init__(
        self, plural: str, response: Response, start: dict[str, Obj], since: int, listed: int = 0
    ) -> None:
        self.plural = plural
        self.state = dict(start)
        self.since = since
        # A watch that begins with what is there tells that in the order of the keys.
        self.listed = listed
        self.expired = False
        self.body: Any = response.body

    async def read_all(self) -> None:
        """Takes whatever is there to be read."""
        while not self.expired:
            try:
                async with asyncio.timeout(0.05):
                    data = await anext(self.body)
            except (TimeoutError, StopAsyncIteration):
                return
            for line in bytes(data).splitlines():
                self._take(orjson.loads(line))

    def _take(self, frame: Obj) -> None:
        kind, obj = frame["type"], frame["object"]
        if kind == "ERROR":
            assert obj["code"] == 410 and obj["reason"] == "Expired"
            self.expired = True
            return
        version, name = int(obj["metadata"]["resourceVersion"]), obj["metadata"]["name"]
        if version > self.listed:
            assert version > self.since, f"{kind} of {name} at {version} after {self.since}"
            self.since = version
        else:
            assert kind == "ADDED"
        if kind == "ADDED":
            assert name not in self.state
        else:
            assert name in self.state and self.state[name]["metadata"]["uid"] == obj["metadata"]["uid"]
        if kind == "DELETED":
            del self.state[name]
        else:
            self.state[name] = obj


class Machine:
    """A server, what its answers said, and the watches on it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.api = Api(server)
        # Service kubernetes is there from the start.
        self.known = self.listed(self.stored())
        self.past: list[tuple[int, dict[str, dict[str, Obj]]]] = []
        self.watches: list[Watch] = []

    def body(self, plural: str, name: str, number: int, fault: str) -> Obj:
        """An object, with a fault in it."""
        spec: Obj = {"data": {"key": f"{number}"}}
        if plural == "secrets":
            spec = {"data": {"key": "dmFsdWU="}, "type": "Opaque", "metadata": {"labels": {"n": str(number)}}}
        if plural == "services":
            spec = {"spec": {"ports": [{"port": 80 + number}], "selector": {"app": "x"}}}
        metadata: Obj = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
        kind = KINDS[plural]
        match fault:
            case "bad-name":
                metadata["name"] = "Not_A_Name"
            case "bad-type":
                metadata["labels"] = {"x": 1}
            case "other-kind":
                kind = "Pod"
            case "no-such-key":
                spec["nonsense"] = {"a": 1}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **spec}

    async def call(self, verb: str, plural: str, name: str, number: int, fault: str) -> None:
        """One call; the known state follows its answer."""
        path = f"{SPACE}/{plural}/{name}"
        query = "?dryRun=All" if fault == "dry-run" else ("?fieldValidation=Strict" if fault else "")
        old = self.known[plural].get(name)
        body = self.body(plural, name, number, fault)
        before = self.stored()
        match verb:
            case "create":
                answer = await self.api.send("POST", f"{SPACE}/{plural}{query}", body)
            case "put" | "put-stale":
                version = old["metadata"]["resourceVersion"] if old and verb == "put" else "1"
                body["metadata"]["resourceVersion"] = version
                answer = await self.api.send("PUT", path + query, body)
            case "merge":
                labels = {"labels": {"n": 1 if fault == "bad-type" else str(number)}}
                answer = await self.api.patch(path + query, {"metadata": labels})
            case "json":
                ops = [{"op": "add", "path": "/metadata/annotations", "value": {"n": str(number)}}]
                if fault == "no-such-key":
                    ops = [{"op": "remove", "path": "/metadata/nothing/here"}]
                answer = await self.api.patch(path + query, ops, "json")
            case "finalize":
                held = ["example.com/held"] if number else None
                answer = await self.api.patch(path + query, {"metadata": {"finalizers": held}})
            case "delete" | "delete-uid":
                options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1"}
                if verb == "delete-uid":
                    options["preconditions"] = {"uid": "another"}
                answer = await self.api.send("DELETE", path + query, options)
            case "empty":
                answer = await self.api.send("PUT", path, b"{")
            case _:
                answer = await self.api.send("DELETE", f"{SPACE}/{plural}?labelSelector=n={number}")
        after = self.stored()
        if answer.status >= 400 or "dryRun" in query:
            assert after == before, f"{verb} {fault} answered {answer.status} and changed something"
        if verb in ("put-stale", "delete-uid", "empty"):
            assert answer.status >= 400
        if fault in ("bad-name", "bad-type", "other-kind", "no-such-key") and verb in ("create", "put"):
            assert 400 <= answer.status < 500, answer.body
        self.check_answer(verb, plural, name, answer.status, answer.json, query)
        self.known = self.listed(after)

    def check_answer(self, verb: str, plural: str, name: str, status: int, said: Obj, query: str) -> None:
        """A success says what is stored."""
        if status not in (200, 201) or "dryRun" in query or verb in ("delete", "delete-uid", "collection"):
            return
        entry = self.server.store.get(f"/registry/{plural}/default/{name}")
        if entry is None:  # the last finalizer of an object that was being deleted
            assert verb in ("finalize", "put", "merge", "json")
            return
        assert orjson.loads(entry.value) == said

    def stored(self) -> dict[str, bytes]:
        """Keys and values of the kinds under test."""
        return {
            entry.key: entry.value
            for plural in KINDS
            for entry in self.server.store.scan(f"/registry/{plural}/default/")[0]
        }

    def listed(self, stored: dict[str, bytes]) -> dict[str, dict[str, Obj]]:
        found: dict[str, dict[str, Obj]] = {plural: {} for plural in KINDS}
        for key, value in stored.items():
            _, _, plural, _, name = key.split("/")
            found[plural][name] = orjson.loads(value)
        return found

    async def open(self, plural: str, since: str) -> None:
        """A watch from now, from an earlier list, or with what is there."""
        now = self.server.store.revision
        start, version = self.known, now
        if since == "old" and self.past:
            version, start = self.past[len(self.past) // 2]
        query = {"all": "", "none": "&resourceVersion=0"}.get(since, f"&resourceVersion={version}")
        response = await self.api.response("GET", f"{SPACE}/{plural}?watch=1{query}")
        assert response.status == 200
        if query.endswith(str(version)) and since in ("now", "old"):
            self.watches.append(Watch(plural, response, start[plural], version))
        else:
            self.watches.append(Watch(plural, response, {}, 0, now))

    async def finish(self) -> None:
        """Everything was told, and a list says the same as all GETs."""
        for watch in self.watches:
            await watch.read_all()
            if not watch.expired:
                assert watch.state == self.known[watch.plural]
            if hasattr(watch.body, "aclose"):
                await watch.body.aclose()
        versions = []
        for plural, objects in self.known.items():
            items = (await self.api.get(f"{SPACE}/{plural}")).json["items"]
            assert {i["metadata"]["name"]: i for i in items} == objects
            for name, obj in objects.items():
                assert (await self.api.get(f"{SPACE}/{plural}/{name}")).json == obj
                versions.append(int(obj["metadata"]["resourceVersion"]))
        assert len(set(versions)) == len(versions)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(CALL, CALL, CALL, WATCH), min_size=5, max_size=60))
def test_what_was_answered_is_stored_and_watches_tell_all_of_it(pki_dir: Path, steps: list[Any]) -> None:
    async def play() -> None:
        server = make_server(pki_dir, limits_for("sim").replace(watch_stream_buffer_events=1000))
        await server.start()
        machine = Machine(server)
        try:
            for number, step in enumerate(steps):
                if step[0] == "watch":
                    await machine.open(step[1], step[2])
                else:
                    await machine.call(*step)
                if number % 7 == 0:
                    machine.past.append((server.store.revision, machine.known))
            await machine.finish()
        finally:
            await server.close()

    asyncio.run(play())
