"""GET of one object: the stored bytes as they are."""

from kube32.api import crud
from kube32.api.http import Response
from kube32.api.list import check_version


def handle(call: crud.Call) -> Response:
    """200 with the object; ApiFailure 404, 406, 504."""
    if call.request.query_string:
        check_version(call.store, call.request.q("resourceVersion"))
    return crud.answer(call, 200, call.existing())
