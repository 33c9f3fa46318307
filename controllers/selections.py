"""What the controllers watch, as narrow as the server can select: equal ones share an informer."""

from typing import Final

from apis import keys, whose
from apis.objects import Kind, Object
from kube.cluster import Selection

_OF_KUBELETS: Final = f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET}"


def every(
    kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
) -> Selection[Object]:
    """Return the selection of all whole objects of ``kind``, or of those so labelled."""
    return Selection(kind, Object, namespace, labels, fields)


OFFLOADINGS: Final = every(
    keys.NAMESPACE_OFFLOADING, fields=f"metadata.name={keys.OFFLOADING_NAME}"
)
WHOLE: Final = 2**17
"""Bytes of an object of a consumer that is kept whole: CRDs and policies allow about 64 KiB."""


def written_by_consumers(kind: Kind, namespace: str = "", labels: str = "") -> Selection[Object]:
    """Return the selection of objects of ``kind``, of which consumers write some.

    Those are kept in outline where they are large. Source: docs/parity.md X5, X6.
    """
    return Selection(
        kind,
        Object,
        namespace,
        labels,
        whole_up_to=WHOLE,
        is_needed_whole=lambda obj: not whose.is_foreign(obj),
    )


NAMESPACE_MAPS: Final = written_by_consumers(keys.NAMESPACE_MAP)
VIRTUAL_NODES: Final = every(keys.VIRTUAL_NODE)
NODES: Final = every(keys.NODE, labels=f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}")
"""The virtual ones."""
PEER_NAMESPACES: Final = every(keys.NAMESPACE, labels=whose.PEERS)
"""Tenant namespaces and twins."""
ENABLED_NAMESPACES: Final = every(keys.NAMESPACE, labels=keys.SCHEDULING_ENABLED)
ROLE_BINDINGS: Final = every(
    keys.ROLE_BINDING, labels=f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}"
)
CLUSTER_ROLE_BINDINGS: Final = every(keys.CLUSTER_ROLE_BINDING, labels=_OF_KUBELETS)
ROLES: Final = every(keys.ROLE, labels=_OF_KUBELETS)
LEASE_ROLES: Final = every(keys.ROLE, namespace=keys.NODE_LEASE_NAMESPACE, labels=_OF_KUBELETS)
SERVICE_ACCOUNTS: Final = every(keys.SERVICE_ACCOUNT, labels=_OF_KUBELETS)
DEPLOYMENTS: Final = every(keys.DEPLOYMENT, labels=_OF_KUBELETS)
"""As roles and accounts, only beside VirtualNodes: ``Manager.beside_virtual_nodes``."""
TENANTS: Final = every(keys.TENANT)
IDENTITIES: Final = every(keys.IDENTITY)
RENEWS: Final = written_by_consumers(keys.RENEW)
RESOURCE_SLICES: Final = written_by_consumers(keys.RESOURCE_SLICE)
FOREIGN_CLUSTERS: Final = every(keys.FOREIGN_CLUSTER)
SECRETS: Final = every(keys.SECRET)
"""Only ever within tenant namespaces: ``Manager.tenant_secrets``."""
QUOTAS: Final = every(keys.QUOTA)
LIMIT_RANGES: Final = every(keys.LIMIT_RANGE)
RUNTIME_CLASSES: Final = every(keys.RUNTIME_CLASSES)
PROVIDER_POLICIES: Final = every(keys.PROVIDER_POLICY)
STORAGE_CLASSES: Final = every(keys.STORAGE_CLASS)
