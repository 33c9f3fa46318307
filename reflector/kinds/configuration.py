"""How ConfigMaps, Secrets and custom resources that an administrator opted in are reflected."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from apis import keys, naming, objects, reflection, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import OPTIONAL, ReflectedKind
from apis.reflectionpolicy import NotReflected
from reflector.kinds import contract, fields
from reflector.kinds.contract import (
    Input,
    KindReflection,
    Labelled,
    Placed,
    ReflectionContext,
    Write,
)

CONFIG_MAP_FIELDS: Final = fields.sent(keys.CONFIG_MAP)


def remote_config_map(local: Object, context: ReflectionContext) -> Object:
    """Return the twin of the ConfigMap ``local``.

    Source: docs/parity.md § 6.4.
    """
    made = contract.remote_object(keys.CONFIG_MAP, local, context, keep=CONFIG_MAP_FIELDS)
    made["metadata"]["name"] = remote_config_map_name(objects.key_of(local).name, context.pair)
    return made


def remote_config_map_name(name: str, pair: MappedNamespace) -> str:
    """Return the name at the provider: the provider has a ``kube-root-ca.crt`` of its own."""
    if name == keys.ROOT_CA_CONFIG_MAP:
        return naming.root_ca_config_map(pair.origin)
    return name


def local_config_map_name(name: str, pair: MappedNamespace) -> str:
    if name == naming.root_ca_config_map(pair.origin):
        return keys.ROOT_CA_CONFIG_MAP
    return name


def is_config_map_fixed(wanted: Object, found: Object) -> bool:
    """Whether ``found`` is immutable and says something else."""
    return contract.is_immutable(found, wanted, CONFIG_MAP_FIELDS)


# Secrets ------------------------------------------------------------------------------------------

SECRET_FIELDS: Final = fields.sent(keys.SECRET)
_OPAQUE: Final = "Opaque"


def remote_secret(local: Object, context: ReflectionContext) -> Object:
    """Return the twin of the Secret ``local``; what is protected never comes here.

    Source: docs/parity.md § 6.4.
    """
    return contract.remote_object(keys.SECRET, local, context, keep=SECRET_FIELDS)


def is_secret_fixed(wanted: Object, found: Object) -> bool:
    """Whether ``found`` is of another type, or immutable and says something else."""
    was, is_ = (each.get("type") or _OPAQUE for each in (found, wanted))
    return was != is_ or contract.is_immutable(found, wanted, SECRET_FIELDS)


# Custom resources: spec outwards, status back -----------------------------------------------------

_OWN: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_OBSERVED: Final = "observedGeneration"


def custom_resource(row: ReflectedKind) -> KindReflection:
    def twin(local: Object, context: ReflectionContext) -> Object:
        return contract.remote_object(
            row.twin, local, context, keep=[name for name in local if name not in _OWN]
        )

    def back(
        key: Key, original: Object | None, twin_: Object | None, _context: ReflectionContext
    ) -> Iterable[Write]:
        if original is None or not (twin_ or {}).get("status"):
            return
        changes = status_changes(original, twin_ or {})
        if changes:
            metadata = {"uid": objects.uid(original)}
            yield Write("status", row.kind, key, {"metadata": metadata, "status": changes})

    lacks = contract.lacks(row.twin)
    if row.kind in OPTIONAL:
        return KindReflection(row, twin, lacks=lacks)  # each cluster counts the pods that it has
    return KindReflection(row, twin, lacks=lacks, back=back)


def status_changes(original: Object, twin: Object) -> Object:
    """Return the merge patch that gives ``original`` the status of ``twin``.

    What was observed of the twin's latest generation counts for the original's.
    """
    generations = (_generation(twin), _generation(original))
    return objects.merge_patch(objects.status(original), _at_home(twin["status"], generations))


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation") or 0)


def _at_home(value: Any, generations: tuple[int, int]) -> Any:
    there, here = generations
    if isinstance(value, dict):
        return {
            name: here if name == _OBSERVED and part == there else _at_home(part, generations)
            for name, part in value.items()
        }
    return [_at_home(part, generations) for part in value] if isinstance(value, list) else value


# The policy ``Referenced``: only what offloaded pods mention. Source: docs/parity.md § 6.2; SEC-B6

_UNDER: Final = frozenset({Policy.REFERENCED})


def unless_referenced(kind: Kind) -> Callable[[Object, ReflectionContext], NotReflected | None]:
    """Return the decision on objects of ``kind``: by all policies, this one included."""

    def judged(original: Object, context: ReflectionContext) -> NotReflected | None:
        stay = reflectionpolicy.reason_to_stay(kind, original, context.policy)
        if stay is not None or context.policy is not Policy.REFERENCED:
            return stay
        wanted = (kind, objects.key_of(original).name)
        pods: Iterable[Placed] = context.lister.each(keys.POD)
        if any(wanted in pod.mentions and _is_offloaded(pod, context) for pod in pods):
            return None
        return NotReflected(reflectionpolicy.UNMENTIONED, is_told=False)

    return judged


def of_references(kind: Kind) -> tuple[Input, ...]:
    """Return what is looked at for objects of ``kind``, under this policy only."""

    def of_pod(old: Placed | None, new: Placed | None, context: ReflectionContext) -> Iterable[Key]:
        if new is not None and new.says_the_same(old):
            return []
        names = {
            name
            for pod in (old, new)
            if pod
            for mentioned, name in pod.mentions
            if mentioned == kind
        }
        return [Key(context.pair.local_namespace, name) for name in names]

    def of_node(
        old: Labelled | None, new: Labelled | None, context: ReflectionContext
    ) -> Iterable[Key]:
        changed = new or old
        if changed is None or (new is not None and new.says_the_same(old)):
            return []
        pods = (pod for pod in context.lister.each(keys.POD) if pod.node == changed.metadata.name)
        return [key for pod in pods for key in of_pod(None, pod, context)]

    return (
        Input(keys.POD, of_pod, shape=Placed, policies=_UNDER),
        Input(keys.NODE, of_node, shape=Labelled, policies=_UNDER),
    )


def _is_offloaded(pod: Placed, context: ReflectionContext) -> bool:
    node: Any = context.lister.get(keys.NODE, Key("", pod.node)) if pod.node else None
    return node is not None and bool(node.is_node_of(context.pair.destination))


CONFIG_MAP_REFLECTION: Final = KindReflection(
    reflection.CONFIG_MAP,
    remote_config_map,
    lacks=contract.lacks(keys.CONFIG_MAP),
    is_fixed=is_config_map_fixed,
    stays=unless_referenced(keys.CONFIG_MAP),
    twin_name=remote_config_map_name,
    original_name=local_config_map_name,
    inputs=of_references(keys.CONFIG_MAP),
)
SECRET_REFLECTION: Final = KindReflection(
    reflection.SECRET,
    remote_secret,
    lacks=contract.lacks(keys.SECRET),
    is_fixed=is_secret_fixed,
    stays=unless_referenced(keys.SECRET),
    selector=(f"!{keys.SERVICE_ACCOUNT_NAME}",),
    inputs=of_references(keys.SECRET),
)
