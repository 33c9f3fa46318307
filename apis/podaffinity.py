"""Over whose pods the terms of a pod's (anti-)affinity may reach. Pure.

A scheduler keeps the required anti-affinity of pods that run for every new pod of the cluster: one
pod over all namespaces stops the scheduling of all others.
Source: Kubernetes, "Assigning Pods to Nodes", namespace selector; "Resource Quotas", scope
CrossNamespacePodAffinity.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apis import ownership, validation
from apis.objects import Object
from apis.providerpolicy import ProviderPolicy

KINDS: Final = ("podAffinity", "podAntiAffinity")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
FIELDS: Final = frozenset(["nodeAffinity", *KINDS])
TERM: Final = frozenset(
    [
        "labelSelector",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "namespaceSelector",
        "namespaces",
        "topologyKey",
    ]
)
ANY: Final = "*"
MOST: Final = 16
"""So many namespaces one pod may name: each is looked up."""
FOREIGN: Final = "reaches over pods of others"


def complaints(_name: str, value: Any, _spec: Object, policy: ProviderPolicy) -> Iterator[str]:
    """Yield what is not allowed in ``value``, the affinity of a pod."""
    affinity = validation.struct(value, "spec.pod.affinity")
    yield from _unknown(affinity, FIELDS, "affinity")
    for kind in KINDS:
        of_pods = validation.struct(affinity.get(kind), f"spec.pod.affinity.{kind}")
        yield from _unknown(of_pods, frozenset([REQUIRED, PREFERRED]), f"affinity.{kind}")
    if len(named(affinity)) > MOST:
        yield f"affinity {FOREIGN}: of more than {MOST} namespaces"
        return
    for path, term in terms(affinity):
        yield from _unknown(term, TERM, path)
        yield from _term(term, path, policy)


def _term(term: Object, path: str, policy: ProviderPolicy) -> Iterator[str]:
    opened = policy.allowed.affinity_namespaces
    if ANY in opened:
        return
    if term.get("namespaceSelector") is not None:
        yield f"{path}.namespaceSelector {FOREIGN}"
    for name in validation.items(term.get("namespaces"), f"spec.pod.{path}.namespaces"):
        if validation.text(name, f"spec.pod.{path}.namespaces") not in opened:
            yield f"{path}.namespaces {name!r} {FOREIGN}"


def terms(affinity: Object) -> Iterator[tuple[str, Object]]:
    """Yield the terms over pods, each with its path."""
    for kind in KINDS:
        of_pods = validation.struct(affinity.get(kind), f"spec.pod.affinity.{kind}")
        for when in (REQUIRED, PREFERRED):
            where = f"affinity.{kind}.{when}"
            listed = validation.structs(of_pods.get(when), f"spec.pod.{where}")
            for index, one in enumerate(listed):
                path = f"{where}[{index}]"
                if when == REQUIRED:
                    yield path, one
                else:
                    inner = f"{path}.podAffinityTerm"
                    yield inner, validation.struct(one.get("podAffinityTerm"), f"spec.pod.{inner}")


def named(affinity: Object) -> frozenset[str]:
    """Return the namespaces that the terms name.

    Raises:
        DeniedError: something is of another shape than in a PodSpec.
    """
    return frozenset(
        validation.text(name, f"spec.pod.{path}.namespaces")
        for path, term in terms(affinity)
        for name in validation.items(term.get("namespaces"), f"spec.pod.{path}.namespaces")
    )


def looked_up(spec: Object) -> frozenset[str]:
    """Return the namespaces to be looked up before ``spec`` is checked; none if it names too many.

    Raises:
        DeniedError: something is of another shape than in a PodSpec.
    """
    found = named(validation.struct(spec.get("affinity"), "spec.pod.affinity"))
    return found if len(found) <= MOST else frozenset()


def own(namespaces: Iterable[Object | None], consumer: str) -> frozenset[str]:
    """Return the names of those ``namespaces`` that are twins of ``consumer``."""
    return frozenset(
        one["metadata"]["name"]
        for one in namespaces
        if one is not None and ownership.consumer_of(one) == consumer
    )


def _unknown(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in sorted(part.keys() - known):
        yield f"{path}.{name} is not known to this version of pyliqo"
