"""The twin namespace, its binding, and which entry of a map may have it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from apis import authentication, keys, naming, objects, ownership, providerpolicy
from apis.authentication import Binding
from apis.objects import Key, Kind, Object
from apis.offloading import CurrentMapping as Entry
from apis.offloading import MappingPhase, NamespaceMap
from apis.providerpolicy import ProviderPolicy

ACCEPTED: Final = MappingPhase.ACCEPTED
FAILED: Final = MappingPhase.CREATION_LOOP_BACK_OFF
TERMINATING: Final = MappingPhase.TERMINATING
MESSAGES: Final = 300_000
"""Characters of all messages of a map: with 2,000 entries it still has room for its deletion."""


@dataclass(frozen=True)
class MapTenant:
    """Who asks, by the provider's own record: its tenant namespace and that one's label."""

    namespace: str
    cluster_id: str


class NamespaceRefusedError(Exception):
    """An entry that may not be served; ``reason`` and message go into its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def tenant(namespace: Object | None, namespace_map: Object) -> MapTenant:
    """Return whose map it is: labels of the map are believed only if the record agrees.

    Raises:
        NamespaceRefusedError: the namespace is no tenant's, or the map claims another origin.
    Source: docs/parity.md SEC-A7.
    """
    where = objects.key_of(namespace_map)
    cluster_id = ownership.peer_of(namespace)
    if not cluster_id:
        raise NamespaceRefusedError(
            "NoTenant", f"namespace {where.namespace} is no tenant namespace"
        )
    if not ownership.origin(namespace_map, cluster_id):
        message = f"namespacemap {where} does not come from cluster {cluster_id}"
        raise NamespaceRefusedError("OriginMismatch", message)
    return MapTenant(where.namespace, cluster_id)


def check_welcome(tenant_: MapTenant, tenants: Iterable[Object]) -> None:
    """Refuse a consumer whose Tenant is refused, drained or goes: no right is given, or given back.

    Raises:
        NamespaceRefusedError: its Tenant says so.
    Source: docs/parity.md SEC-A9.
    """
    for found in tenants:
        key = objects.key_of(found)
        if key.namespace != tenant_.namespace:
            continue
        if objects.is_terminating(found) or objects.spec(found).get("tenantCondition") == "Drained":
            raise NamespaceRefusedError(
                "TenantRefused", f"tenant {key} is drained, or is being deleted"
            )
        status = objects.status(found)
        ready = objects.find_condition(status.get("conditions"), "Ready") or {}
        if ready.get("status") == "False":
            why = f"{ready.get('reason')}: {ready.get('message')}"
            raise NamespaceRefusedError("TenantRefused", f"tenant {key} is refused: {why}")


def status(entries: Mapping[str, Entry], policy: ProviderPolicy) -> Object:
    """Return the whole status: {currentMapping: {local: {remoteNamespace, ...}}, offered: {}}."""
    if not entries:
        return {}
    shown_ = {local: _shown(entries[local]) for local in sorted(entries)}
    return {"currentMapping": shown_, "offered": providerpolicy.shown_offers(policy)}


