"""What the identities of peering may write at a provider, as one table.

Each row is a field of some kinds, what it may say, and who judges it. Policies of the provider and
its webhook hold consumers to it: a test takes each row to an API server, and
``python -m tests.manifests.policytable`` makes the tables of ``docs/what-a-consumer-may-say.md``.
Source: docs/parity.md SEC-A7, SEC-A16, SEC-A17, SEC-A20; § 8.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apis import allowlist, keys, podvolumes
from apis.allowlist import REPLICAS, SHADOWS, AllowedKey
from apis.objects import Kind

MARKS: Final = "liqo-consumer-marks"
ORIGINALS: Final = "liqo-originals"
TWINS: Final = "liqo-consumers"
WEBHOOK: Final = "webhook"
POLICIES: Final = (TWINS, MARKS, ORIGINALS)

CREATE: Final = "create"
CHANGE: Final = "change"
BOTH: Final = f"{CREATE}, {CHANGE}"
DELETE: Final = "delete"

DATA: Final = (keys.CONFIG_MAP, keys.SECRET)
CLAIM: Final = (keys.PERSISTENT_VOLUME_CLAIM,)
REFLECTED: Final = (*DATA, keys.SERVICE, keys.INGRESS, *CLAIM)
"""What a consumer's reflectors put into its twins, besides this project's own kinds."""
OWN: Final = (*REPLICAS, *SHADOWS)
EVERY: Final = (*OWN, *REFLECTED)
MOST_NOTES: Final = 500
MOST_LABELS: Final = 100
"""Of this project's kinds; annotations have a bound of characters, too."""
MOST_ENDPOINTS, MOST_PORTS = 1000, 100
"""Source: Kubernetes, "EndpointSlice"."""

_NONE: Final = "absent"
_KEPT: Final = "as it was"
_DOMAINS: Final = "annotationDomains"


@dataclass(frozen=True)
class Rule:
    """A field, and what consumers may say there."""

    field: str
    kinds: tuple[Kind, ...]
    when: str
    says: str
    by: str = ""
    """Who judges; empty for the policy on the metadata of the kind: see ``judge``."""
    opened: str = ""
    """The field of the ProviderPolicy that opens it."""
    mark: AllowedKey | None = None

    def __str__(self) -> str:
        """Return what tells it from all others."""
        return f"{_listed(self.kinds)} {self.when}: {self.field}"


def who(kind: Kind) -> str:
    """Return which of a consumer's identities writes ``kind``."""
    return "control plane" if kind in REPLICAS else "virtual kubelet"


def judge(row: Rule, kind: Kind) -> str:
    """Return by what ``kind`` is judged in ``row``."""
    return row.by or (MARKS if kind in OWN else TWINS)


def _without(*left_out: Kind) -> tuple[Kind, ...]:
    return tuple(kind for kind in EVERY if kind not in left_out)


def _marked(field: str, kinds: tuple[Kind, ...], table: tuple[AllowedKey, ...]) -> list[Rule]:
    return [
        Rule(
            f"{field} `{mark.key}`",
            kinds,
            BOTH,
            f"{mark.says.value}{'; needed' if mark.is_needed else ''}",
            mark=mark,
        )
        for mark in table
    ]


