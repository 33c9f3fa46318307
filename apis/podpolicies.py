"""What a provider allows in pods of its consumers, as its ProviderPolicy says. Pure.

Source: docs/parity.md § 3.8; SEC-A1 to SEC-A3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from apis import objects
from apis.objects import Key, Object
from apis.policies import DEFAULT

MAX_GRACE_S: Final = 3600
"""Longer no pod may take to end, unless a ProviderPolicy allows it: its node may have to go."""
PRIVILEGED: Final = "privileged"


@dataclass(frozen=True)
class Policy:
    """What a provider allows beyond the defaults, or narrows; None allows all."""

    level: str = "baseline"
    priority_classes: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] | None = None
    service_accounts: frozenset[str] | None = None
    tolerations: tuple[Object, ...] = ()
    kept_tolerations: tuple[Object, ...] = ()
    """Those that the pod has had since it came, which are not judged again."""
    max_grace_s: int = MAX_GRACE_S
    volume_types: frozenset[str] = frozenset()
    """Those beyond the default ones."""
    affinity_namespaces: frozenset[str] = frozenset()
    """Whose pods terms of affinity may name besides; * for those of any."""
    annotation_domains: frozenset[str] = frozenset()
    """Whose annotations and labels are on pods besides. See ``apis.allowlist``."""
    claim_annotation_domains: frozenset[str] = frozenset()
    """Likewise of claims that are made for pods. See ``apis.allowlist``."""
    own_namespaces: frozenset[str] = frozenset()
    """The consumer's own twins, as far as its pod names them."""
    storage_classes: frozenset[str] | None = None
    has_default_storage_class: bool = False
    """Whether one of them is taken where none is named."""
    static_volumes: bool = False
    """Whether a claim may take a volume that has no class."""

    def where(self, own_namespaces: frozenset[str]) -> "Policy":
        """Return it for a pod that names ``own_namespaces``."""
        return replace(self, own_namespaces=own_namespaces)

    def keeping(self, tolerations: Iterable[Object]) -> "Policy":
        """Return it for a pod that has ``tolerations`` already."""
        return replace(self, kept_tolerations=tuple(tolerations))

    @classmethod
    def parse(cls, obj: Object | None) -> "Policy":
        """Return what the ProviderPolicy ``obj`` says; without any, the defaults."""
        spec = objects.spec(obj)
        allowed = spec.get("allowedPodFields") or {}
        classes = spec.get("storageClasses")
        return cls(
            level=spec.get("podSecurityLevel") or "baseline",
            priority_classes=frozenset(allowed.get("priorityClassNames") or ()),
            runtime_classes=_names(allowed.get("runtimeClassNames")),
            service_accounts=_names(allowed.get("serviceAccountNames")),
            tolerations=tuple(allowed.get("tolerations") or ()),
            max_grace_s=allowed.get("maxTerminationGracePeriodSeconds", MAX_GRACE_S),
            volume_types=frozenset(allowed.get("volumeTypes") or ()),
            affinity_namespaces=frozenset(allowed.get("affinityNamespaces") or ()),
            annotation_domains=frozenset(allowed.get("annotationDomains") or ()),
            claim_annotation_domains=frozenset(spec.get("annotationDomains") or ()),
            storage_classes=_names(None if classes is None else [*map(_class, classes)]),
            static_volumes=bool(spec.get("staticVolumes")),
            has_default_storage_class=any(one.get("default") for one in classes or ()),
        )


def of(consumer: str, policies: Mapping[Key, Object]) -> Policy:
    """Return what holds for the consumer: its own policy, else that for all, else the defaults."""
    own = policies.get(Key("", consumer))
    return Policy.parse(own or policies.get(Key("", DEFAULT)))


def _class(offered: Object) -> str:
    return str(offered.get("storageClassName"))


def _names(listed: list[str] | None) -> frozenset[str] | None:
    return None if listed is None else frozenset(listed)
