"""One handler a webhook: look up what the rule needs, and ask the rule. No rule is in here."""

from collections.abc import Mapping
from typing import Final, Protocol

from apis import keys
from apis.objects import Key, Kind, Object, is_terminating, labels
from apis.offloading import NamespaceOffloading
from kube.errors import KubeError
from webhook.admission import Admitted, DeniedError, Request
from webhook.rules import namespaceoffloadings, pods

EARLY_S: Final = 0.5
"""What a pod outside labelled namespaces waits for the API server's word, and no longer."""

_CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


class Lookup(Protocol):
    """A ``kube.cluster.Reader`` that also knows all objects of the kinds it caches."""

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, asked of the server when the cache has none; raise KubeError."""
        ...

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all cached objects of ``kind``; KubeError before the first list."""
        ...

    def within(self, seconds: float) -> "Lookup":
        """Return a Lookup that gives up ``seconds`` from now."""
        ...


def mutate_pod(lookup: Lookup, runtime_class: str, request: Request) -> Admitted:
    """Place the pods of an offloaded namespace; a labelled one has none until it is known how.

    Raises:
        DeniedError: no NamespaceOffloading yet, or none that can be read.
        KubeError: nobody knows; the webhook configuration's failure policy decides.
    """
    reader = lookup.within(request.budget_s)
    offloading = _offloading(reader, request.namespace)
    if offloading is not None:
        return pods.judge(request.object, offloading, runtime_class=runtime_class)
    namespace = reader.get(keys.NAMESPACE, Key("", request.namespace))
    if namespace is None or labels(namespace).get(keys.SCHEDULING_ENABLED) != "true":
        return Admitted(verdict="unchanged: not offloaded")
    message = (
        f"namespace {request.namespace} has the label {keys.SCHEDULING_ENABLED} and no "
        f"NamespaceOffloading: create or correct {keys.OFFLOADING_NAME!r} there, remove the "
        "label, or try again"
    )
    raise DeniedError(message, code=500)


def mutate_pod_early(lookup: Lookup, runtime_class: str, request: Request) -> Admitted:
    """Place a pod that came before the API server knew its namespace's label; refuse none.

    What this hook cannot find out in half a second does not keep a pod of somebody who does not
    offload: only where there is a NamespaceOffloading is the pod judged.
    """
    reader = lookup.within(min(EARLY_S, request.budget_s))
    try:
        offloading = _offloading(reader, request.namespace)
    except (KubeError, DeniedError):
        return Admitted(verdict="unchanged: cannot be judged")
    if offloading is None:
        return Admitted(verdict="unchanged: not offloaded")
    return pods.judge(request.object, offloading, runtime_class=runtime_class)


def validate_namespace_offloading(lookup: Lookup, request: Request) -> Admitted:
    """Judge a NamespaceOffloading as it would be stored, against the one before and the others."""
    if request.operation == "UPDATE":
        return namespaceoffloadings.check_update(request.old_object, request.object)
    reader = lookup.within(request.budget_s)
    config = reader.get(keys.CONFIG_MAP, _CLUSTER_ID) or {}
    cluster_id = str((config.get("data") or {}).get(keys.CLUSTER_ID_KEY) or "")
    others = reader.all(keys.NAMESPACE_OFFLOADING)
    return namespaceoffloadings.check_create(
        request.object, request.namespace, others=others, cluster_id=cluster_id
    )


def _offloading(reader: Lookup, namespace: str) -> NamespaceOffloading | None:
    """Return how ``namespace`` is offloaded; one that ends places no pod any more."""
    found = reader.get(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME))
    if found is None or is_terminating(found):
        return None
    try:
        return NamespaceOffloading.parse(found)
    except ValueError as error:
        message = f"namespaceoffloading {namespace}/{keys.OFFLOADING_NAME} cannot be read: {error}"
        raise DeniedError(f"{message}: correct it", code=500) from error