def clipped(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return ``entries`` with messages that all have room in one object."""
    most = MESSAGES // max(len(entries), 1)
    return {local: replace(entry, message=entry.message[:most]) for local, entry in entries.items()}


def _shown(entry: Entry) -> Object:
    shown: Object = {"remoteNamespace": entry.remote_namespace}
    if entry.phase is not None:
        shown["phase"] = entry.phase.value
    if entry.reason:
        shown |= {"reason": entry.reason, "message": entry.message}
    return shown


def owner_mark(namespace_map: Object) -> str:
    """Return the value of the annotation that records the owner of a twin."""
    return str(objects.key_of(namespace_map))


def owner_of(obj: Object) -> Key | None:
    """Return the NamespaceMap that a namespace or binding was made for, if any."""
    mark = objects.annotations(obj).get(keys.MANAGED_BY_NAMESPACE_MAP, "")
    namespace, slash, name = mark.partition("/")
    return Key(namespace, name) if slash and namespace and name else None


def is_twin(namespace: Object, namespace_map: Object, local: str) -> bool:
    annotations = objects.annotations(namespace)
    return (
        owner_of(namespace) == objects.key_of(namespace_map)
        and annotations.get(keys.ORIGINAL_NAME) == local
    )


def check_name(name: str) -> None:
    """Refuse a name that nobody gets.

    Raises:
        NamespaceRefusedError: it is no name of a namespace, or reserved.
    """
    if not naming.is_dns_label(name):
        raise NamespaceRefusedError("InvalidName", f"{name!r} is no valid name for a namespace")
    if naming.is_reserved(name):
        message = f"namespace {name} is reserved on this cluster: select another remote name"
        raise NamespaceRefusedError("NameReserved", message)


def bound_elsewhere(bindings: Iterable[tuple[Kind, Binding]]) -> dict[str, str]:
    """Return the namespaces whose ServiceAccounts have rights outside of them, with one binding.

    A namespace of that name would have these rights: they outlived it, or are there before it.
    Source: docs/parity.md X7.
    """
    return {
        name: f"{kind} {Key(binding.metadata.namespace, binding.metadata.name)}"
        for kind, binding in bindings
        for name in binding.account_namespaces()
        if name != binding.metadata.namespace
    }


def check_accounts(name: str, bound: Mapping[str, str]) -> None:
    """Refuse a new namespace whose ServiceAccounts somebody has given rights elsewhere.

    Raises:
        NamespaceRefusedError: the message names the binding.
    """
    if binding := bound.get(name):
        message = f"{binding} gives rights to service accounts of a namespace {name}"
        cure = "select another remote name, or ask the provider to delete that binding"
        raise NamespaceRefusedError("NameBound", f"{message}: {cure}")


def check_twin(namespace: Object, namespace_map: Object, local: str) -> None:
    """Refuse to touch a namespace that was not made for ``local`` by this map: no adoption.

    Raises:
        NamespaceRefusedError: somebody else's, or another local namespace's.
    """
    if is_twin(namespace, namespace_map, local):
        return
    name = namespace["metadata"]["name"]
    if owner_of(namespace) == objects.key_of(namespace_map):
        other = objects.annotations(namespace).get(keys.ORIGINAL_NAME, "")
        message = f"namespace {name} is already the twin of namespace {other}"
    else:
        cure = "choose another with SelectedName and spec.remoteNamespaceName"
        message = f"namespace {name} exists already and is not managed for this cluster: {cure}"
    raise NamespaceRefusedError("Conflict", message)


class NamespaceLimit:
    """The twins of one tenant, and how many it may have, as one look of ``asker`` finds them.

    ``given`` are those that its maps were given since this process began, by name: all looks of a
    tenant share it, for no cache has seen yet what another look has just made.
    """

    def __init__(  # one look, all of it
        self,
        twins: Iterable[Object],
        asker: Key,
        tenant_: MapTenant,
        policy: ProviderPolicy,
        given: dict[str, Key],
    ) -> None:
        owners = ((owner_of(twin), twin["metadata"]["name"]) for twin in twins)
        self._seen = {name for owner, name in owners if owner and owner[0] == asker.namespace}
        self._asker, self._tenant, self._policy, self._given = asker, tenant_, policy, given
        self._limit = policy.remote_namespaces.max

    def take(self, local: str, name: str) -> None:
        """Make room for one more twin; it is given back with ``leave`` if none is made.

        Raises:
            NamespaceRefusedError: the ProviderPolicy allows no such name, or all are taken.
        """
        check_policy(local, name, self._tenant.cluster_id, self._policy)
        taken = self._seen | self._given.keys()
        if name in taken:
            return
        if len(taken) >= self._limit:
            name = self._policy.name
            raise NamespaceRefusedError(
                "TooManyNamespaces",
                f"the limit of {self._limit} namespaces is reached (spec.remoteNamespaces.max of"
                f" providerpolicy {name}): unoffload one, or ask the provider for more",
            )
        self._given[name] = self._asker

    def leave(self, name: str) -> None:
        if self._given.get(name) == self._asker:
            del self._given[name]


def check_policy(local: str, name: str, consumer: str, policy: ProviderPolicy) -> None:
    """Refuse a new twin that the provider does not want, by its name or by how it came to it.

    Raises:
        NamespaceRefusedError: the message names the rule, and what to choose instead.
    """
    if not policy.allows_strategy(local, name, consumer):
        asked = providerpolicy.strategy_of(local, name, consumer).value
        accepted = ", ".join(sorted(one.value for one in policy.namespace_mapping_strategies or ()))
        message = f"providerpolicy {policy.name} accepts no namespaceMappingStrategy {asked}"
        raise NamespaceRefusedError("StrategyNotAllowed", f"{message}, only: {accepted or 'none'}")
    if name in naming.INSTALLED and not policy.remote_namespaces.pattern:
        message = f"namespace {name} is kept for software of this cluster that is installed there"
        opened = f"spec.remoteNamespaces.pattern of providerpolicy {policy.name} opens it"
        raise NamespaceRefusedError(
            "NameReserved", f"{message}: select another remote name, or {opened}"
        )
    if not policy.allows_name(name):
        message = f"providerpolicy {policy.name} allows no namespace {name} for {local}"
        cure = f"names match {policy.remote_namespaces.pattern}: select another remote name"
        raise NamespaceRefusedError("NameNotAllowed", f"{message}, {cure}")


def is_served(
    namespace_map: Object,
    local: str,
    twin: Object | None,
    bound: Iterable[Object | None],
    policy: ProviderPolicy,
) -> bool:
    """Whether ``local`` has its ``twin``, and all that lets this cluster and the tenant in."""
    if twin is None or objects.is_terminating(twin):
        return False
    owner = objects.key_of(namespace_map)
    is_ours = is_twin(twin, namespace_map, local) and not outdated(twin, policy)
    return is_ours and all(each is not None and owner_of(each) == owner for each in bound)


def outdated(twin: Object, policy: ProviderPolicy) -> Object:
    """Return the changes of metadata that the policy asks for now, {} for none.

    The Pod Security level is raised and never lowered.
    """
    level, had = policy.pod_security_level, objects.labels(twin).get(keys.POD_SECURITY_ENFORCE, "")
    labels = {keys.POD_SECURITY_ENFORCE: level} if providerpolicy.is_stricter(level, had) else {}
    said = objects.annotations(twin)
    notes = {
        name: text
        for name, text in providerpolicy.offer_annotations(policy).items()
        if said.get(name) != text
    }
    changes = {"labels": labels, "annotations": notes}
    return {name: change for name, change in changes.items() if change}


def namespace(
    name: str, local: str, namespace_map: Object, tenant_: MapTenant, policy: ProviderPolicy
) -> Object:
    """Return the twin namespace to create.

    Source: docs/parity.md SEC-A1, SEC-A17.
    """
    said = {
        name: text
        for name, text in providerpolicy.offer_annotations(policy).items()
        if text is not None
    }
    metadata = {
        "labels": {
            keys.REMOTE_CLUSTER_ID: tenant_.cluster_id,
            keys.LIQO_MANAGED: "true",
            keys.POD_SECURITY_ENFORCE: policy.pod_security_level,
        },
        "annotations": {
            keys.MANAGED_BY_NAMESPACE_MAP: owner_mark(namespace_map),
            keys.ORIGINAL_NAME: local,
            **said,
        },
    }
    return objects.named(keys.NAMESPACE, Key("", name), metadata=metadata)


def bindings(name: str, namespace_map: Object, tenant_: MapTenant, account: Key) -> list[Object]:
    """Return what lets this cluster's controllers, then the tenant's kubelets, into twin ``name``.

    In this order: who asks for a Pod there can be given one. ``account`` is the controllers' own.
    """
    metadata = {
        "labels": {**ownership.MANAGED, keys.REMOTE_CLUSTER_ID: tenant_.cluster_id},
        "annotations": {keys.MANAGED_BY_NAMESPACE_MAP: owner_mark(namespace_map)},
    }
    own = authentication.account_subject(account)
    group = authentication.subject("Group", tenant_.cluster_id)
    given = [
        (Key(name, account.name), own, keys.CONTROLLER_MANAGER_TWIN_ROLE),
        (Key(name, tenant_.namespace), group, keys.VIRTUAL_KUBELET_REMOTE_ROLE),
    ]
    made = (authentication.binding(key, metadata, whom, role) for key, whom, role in given)
    return [grant.wanted for grant in made]


def leftovers(namespace_map: Object, owned: Iterable[Object]) -> dict[str, str]:
    """Return what has to go, the local namespace by the twin's name.

    That is every entry shown and every namespace recorded as ours that nobody asks for any more,
    or that is asked for under another name; all of them when the map itself goes. What is no name
    has no twin, and is not asked for: to ask for a/b is to ask for something else.
    """
    parsed = NamespaceMap.parse(namespace_map)
    wanted = {} if objects.is_terminating(namespace_map) else parsed.desired
    shown = {entry.remote_namespace: local for local, entry in parsed.current.items()}
    recorded = {
        each["metadata"]["name"]: objects.annotations(each).get(keys.ORIGINAL_NAME, "")
        for each in owned
        if owner_of(each) == objects.key_of(namespace_map)
    }
    known = {**shown, **recorded}
    return {
        name: local
        for name, local in known.items()
        if naming.is_dns_label(name) and wanted.get(local) != name
    }
