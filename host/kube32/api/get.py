"""GET of one object: the stored bytes as they are."""

from kube32.api import crud, rules
from kube32.api.custom.resource import CustomResource
from kube32.api.http import Request, Response
from kube32.api.list import check_version
from kube32.api.routes import RequestInfo
from kube32.store import ReadingStore

_PLAIN = (None, "application/json", "*/*")


def stored(store: ReadingStore, request: Request, info: RequestInfo) -> Response | None:
    """The short way of a GET without options that takes JSON; None when `handle` has to look closer."""
    if request.query_string or info.resource is None or request.headers.get("Accept") not in _PLAIN:
        return None
    entry = store.get(info.resource.object_key(info.namespace, info.name))
    if entry is None or (isinstance(info.resource, CustomResource) and info.resource.deprecation):
        return None
    return Response(200, rules.shown(info.resource, entry).value)


def handle(call: crud.Call) -> Response:
    """200 with the object; ApiFailure 404, 406, 504."""
    if call.request.query_string:
        check_version(call.reads, call.request.q("resourceVersion"))
    return crud.answer(call, 200, call.existing())
