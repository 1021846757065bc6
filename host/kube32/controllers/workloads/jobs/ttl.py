"""ttlSecondsAfterFinished: finished Jobs go after a time ("Clocks" of the decisions: counted on our own clock)."""

import asyncio
from collections.abc import Callable

from kube32.client.api import ApiClient, ApiError
from kube32.client.informer import Informer, Key, key_of
from kube32.controllers.deadlines import Deadlines
from kube32.controllers.objects import Obj, condition, is_deleting, seconds_since, spec_of, status_of, uid_of
from kube32.controllers.workloads.jobs.status import is_finished

_KIND = "Job"
_Ticket = tuple[str, str, str]


class JobTtl:
    """Follows Jobs. The end of a Job is when we saw it; one that was over before we came goes by its stamp."""

    def __init__(self, client: ApiClient, jobs: Informer) -> None:
        self._client = client
        self._jobs = jobs
        self._ended: dict[str, float] = {}
        self._due: Deadlines[_Ticket] = Deadlines()

    def follow(self) -> Callable[[], None]:
        """Begins to follow the watch; gives the end."""
        return self._jobs.subscribe(self._on_job)

    async def run(self) -> None:
        """Deletes Jobs as their time comes, until cancelled."""
        await self._due.run(self._delete)

    def _on_job(self, kind: str, job: Obj, old: Obj | None) -> None:
        if old is not None and uid_of(old) != uid_of(job):
            self._forget(old)
        seconds = spec_of(job).get("ttlSecondsAfterFinished")
        if kind == "DELETED" or is_deleting(job) or not is_finished(job):
            self._forget(job)
            return
        now, uid = asyncio.get_running_loop().time(), uid_of(job)
        if uid not in self._ended:
            watched = old is not None and uid_of(old) == uid and not is_finished(old)
            past = 0.0 if watched else _seconds_over(job)
            self._ended[uid] = now - past
        if seconds is None:
            self._due.drop(_ticket(job))
        elif old is None or spec_of(old).get("ttlSecondsAfterFinished") != seconds or not is_finished(old):
            self._due.set(_ticket(job), max(self._ended[uid] + int(seconds) - now, 0.0))

    def _forget(self, job: Obj) -> None:
        self._ended.pop(uid_of(job), None)
        self._due.drop(_ticket(job))

    async def _delete(self, ticket: _Ticket) -> None:
        namespace, name, uid = ticket
        job = self._jobs.get(namespace, name)
        if job is None or uid_of(job) != uid or not is_finished(job):
            return
        try:
            await self._client.delete(_KIND, name, namespace, uid=uid, propagation="Foreground")
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _seconds_over(job: Obj) -> float:
    """For how long the Job has been over by its own stamps; 0 when a clock was unset."""
    done = condition(job, "Complete") or condition(job, "Failed") or {}
    stamp = status_of(job).get("completionTime") or done.get("lastTransitionTime")
    return max(seconds_since(str(stamp or "")) or 0.0, 0.0)


def _ticket(job: Obj) -> _Ticket:
    key: Key = key_of(job)
    return (*key, uid_of(job))
