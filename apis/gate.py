"""What a provider's API server refuses of what a consumer writes in its twins, as a table. Pure.

Policy ``liqo-consumers`` judges by it, ``docs/what-a-consumer-may-say.md`` shows it, and a row of
``tests/manifests/test_consumers.py`` sends each of it to an API server. Fields of pods are
``apis.podspecs``' matter, marks of this project's own kinds ``apis.marks``'.
Source: security.md A16, A17; hostile.md, cause 2.
"""

from dataclasses import dataclass
from typing import Final

from apis import keys
from apis.objects import Kind

REFLECTED: Final = (
    keys.CONFIG_MAP, keys.SECRET, keys.SERVICE, keys.INGRESS, keys.PERSISTENT_VOLUME_CLAIM,
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One field of some kinds, and what of it is refused."""

    kinds: tuple[Kind, ...]
    field: str
    refused: str
    told: str
    """A part of what the API server says of it."""
    opened_by: str = ""
    """The field of the ProviderPolicy that opens it, empty where nothing does."""


_SERVICE, _INGRESS, _CLAIM = (keys.SERVICE,), (keys.INGRESS,), (keys.PERSISTENT_VOLUME_CLAIM,)

RULES: Final = (
    Rule(
        REFLECTED, "metadata.finalizers",
        "any at creation, but for `kubernetes.io/pvc-protection` of claims; any change later",
        "metadata.finalizers",
    ),
    Rule(
        REFLECTED, "metadata.ownerReferences", "any at creation; any change later",
        "metadata.ownerReferences",
    ),
    Rule(
        REFLECTED, "metadata.annotations",
        "those of `apis/orders.py`, by which controllers do something with rights of their own",
        "annotation ", "annotationDomains",
    ),
    Rule(
        (keys.SECRET,), "type",
        "`kubernetes.io/service-account-token` and `bootstrap.kubernetes.io/token`",
        "gives rights in this cluster",
    ),
    Rule(
        _SERVICE, "spec.type", "`LoadBalancer` and `NodePort`", "spec.type", "serviceTypes",
    ),
    Rule(
        _SERVICE, "spec.externalIPs", "any", "spec.externalIPs",
    ),
    Rule(
        _SERVICE, "spec.loadBalancerIP", "any", "spec.loadBalancerIP",
    ),
    Rule(
        _SERVICE, "spec.externalName",
        "addresses, names of this cluster but of Services of the same twin, of pods and of clouds' "
        "metadata", "spec.externalName",
    ),
    Rule(
        _INGRESS, "spec.rules, spec.tls, spec.defaultBackend",
        "no host, a host with `*`, a default backend", "it would take all hosts",
    ),
    Rule(
        _INGRESS, "spec.rules",
        "more than 100 rules, 200 paths or 100 hosts of certificates", "more than 100 rules",
    ),
    Rule(
        _INGRESS, "spec.rules[].http.paths[].path",
        "spaces, quotes, braces, `;`, backslashes and `$` but in groups, more than 1024 characters",
        "a path of spec.rules",
    ),
    Rule(
        _INGRESS, "spec.ingressClassName", "a class that is not offered",
        "class inner is not offered", "ingressClasses",
    ),
    Rule(
        _CLAIM, "spec.storageClassName",
        "a class that is not offered", "class gold is not", "storageClasses",
    ),
    Rule(
        _CLAIM, "spec.storageClassName",
        "`\"\"`, and none where the provider has no default class",
        "would take any volume that has no class", "staticVolumes",
    ),
    Rule(_CLAIM, "spec.volumeName", "any", "spec.volumeName"),
    Rule(_CLAIM, "spec.selector", "any", "spec.selector"),
    Rule(_CLAIM, "spec.dataSource, spec.dataSourceRef", "any", "spec.dataSource"),
    Rule(_CLAIM, "spec.volumeAttributesClassName", "any", "spec.volumeAttributesClassName"),
)  # fmt: skip


def kinds_of(rule: Rule) -> str:
    """Return the kinds of ``rule`` as the page names them."""
    return "all" if rule.kinds == REFLECTED else ", ".join(kind.kind for kind in rule.kinds)
