"""The cluster's RBAC: built-in roles made at the start, the index kept up with the store, and its decisions.

Built in are Kubernetes' own roles as far as a small cluster serves what they speak of. `view` is Kubernetes'
(everything in a namespace but Secrets, roles and proxies) plus Kube32's: read of nodes, namespaces, modules,
ingress classes, leases and checkpoints, but not of checkpoints' data. In profiles without role objects the same rules
hold for the groups system:masters and kube32:view.
"""

import logging
from typing import Any

from kube32.api import metadata
from kube32.api.http import UserInfo
from kube32.api.rbac import aggregation
from kube32.api.rbac.index import Decision, Index
from kube32.api.rbac.rules import Attributes, compile_rules, missing
from kube32.contract import Limits, resource_of
from kube32.contract.rbac import AUTOUPDATE, builtin_bindings, builtin_roles
from kube32.store import Change, NotFound, Store, StoreError

_log = logging.getLogger(__name__)
Object = dict[str, Any]
KINDS = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


class Rbac:
    """Decides by the roles and bindings of a store. Any thread may ask."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self.limits = limits
        self._roles = resource_of("ClusterRole")
        self.offered = limits.profile in self._roles.profiles
        self.index = Index(limits.rbac_users)
        if not self.offered:
            self._hold_builtin()
            return
        for kind in KINDS:
            prefix = resource_of(kind).prefix
            store.subscribe(prefix, self._changed)
            for entry in store.scan(prefix)[0]:
                self.index.apply(entry.key, entry.obj)

    def decide(self, user: UserInfo, wanted: Attributes) -> Decision:
        """Whether a binding allows it."""
        return self.index.decide(user, wanted)

    def bootstrap(self) -> None:
        """Makes the built-in roles and bindings that are missing; gives those that are there rules they lack."""
        if not self.offered:
            return
        for obj in (*aggregation.filled(builtin_roles()), *builtin_bindings()):
            key = resource_of(obj["kind"]).object_key("", obj["metadata"]["name"])
            entry = self._store.get(key)
            if entry is None:
                obj["metadata"].update(uid=metadata.new_uid(), creationTimestamp=metadata.now())
                self._store.put(key, obj)
            elif obj["kind"] == "ClusterRole" and not aggregation.is_aggregated(obj):
                self._reconcile(key, obj)

    def _reconcile(self, key: str, builtin: Object) -> None:
        """Adds the rules that a built-in role of an older release lacks, unless its owner forbids it."""

        def more(stored: Object) -> Object | None:
            if (stored["metadata"].get("annotations") or {}).get(AUTOUPDATE) != "true":
                return None
            lacking = missing(
                compile_rules(stored.get("rules")), builtin["rules"], self.limits.rbac_rule_parts
            )
            return {**stored, "rules": [*(stored.get("rules") or ()), *lacking]} if lacking else None

        self._store.update(key, more)

    def _changed(self, change: Change) -> None:
        """Hears of every change of a role or binding, in order."""
        obj = None if change.type == "DELETED" else change.entry.obj
        self.index.apply(change.key, obj)
        if change.key.startswith(self._roles.prefix):
            self._aggregate()

    def _aggregate(self) -> None:
        """Fills in the rules of one aggregated ClusterRole that lacks some: that change leads here again."""
        roles = [entry.obj for entry in self._store.scan(self._roles.prefix)[0]]
        for role in roles:
            if aggregation.is_aggregated(role):
                rules = aggregation.rules_of(role, roles)
                if not aggregation.same(rules, role.get("rules") or []):
                    self._fill_in(role["metadata"]["name"], rules)
                    return

    def _fill_in(self, name: str, rules: list[Object]) -> None:
        def fill(stored: Object) -> Object | None:
            return {**stored, "rules": rules} if aggregation.is_aggregated(stored) else None

        try:
            self._store.update(self._roles.object_key("", name), fill)
        except NotFound:
            return
        except StoreError as error:
            _log.warning("the rules of ClusterRole %s cannot be filled in: %s", name, error)

    def _hold_builtin(self) -> None:
        """The built-in roles and bindings as if they were stored."""
        for obj in (*aggregation.filled(builtin_roles()), *builtin_bindings()):
            self.index.apply(resource_of(obj["kind"]).object_key("", obj["metadata"]["name"]), obj)
