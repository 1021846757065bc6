"""POST of a new object to a collection."""

from kube32.api import crud
from kube32.api.http import Response


async def handle(call: crud.Call) -> Response:
    """201 with the object as it is stored; ApiFailure 400, 403, 404, 409, 413, 415, 422."""
    obj = await call.object()
    return crud.answer(call, 201, crud.create(call, obj))
