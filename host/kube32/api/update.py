"""PUT of an object or of its status: checked when it carries a resourceVersion, else the last writer wins.

Source: decisions, "Departures from the seeds".
"""

import orjson

from kube32.api import crud, metadata
from kube32.api.http import Response

_CREATED_BY_UPDATE = ("Event", "Lease")


async def handle(call: crud.Call) -> Response:
    """200 with the object as it is stored, 201 for an Event or a Lease that was not there.

    ApiFailure 400, 403, 404, 409, 413, 415, 422.
    """
    obj = await call.object()
    checked = bool(obj["metadata"].get("resourceVersion"))
    absent = call.store.get(call.key) is None
    if absent and not checked and call.resource.builtin in _CREATED_BY_UPDATE and not call.info.subresource:
        obj["metadata"].setdefault("name", call.info.name)
        metadata.place(call.resource, obj["metadata"], call.info.namespace, call.info.name)
        return crud.answer(call, 201, crud.create(call, obj))
    body = orjson.dumps(obj)
    entry = crud.retry(call, lambda _: orjson.loads(body))
    return crud.answer(call, 200, entry)
