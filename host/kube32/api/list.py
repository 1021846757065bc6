"""LIST: the stored bytes of a collection inside a list's envelope, in pages when asked.

A page continues over the live store and keeps the first page's resourceVersion: a watch from there replays
whatever changed while the pages were read, so that a client that lists and watches misses nothing.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson

from kube32.api import crud, rules, selectors, tables
from kube32.api.http import Request, Response
from kube32.api.status import Cause, bad_request, dump, expired, invalid, version_too_large
from kube32.contract import text
from kube32.store import Entry, ReadingStore

_MATCHES = ("Exact", "NotOlderThan")
_SCAN_ITEMS = 500


@dataclass(slots=True)
class Page:
    """One page: its objects, the list's revision, how to go on ("": the end), how many follow if known."""

    entries: list[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None


@dataclass(slots=True)
class Position:
    """Where a list goes on: the revision of its first page, the last key (without prefix), objects so far."""

    revision: int = 0
    last: str = ""
    seen: int = 0


def handle(call: crud.Call) -> Response:
    """200 with the list; ApiFailure 400, 406, 410, 422, 504."""
    tables.negotiate(call.request.headers.get("Accept") or "")
    return answer(call, read(call))


def answer(call: crud.Call, page: Page) -> Response:
    """200 with a page in the form that the Accept header asks for; ApiFailure 400, 406."""
    request = call.request
    view = tables.negotiate(request.headers.get("Accept") or "")
    include = tables.include_of(request.q("includeObject")) if view.is_table else ""
    if view is tables.View.JSON:
        body = _json(call, page)
    else:
        objects = (entry.obj for entry in page.entries)
        if view.is_table:
            made = tables.table(
                call.resource,
                objects,
                page.revision,
                include,
                continue_token=page.token,
                remaining=page.remaining,
                view=view,
            )
        else:
            made = tables.partial_list(
                objects, page.revision, continue_token=page.token, remaining=page.remaining, view=view
            )
        body = dump(made)
    return Response(200, body, crud.warning_headers(call.notes))


def _json(call: crud.Call, page: Page) -> bytes:
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
    if page.remaining is not None:
        meta["remainingItemCount"] = page.remaining
    resource = call.resource
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
    items = b",".join([entry.value for entry in page.entries])
    return b"".join((orjson.dumps(head)[:-1], b',"items":[', items, b"]}"))


def read(call: crud.Call, token: str = "") -> Page:
    """The objects that a list asks for, from the request's continue token or a later page's; ApiFailure 400,
    410, 422, 504.
    """
    request = call.request
    if not request.query_string and not token:
        return _page(call, None, call.limits.api_list_page_items, Position())
    match = selectors.match_of(call.resource, request.q("labelSelector"), request.q("fieldSelector"))
    check_options(request)
    check_version(call.reads, request.q("resourceVersion"))
    if request.q("resourceVersionMatch") == "Exact":
        asked, current = int(request.q("resourceVersion")), call.reads.revision
        if asked < current:
            raise expired(text("answers", "expired", asked=asked, oldest=current))
    limit = min(_limit(request) or call.limits.api_list_page_items, call.limits.api_list_page_items)
    position = _decode(token or request.q("continue"))
    if position.revision > call.reads.revision:
        raise expired(text("answers", "expired", asked=position.revision, oldest=call.reads.revision))
    return _page(call, match, limit, position)


def check_version(store: ReadingStore, value: str) -> None:
    """ApiFailure 400 for a resourceVersion that is no number, 504 for one that was not given out yet."""
    if value in ("", "0"):
        return
    version = version_number(value)
    if version > store.revision:
        raise version_too_large(version, store.revision)


def version_number(value: str) -> int:
    """A resourceVersion as a number; ApiFailure 400."""
    if not value.isascii() or not value.isdigit() or len(value) > 20:
        raise bad_request(f'invalid resource version "{value}": it is not a number')
    return int(value)


def check_options(request: Request) -> None:
    """ApiFailure 400 and 422 for options of a list that exclude each other."""
    match, version = request.q("resourceVersionMatch"), request.q("resourceVersion")
    if request.q("continue"):
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        if match:
            raise forbidden_option("resourceVersionMatch is forbidden when continue is provided")
    if match:
        if not version:
            raise forbidden_option("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match not in _MATCHES:
            raise unsupported_match(match, _MATCHES)
        if match == "Exact" and version == "0":
            raise forbidden_option('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if request.q("sendInitialEvents"):
        cause = Cause(
            "sendInitialEvents",
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents is forbidden for list",
        )
        raise _invalid_options(cause)


def forbidden_option(why: str, option: str = "resourceVersionMatch") -> Exception:
    """422 of an option that must not be given here."""
    return _invalid_options(Cause(option, "FieldValueForbidden", f"Forbidden: {why}"))


def unsupported_match(value: str, supported: tuple[str, ...]) -> Exception:
    """422 of a resourceVersionMatch that is unknown."""
    names = ", ".join(f'"{s}"' for s in supported)
    message = f'Unsupported value: "{value}": supported values: {names}'
    return _invalid_options(Cause("resourceVersionMatch", "FieldValueNotSupported", message))


def _invalid_options(cause: Cause) -> Exception:
    return invalid("ListOptions.meta.k8s.io", "", [cause])


def _limit(request: Request) -> int:
    value = request.q("limit")
    if not value:
        return 0
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise bad_request(f'invalid limit "{value}": it is not a number of objects')
    return int(value)


def _page(call: crud.Call, match: selectors.Match | None, limit: int, position: Position) -> Page:
    prefix, store = call.prefix, call.reads
    after = prefix + position.last if position.last else ""
    if match is None:
        found, revision = store.scan(prefix, after=after, limit=limit + 1)
    else:
        found, revision = _matching(store, prefix, after, match, limit + 1)
    page = Page([rules.shown(call.resource, e) for e in found[:limit]], position.revision or revision)
    if len(found) > limit:
        seen = position.seen + limit
        page.token = _encode(Position(page.revision, page.entries[-1].key.removeprefix(prefix), seen))
        if match is None:
            page.remaining = max(store.count(prefix) - seen, 1)
    return page


def _matching(
    store: ReadingStore, prefix: str, after: str, match: selectors.Match, wanted: int
) -> tuple[list[Entry], int]:
    found: list[Entry] = []
    revision = store.revision
    while True:
        entries, _ = store.scan(prefix, after=after, limit=_SCAN_ITEMS)
        for entry in entries:
            if match(entry.obj):
                found.append(entry)
                if len(found) == wanted:
                    return found, revision
        if len(entries) < _SCAN_ITEMS:
            return found, revision
        after = entries[-1].key


def _encode(position: Position) -> str:
    made = orjson.dumps({"rv": position.revision, "last": position.last, "seen": position.seen})
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _decode(token: str) -> Position:
    if not token:
        return Position()
    try:
        value = orjson.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        position = Position(value["rv"], value["last"], value["seen"])
    except (ValueError, binascii.Error, KeyError, TypeError):
        raise bad_request("continue key is not valid: it is none that a list of this server gave") from None
    kinds = (type(position.revision), type(position.last), type(position.seen))
    if kinds != (int, str, int) or position.revision < 1 or position.seen < 0:
        raise bad_request("continue key is not valid: it is none that a list of this server gave")
    return position
