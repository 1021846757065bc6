"""Impersonate-User, -Group, -Uid and -Extra-...: asking as somebody else (`kubectl --as`), for those who hold the
verb `impersonate` on each of them.
"""

from collections.abc import Callable, Mapping
from urllib.parse import unquote

from multidict import CIMultiDict

from kube32.api.authorizer import refusal
from kube32.api.http import Request, UserInfo
from kube32.api.identity.accounts import groups_of
from kube32.api.rbac.index import Decision
from kube32.api.rbac.rules import Attributes
from kube32.api.status import bad_request
from kube32.contract import NAMES, Limits, text

_PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"
Decide = Callable[[UserInfo, Attributes], Decision]


def asked_for(headers: Mapping[str, str]) -> bool:
    """Whether a request wants to be somebody else's."""
    return any(name[:12].lower() == _PREFIX for name in headers)


def apply(request: Request, user: UserInfo, decide: Decide, limits: Limits) -> UserInfo:
    """Who `user` is for this request; its headers go. ApiFailure 400 without a user's name, 403."""
    name, uid, groups, extra = _read(request.headers, limits)
    for wanted in _needed(name, uid, groups, extra):
        decision = decide(user, wanted)
        if not decision.allowed:
            raise refusal(user, wanted, decision.reason)
    kept = ((k, v) for k, v in request.headers.items() if k[:12].lower() != _PREFIX)
    request.headers = CIMultiDict(kept)
    request.impersonator = user
    return UserInfo(name, _groups(name, groups), uid, extra)


def _read(headers: Mapping[str, str], limits: Limits) -> tuple[str, str, list[str], dict[str, list[str]]]:
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, value in headers.items():
        lowered = key.lower()
        if lowered == "impersonate-user":
            name = value
        elif lowered == "impersonate-uid":
            uid = value
        elif lowered == "impersonate-group":
            groups.append(value)
        elif lowered.startswith(_EXTRA):
            extra.setdefault(unquote(lowered[len(_EXTRA) :]), []).append(value)
    if not name:
        what = [*([uid] if uid else []), *groups, *extra]
        raise bad_request(text("answers", "impersonate_alone", what=", ".join(what) or "something"))
    if len(groups) + sum(len(values) for values in extra.values()) > limits.impersonation_values:
        raise bad_request(text("answers", "impersonate_many", limit=limits.impersonation_values))
    return name, uid, groups, extra


def _needed(name: str, uid: str, groups: list[str], extra: dict[str, list[str]]) -> list[Attributes]:
    """Each thing that the verb `impersonate` is needed on."""
    account = _account(name)
    needed = [
        Attributes("impersonate", "", "serviceaccounts", "", *account)
        if account
        else Attributes("impersonate", "", "users", name=name)
    ]
    needed.extend(Attributes("impersonate", "", "groups", name=group) for group in groups)
    needed.extend(
        Attributes("impersonate", _AUTHENTICATION, "userextras", key, name=value)
        for key, values in extra.items()
        for value in values
    )
    if uid:
        needed.append(Attributes("impersonate", _AUTHENTICATION, "uids", name=uid))
    return needed


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount that a user name means."""
    if not name.startswith(NAMES.user_account_prefix):
        return None
    namespace, _, account = name[len(NAMES.user_account_prefix) :].partition(":")
    return (namespace, account) if namespace and account and ":" not in account else None


def _groups(name: str, groups: list[str]) -> tuple[str, ...]:
    """The groups of who is impersonated: a ServiceAccount's own when none are asked for."""
    account = _account(name)
    if account and not groups:
        return groups_of(account[0])
    if name == NAMES.user_anonymous:
        known = NAMES.group_unauthenticated
    else:
        known = NAMES.group_authenticated
    others = (NAMES.group_authenticated, NAMES.group_unauthenticated)
    return tuple(groups) if any(g in groups for g in others) else (*groups, known)
