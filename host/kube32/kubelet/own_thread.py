"""Work that may take as long as a hostile module wants: on a thread of its own, not on the loop's few
workers.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def on_own_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The function's result or exception. When nobody waits for it any more, a result with `close` is
    closed.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def settle(result: R | None, fault: BaseException | None) -> None:
        if done.done():
            close = getattr(result, "close", None)
            if close is not None:
                close()
        elif fault is not None:
            done.set_exception(fault)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, fault = None, None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=work, name=function.__name__, daemon=True).start()
    return await done