_OF_OBJECTS: Final = [
    Rule("finalizers", _without(*CLAIM), CREATE, _NONE),
    Rule("finalizers", CLAIM, CREATE, "absent, or `kubernetes.io/pvc-protection`"),
    Rule("finalizers", EVERY, CHANGE, _KEPT),
    Rule("ownerReferences", _without(keys.SECRET), CREATE, _NONE),
    Rule("ownerReferences", _without(keys.SECRET), CHANGE, _KEPT),
    Rule(
        "ownerReferences",
        (keys.SECRET,),
        BOTH,
        "ShadowPods and Pods without `blockOwnerDeletion`, all others as they were",
    ),
    Rule("the object", REPLICAS, f"{CHANGE}, {DELETE}", "a replica of the consumer", ORIGINALS),
]
_LABELS: Final = [
    *_marked("label", REPLICAS, allowlist.REPLICA_LABELS),
    Rule("any other label of `liqo.io`, `pyliqo.io`", REPLICAS, BOTH, _KEPT),
    *_marked("label", SHADOWS, allowlist.SHADOW_LABELS),
    Rule("labels", OWN, BOTH, f"at most {MOST_LABELS}"),
    *(
        Rule(
            f"label `{name}`",
            kinds,
            BOTH,
            f"absent, or {_KEPT}",
            opened=_DOMAINS if "/" in name else "",
        )
        for kinds, names in (
            ((*DATA, *CLAIM), allowlist.LABELS),
            ((keys.SERVICE,), allowlist.INJECTED),
        )
        for name in names
    ),
]
_ANNOTATIONS: Final = [
    *_marked("annotation", REPLICAS, allowlist.REPLICA_ANNOTATIONS),
    Rule("any other annotation of `liqo.io`, `pyliqo.io`", REPLICAS, BOTH, _KEPT),
    Rule("annotations", OWN, BOTH, f"at most {MOST_NOTES}"),
    Rule("annotations together", REPLICAS, BOTH, f"at most {allowlist.MOST_CHARACTERS} characters"),
    Rule(
        "annotations",
        REFLECTED,
        BOTH,
        f"at most {allowlist.MOST_ANNOTATIONS} that are new or changed",
    ),
    Rule(
        "annotations of programs that copy, inject, deploy or back up",
        (*DATA, *CLAIM),
        BOTH,
        f"absent, or {_KEPT}",
        opened=_DOMAINS,
    ),
    Rule(
        "annotations of Kubernetes and storage systems",
        CLAIM,
        BOTH,
        f"absent, or {_KEPT}; those that only tell something pass",
        opened=_DOMAINS,
    ),
    Rule(
        "annotations of load balancers, clouds, DNS, certificates, meshes, monitoring",
        (keys.SERVICE,),
        BOTH,
        f"absent, or {_KEPT}; those that only tell something pass",
        opened=_DOMAINS,
    ),
    Rule(
        "annotations of ingress controllers",
        (keys.INGRESS,),
        BOTH,
        "those that only tell something, or concern the object's own hosts with a value of "
        "their shape; others absent, or as they were",
        opened=_DOMAINS,
    ),
    *(
        Rule(f"annotation `{name}`", (kind,), BOTH, f"absent, or {_KEPT}")
        for kind, names in allowlist.NOTED.items()
        for name in names
    ),
]
_SPECS: Final = [
    Rule(
        "spec.template",
        (keys.SHADOW_ENDPOINT_SLICE,),
        BOTH,
        f"at most {MOST_ENDPOINTS} endpoints and {MOST_PORTS} ports",
        MARKS,
    ),
    Rule("spec.type", (keys.SERVICE,), BOTH, "ClusterIP, ExternalName", opened="serviceTypes"),
    Rule(
        "spec.loadBalancerClass",
        (keys.SERVICE,),
        BOTH,
        "one that is offered, where the ProviderPolicy names any",
        opened="loadBalancerClasses",
    ),
    Rule("spec.externalIPs", (keys.SERVICE,), BOTH, f"absent, or {_KEPT}"),
    Rule("spec.loadBalancerIP", (keys.SERVICE,), BOTH, f"absent, or {_KEPT}"),
    Rule(
        "spec.externalName",
        (keys.SERVICE,),
        BOTH,
        "a name of the outside, or of a Service of the same namespace",
    ),
    Rule(
        "spec.ingressClassName",
        (keys.INGRESS,),
        BOTH,
        "one that is offered, where the ProviderPolicy names any",
        opened="ingressClasses",
    ),
    Rule("spec.defaultBackend", (keys.INGRESS,), BOTH, _NONE),
    Rule("spec.rules, spec.tls", (keys.INGRESS,), BOTH, "each with a host, without `*`"),
    Rule(
        "spec.rules, spec.tls: size",
        (keys.INGRESS,),
        BOTH,
        "at most 100 rules, 200 paths, 100 hosts of certificates",
    ),
    Rule(
        "spec.rules: paths",
        (keys.INGRESS,),
        BOTH,
        "at most 1024 characters, without spaces, quotes, braces, `;`, `\\` and most `$`",
    ),
    Rule(
        "spec.rules, spec.tls: hosts",
        (keys.INGRESS,),
        BOTH,
        "any, or those that the pattern of the ProviderPolicy matches",
        opened="ingressHosts",
    ),
    Rule(
        "spec.storageClassName",
        CLAIM,
        BOTH,
        "one that is offered, where the ProviderPolicy names any",
        opened="storageClasses",
    ),
    Rule("spec.storageClassName: empty", CLAIM, BOTH, "refused", opened="staticVolumes"),
    Rule(
        f"any field of spec but {', '.join(podvolumes.TEMPLATE_FIELDS)}",
        CLAIM,
        BOTH,
        f"absent, or {_KEPT}",
    ),
    Rule("type", (keys.SECRET,), CREATE, "none that gives rights in the cluster"),
    Rule(
        "spec.pod",
        (keys.SHADOW_POD,),
        BOTH,
        "what [pod-fields.md](pod-fields.md) says of each field",
        WEBHOOK,
        "allowedPodFields",
    ),
    Rule(
        "metadata.name",
        (keys.RESOURCE_SLICE,),
        CREATE,
        "of replicas any; of the provider's own slices none that is taken",
        WEBHOOK,
    ),
]

TABLE: Final[tuple[Rule, ...]] = (*_OF_OBJECTS, *_LABELS, *_ANNOTATIONS, *_SPECS)
SECTIONS: Final = {
    "Finalizers, owners, and what is not the consumer's": tuple(_OF_OBJECTS),
    "Labels": tuple(_LABELS),
    "Annotations": tuple(_ANNOTATIONS),
    "All other fields": tuple(_SPECS),
}
"""The table, as the page shows it."""


def table_lines(rows: tuple[Rule, ...]) -> list[str]:
    """Return ``rows`` as a table of the page."""
    head = ["| kind | who | when | field | may say | judged by | opened by |", "|" + " --- |" * 7]
    return [*head, *(_line(row) for row in rows)]


def _line(row: Rule) -> str:
    told = (
        _listed(row.kinds),
        _each(who(kind) for kind in row.kinds),
        row.when,
        row.field if "`" in row.field or " " in row.field else f"`{row.field}`",
        row.says,
        _each(judge(row, kind) for kind in row.kinds),
        f"`{row.opened}`" if row.opened else "",
    )
    return "| " + " | ".join(told) + " |"


_GROUPS: Final = {EVERY: "all", OWN: "pyliqo's own kinds", REFLECTED: "reflected kinds"}


def _listed(kinds: tuple[Kind, ...]) -> str:
    return _GROUPS.get(kinds) or ", ".join(kind.kind for kind in kinds)


def _each(told: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(told))


PAGE: Final = Path(__file__).parents[2] / "docs" / "what-a-consumer-may-say.md"


def policy_page() -> str:
    """Return the whole page; its first part, without tables, is written by hand."""
    sections = [
        f"## {title}\n\n" + "".join(f"{line}\n" for line in table_lines(rows))
        for title, rows in SECTIONS.items()
    ]
    by_hand = PAGE.read_text().partition(f"## {next(iter(SECTIONS))}")[0]
    return by_hand + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(policy_page())
