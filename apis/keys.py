"""Every kind, label, annotation, finalizer, taint and name that is on the wire, once.

Grouped by bearer. Source: docs/parity.md § 2.
"""

from typing import Final

from apis.objects import Key, Kind

# Kinds of ours ------------------------------------------------------------------------------------

OFFLOADING_GROUP: Final = "offloading.liqo.io"
AUTHENTICATION_GROUP: Final = "authentication.liqo.io"
CORE_GROUP: Final = "core.liqo.io"

NAMESPACE_OFFLOADING: Final = Kind(
    OFFLOADING_GROUP, "v1beta1", "NamespaceOffloading", "namespaceoffloadings"
)
NAMESPACE_MAP: Final = Kind(OFFLOADING_GROUP, "v1beta1", "NamespaceMap", "namespacemaps")
VIRTUAL_NODE: Final = Kind(OFFLOADING_GROUP, "v1beta1", "VirtualNode", "virtualnodes")
VK_OPTIONS_TEMPLATE: Final = Kind(
    OFFLOADING_GROUP, "v1beta1", "VkOptionsTemplate", "vkoptionstemplates"
)
SHADOW_POD: Final = Kind(OFFLOADING_GROUP, "v1beta1", "ShadowPod", "shadowpods")
SHADOW_ENDPOINT_SLICE: Final = Kind(
    OFFLOADING_GROUP, "v1beta1", "ShadowEndpointSlice", "shadowendpointslices"
)
QUOTA: Final = Kind(OFFLOADING_GROUP, "v1beta1", "Quota", "quotas")
RESOURCE_SLICE: Final = Kind(AUTHENTICATION_GROUP, "v1beta1", "ResourceSlice", "resourceslices")
IDENTITY: Final = Kind(AUTHENTICATION_GROUP, "v1beta1", "Identity", "identities")
TENANT: Final = Kind(AUTHENTICATION_GROUP, "v1beta1", "Tenant", "tenants")
RENEW: Final = Kind(AUTHENTICATION_GROUP, "v1beta1", "Renew", "renews")
FOREIGN_CLUSTER: Final = Kind(
    CORE_GROUP, "v1beta1", "ForeignCluster", "foreignclusters", namespaced=False
)
PROVIDER_POLICY: Final = Kind(
    "pyliqo.io", "v1alpha1", "ProviderPolicy", "providerpolicies", namespaced=False
)

# Kinds of Kubernetes ------------------------------------------------------------------------------

NAMESPACE: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE: Final = Kind("", "v1", "Node", "nodes", namespaced=False)
POD: Final = Kind("", "v1", "Pod", "pods")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
SECRET: Final = Kind("", "v1", "Secret", "secrets")
SERVICE: Final = Kind("", "v1", "Service", "services")
LIMIT_RANGE: Final = Kind("", "v1", "LimitRange", "limitranges")
RESOURCE_QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas")
NETWORK_POLICY: Final = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
POD_DISRUPTION_BUDGET: Final = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
SERVICE_ACCOUNT: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")
EVENT: Final = Kind("", "v1", "Event", "events")
METRICS_GROUP: Final = "metrics.liqo.io"
METRICS_VERSION: Final = "v1beta1"
METRIC_AGENT: Final = "liqo-metric-agent"
"""The Deployment and the Service of what serves it."""
CONTROLLERS_CONTAINER: Final = "controllers"
"""Of the pods of the controller manager; sidecars may stand before it."""
METRICS_API: Final = Key("", f"{METRICS_VERSION}.{METRICS_GROUP}")
"""Its APIService."""
METRICS_ROOT: Final = f"/apis/{METRICS_GROUP}/{METRICS_VERSION}"
"""Of the aggregated API by which a provider says what offloaded pods use."""
SCRAPED: Final = ("/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource")
"""What kubelets say at these paths, it says of the pods of one consumer."""
API_SERVICE: Final = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False
)
CLUSTER_PROPERTIES: Final = tuple(
    Kind("about.k8s.io", version, "ClusterProperty", "clusterproperties", namespaced=False)
    for version in ("v1beta1", "v1alpha1")
)
"""Of the About API, the newest version first."""
CLUSTER_ID_PROPERTY: Final = "cluster.clusterset.k8s.io"
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
DAEMON_SET: Final = Kind("apps", "v1", "DaemonSet", "daemonsets")
LEASE: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases")
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
ROLE: Final = Kind(RBAC_GROUP, "v1", "Role", "roles")
ROLE_BINDING: Final = Kind(RBAC_GROUP, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE: Final = Kind(RBAC_GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING: Final = Kind(
    RBAC_GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CERTIFICATE_SIGNING_REQUEST: Final = Kind(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)
CUSTOM_RESOURCE_DEFINITION: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
SUBJECT_ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
TOKEN_REVIEW: Final = Kind(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
RUNTIME_CLASSES: Final = Kind(
    "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False
)
IP: Final = Kind("ipam.liqo.io", "v1alpha1", "IP", "ips")
"""As the next two of an IP fabric, which pyliqo does not bring: an address as peers reach it."""
NETWORK: Final = Kind("ipam.liqo.io", "v1alpha1", "Network", "networks")
CONFIGURATION: Final = Kind("networking.liqo.io", "v1beta1", "Configuration", "configurations")
CLUSTER_PROFILE: Final = Kind(
    "multicluster.x-k8s.io", "v1alpha1", "ClusterProfile", "clusterprofiles"
)
"""Of KEP-4322, which pyliqo does not bring either."""
ENDPOINT_SLICE: Final = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SERVICE_CIDR: Final = Kind(
    "networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", namespaced=False
)
INGRESS: Final = Kind("networking.k8s.io", "v1", "Ingress", "ingresses")
PERSISTENT_VOLUME_CLAIM: Final = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUME: Final = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
STORAGE_CLASS: Final = Kind(
    "storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False
)

# Names --------------------------------------------------------------------------------------------

LIQO_NAMESPACE: Final = "liqo"
OFFLOADING_NAME: Final = "offloading"
"""The one NamespaceOffloading of a namespace."""
CLUSTER_ID_CONFIG_MAP: Final = "clusterid-configmap"
"""Value of ``app.kubernetes.io/name`` on the ConfigMap that holds the cluster ID; also its name."""
CLUSTER_ID_KEY: Final = "CLUSTER_ID"
POD_CIDRS_KEY: Final = "POD_CIDRS"
"""Of the same ConfigMap: the networks of this cluster's pods, for who peers with it."""
DEFAULT_VK_OPTIONS_TEMPLATE: Final = "virtual-kubelet-default"
RUNTIME_CLASS: Final = "liqo"
WEBHOOK_SERVICE: Final = "liqo-webhook"
WEBHOOK_CONFIGURATION: Final = "liqo-webhook"
WEBHOOK_CERTS_SECRET: Final = "liqo-webhook-certs"  # noqa: S105  # the name, not a secret
WEBHOOK_PORT: Final = 9443
LABELLING_WEBHOOK: Final = "nsoff.label.liqo.io"
LABELLING_PATH: Final = "/label/namespace"
"""Where it is called, before a last segment that API servers alone are told."""
LABELLING_DOOR: Final = "labelling-door"
"""That segment, in the Secret of the serving certificate."""
KUBELET_PORT: Final = 10250
NODE_LEASE_NAMESPACE: Final = "kube-node-lease"
REFLECTOR_LEASE: Final = "virtual-kubelet-leader-election"
STORAGE_NAMESPACE: Final = "liqo-storage"
"""Where the real claims are that stand for claims of the virtual class on physical nodes."""
VIRTUAL_STORAGE_CLASS: Final = "liqo"
STORAGE_PROVISIONER: Final = "liqo.io/storage"
KUBECONFIG_KEY: Final = "kubeconfig"
API_SERVER_HOST: Final = "kubernetes.default"
"""The name under which pods find the consumer's API server through an IP fabric."""
ROOT_CA_CONFIG_MAP: Final = "kube-root-ca.crt"
CONTROLLER_MANAGER: Final = "liqo-controller-manager"
CONTROLLER_MANAGER_TWIN_ROLE: Final = "liqo-controller-manager-twin"
"""ClusterRole that a RoleBinding grants the controller manager itself in each twin namespace."""
CONTROLLER_MANAGER_TENANT_ROLE: Final = "liqo-controller-manager-tenant"
"""The same in each tenant namespace: Secrets, which it reads and writes nowhere else."""
VIRTUAL_KUBELET_REMOTE_ROLE: Final = "liqo-virtual-kubelet-remote"
VIRTUAL_KUBELET_LOCAL_ROLE: Final = "liqo-virtual-kubelet-local"
VIRTUAL_KUBELET_NAMESPACED_ROLE: Final = "liqo-virtual-kubelet-namespaced"
"""ClusterRole that a RoleBinding grants a virtual kubelet in each offloaded namespace."""
VIRTUAL_KUBELET_TENANT_ROLE: Final = "liqo-virtual-kubelet-tenant"
"""ClusterRole that a RoleBinding grants a virtual kubelet in its tenant namespace."""
VIRTUAL_KUBELET_PRIORITY: Final = "liqo-virtual-kubelet"
"""PriorityClass of virtual kubelets, where their template names none."""
REMOTE_CONTROLPLANE_ROLE: Final = "liqo-remote-controlplane"
VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE: Final = "liqo-virtual-kubelet-remote-clusterwide"
METRICS_READER_ROLE: Final = "pyliqo-metrics-reader"
"""ClusterRole of who may read the metrics of our processes; an administrator binds it."""
AUTHENTICATION_KEYS: Final = "authentication-keys"
"""The Secret with the cluster's own key pair."""
NONCE_SECRET: Final = "liqo-nonce"  # noqa: S105  # the name, not a secret
SIGNED_NONCE_SECRET: Final = "liqo-signed-nonce"  # noqa: S105  # the name, not a secret
REMOTE_CERTIFICATE_SECRET: Final = "liqo-remote-certificate"  # noqa: S105  # the name, not a secret
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
PEER_ORGANIZATION: Final = "liqo.io"
"""The O of certificates for control planes and peering users."""

# Taint, toleration --------------------------------------------------------------------------------

VIRTUAL_NODE_TAINT: Final = "virtual-node.liqo.io/not-allowed"
"""On each virtual node: pods run there only if they tolerate it, which the webhook adds."""
VIRTUAL_NODE_TAINT_VALUE: Final = "true"
VIRTUAL_NODE_TAINT_EFFECT: Final = "NoExecute"

# Labels: peers and replication --------------------------------------------------------------------

IP_TYPE: Final = "ipam.liqo.io/ip-type"
"""On an IP of an IP fabric: ``api-server`` is the one by which pods find their API server."""
API_SERVER_IP: Final = "api-server"
NETWORK_TYPE: Final = "ipam.liqo.io/network-type"
"""On a Network of an IP fabric: ``pod-cidr`` names the networks of pods."""
POD_CIDR: Final = "pod-cidr"
REMOTE_CLUSTER_ID: Final = "liqo.io/remote-cluster-id"
"""Which peer an object is about; of a replica at the provider, its consumer."""
REPLICATION: Final = "liqo.io/replication"
"""On a NamespaceMap, ResourceSlice or Renew: whether it goes to the provider."""
REMOTE_ID: Final = "liqo.io/remoteID"
"""Beside it: to which provider."""
ORIGIN_ID: Final = "liqo.io/originID"
"""On a replica: the cluster that it comes from."""
REPLICATED: Final = "liqo.io/replicated"
"""On a replica: that it is one."""
OWNERSHIP: Final = "liqo.io/ownership"
"""Of Liqo. It is neither sent nor believed."""
TENANT_NAMESPACE: Final = "liqo.io/tenant-namespace"
"""On a namespace: that it holds the objects of one peering."""
IDENTITY_TYPE: Final = "liqo.io/identity-type"
"""On the Secret with a kubeconfig: ``ControlPlane`` or ``ResourceSlice``."""
CONTROL_PLANE_IDENTITY: Final = "ControlPlane"
RESOURCE_SLICE_NAME: Final = "liqo.io/resourceslice-name"
"""On the Identity and the Secret of a slice: its name."""
LIQO_MANAGED: Final = "liqo.io/managed"
"""On objects that a controller makes and may take back: Quotas, Secrets, policies."""
NONCE_LABEL: Final = "liqo.io/nonce"
"""On the Secret with a nonce, at the provider."""
SIGNED_NONCE_LABEL: Final = "liqo.io/signed-nonce"
"""On the Secret with the signed nonce, at the consumer."""
REMOTE_TENANT_CSR: Final = "liqo.io/remote-tenant-csr"
"""On a CertificateSigningRequest for a consumer."""
PEERING_USER_NAME: Final = "liqo.io/peering-user-name"
"""On the objects of a peering user: its name."""
APP_NAME: Final = "app.kubernetes.io/name"
APP_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
POD_SECURITY_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
POD_SECURITY_AUDIT: Final = "pod-security.kubernetes.io/audit"
POD_SECURITY_WARN: Final = "pod-security.kubernetes.io/warn"
WEBHOOK_LABEL: Final = "liqo.io/webhook"
"""On the Secret of the webhook's certificate, for programs written for Liqo."""

# Labels: virtual nodes and their pods -------------------------------------------------------------

NODE_TYPE: Final = "liqo.io/type"
"""On a Node: ``virtual-node`` if another cluster is behind it."""
VIRTUAL_NODE_TYPE: Final = "virtual-node"
VIRTUAL_NODE_LABEL: Final = "liqo.io/virtual-node"
"""On the Deployment, pods and bindings of a virtual kubelet: its VirtualNode."""
COMPONENT: Final = "offloading.liqo.io/component"
"""On the same: ``virtual-kubelet``."""
VIRTUAL_KUBELET: Final = "virtual-kubelet"
STORAGE_AVAILABLE: Final = "storage.liqo.io/available"
"""On a virtual Node: whether its provider offers storage."""
HOSTNAME: Final = "kubernetes.io/hostname"

# Labels: namespaces, offloaded pods and reflected objects -----------------------------------------

SCHEDULING_ENABLED: Final = "liqo.io/scheduling-enabled"
"""On a namespace: its pods are judged by the webhook. An administrator may set it, too."""
SHADOW_POD_LABEL: Final = "liqo.io/shadowPod"
"""On a local pod: that a virtual kubelet has made a ShadowPod of it."""
REMOTE_UNAVAILABLE: Final = "liqo.io/remote-unavailable"
"""On a local pod: that its provider does not answer, so nothing is known of it now."""
MANAGED_BY: Final = "liqo.io/managed-by"
"""On what a provider makes of a shadow: ``shadowpod`` or ``shadowendpointslice``."""
MANAGED_BY_SHADOW_POD: Final = "shadowpod"
MANAGED_BY_SHADOW_ENDPOINT_SLICE: Final = "shadowendpointslice"
SERVICE_NAME: Final = "kubernetes.io/service-name"
ENDPOINT_SLICE_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
ENDPOINT_SLICE_MANAGER: Final = "endpointslice.reflection.liqo.io"
"""Keeps the controllers of Kubernetes off reflected EndpointSlices."""
VIRTUAL_CLAIM_NAMESPACE: Final = "storage.liqo.io/virtual-pvc-namespace"
"""On a real claim in ``liqo-storage``: the namespace of the claim that it stands for."""
VIRTUAL_CLAIM_NAME: Final = "storage.liqo.io/virtual-pvc-name"
"""Beside it: the name of that claim."""
CREATOR_USER: Final = "liqo.io/creator-user"
"""On a ShadowPod and its Pod: the user who made it, against whose Quota it counts."""
ORIGIN: Final = "offloading.liqo.io/origin"
"""On twins: the consumer that they come from."""
DESTINATION: Final = "offloading.liqo.io/destination"
"""On twins: the provider that they are for."""
NODE_NAME: Final = "offloading.liqo.io/nodename"
"""On a ShadowPod and its Pod: the virtual node of the consumer."""
SERVICE_ACCOUNT_NAME: Final = "offloading.liqo.io/service-account-name"
"""On the Secret with a pod's tokens: its service account."""

# Annotations --------------------------------------------------------------------------------------

CREATE_VIRTUAL_NODE: Final = "liqo.io/create-virtual-node"
"""On a ResourceSlice, by a user: whether a virtual node is made of it."""
CORDON: Final = "liqo.io/cordon"
"""On the provider's replica of a ResourceSlice, by the provider: no more pods of this slice."""
DRAIN: Final = "pyliqo.io/drain"
"""On the provider's replica of a ResourceSlice: the consumer is to evict what runs."""
DEFAULT_STORAGE_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

MANAGED_BY_NAMESPACE_MAP: Final = "liqo.io/managed-by-namespace-map"
"""On a twin namespace and its binding: the NamespaceMap that asks for it."""
ORIGINAL_NAME: Final = "liqo.io/original-name"
"""On a twin namespace: the name of the consumer's namespace."""
REMOTE_TENANT_NAMESPACE: Final = "liqo.io/remote-tenant-namespace"
"""On the Secret with a kubeconfig: the tenant namespace at the provider."""
CORDON_TENANT: Final = "liqo.io/cordon-tenant"
"""On the replica of a ResourceSlice, by the Tenant's controller."""
PERMANENTLY_UNREACHABLE: Final = "liqo.io/foreign-cluster-permanently-unreachable"
"""On a ForeignCluster, by an administrator: the peer does not come back."""
ISSUED_AT: Final = "pyliqo.io/issued-at"
"""On a Secret with a certificate: when it was signed, which is later than its beginning."""
METRICS_API_AFTER: Final = "pyliqo.io/metrics-api-after"
"""On the ConfigMap of the cluster ID: the metrics API was deleted, and may be made from then on."""
SKIP_REFLECTION: Final = "liqo.io/skip-reflection"
"""On an object, by a user: it does not leave its cluster."""
ALLOW_REFLECTION: Final = "liqo.io/allow-reflection"
"""On an object, by a user: it leaves although the policy is ``AllowList``."""
REFLECTION_POLICY: Final = "pyliqo.io/reflection"
"""On a NamespaceOffloading, by a user: by which policy ConfigMaps and Secrets leave."""
OFFERED_STORAGE_CLASSES: Final = "pyliqo.io/storage-classes"
"""On a twin: which storage classes its consumer may name, ``a,b``; without it any."""
OFFERED_INGRESS_CLASSES: Final = "pyliqo.io/ingress-classes"
"""On a twin: which Ingress classes its consumer may name, ``a,b``; without it any."""
OFFERED_LOAD_BALANCER_CLASSES: Final = "pyliqo.io/load-balancer-classes"
"""On a twin: which load-balancer classes it may name, ``a,b``; without it any."""
OFFERED_SERVICE_TYPES: Final = "pyliqo.io/service-types"
"""On a twin: which types its Services may have besides those that stay in the cluster, ``a,b``."""
OFFERED_INGRESS_HOSTS: Final = "pyliqo.io/ingress-hosts"
"""On a twin: a regular expression (RE2) for each whole host of its Ingresses; without it any."""
OFFERED_STATIC_VOLUMES: Final = "pyliqo.io/static-volumes"
"""On a twin: ``true`` where its claims may take volumes that have no class."""
OFFERED_ANNOTATION_DOMAINS: Final = "pyliqo.io/annotation-domains"
"""On a twin: domains of annotations that Services and Ingresses may have, ``a,b``."""
FORCE_REMOTE_NODE_PORT: Final = "liqo.io/force-remote-node-port"
"""On a Service, by a user: ``true`` keeps its node ports at the provider."""
DIRECT_CONNECTIONS_DATA: Final = "liqo.io/direct-connections-data"
"""On a ShadowEndpointSlice, by Liqo: addresses of third clusters. They are not used."""
INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
REMOTE_ACCESS_MODES: Final = "liqo.io/remote-access-modes"
"""On a claim, by a user: access modes of the provider's claim, ``a,b``."""
REMOTE_STORAGE_CLASS: Final = "liqo.io/remote-storage-class"
"""On a claim, by a user: the storage class of the provider's claim."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim, by the scheduler: where the first pod that uses it will run."""
STORAGE_PROVISIONERS: Final = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
ANNOTATIONS_OF_CLAIMS: Final = (
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-class",
    SELECTED_NODE,
    *STORAGE_PROVISIONERS,
)
"""By which one cluster binds a claim; they mean nothing in another."""
DOWNWARD_NAMESPACE: Final = "pyliqo.io/downward-namespace"
"""On a pod or a NamespaceOffloading, by a user: ``consumer`` has ``metadata.namespace`` in
variables and files be that of the consumer, ``provider`` that of the remote namespace, which is the
default."""
LOCAL_NAMESPACE: Final = "pyliqo.io/local-namespace"
"""On a ShadowPod and its Pod: the consumer's namespace, for files that the pod reads it from."""
API_SERVER_SUPPORTED: Final = "pyliqo.io/api-server-support"
"""``true`` on a virtual node whose pods have tokens for the consumer's API server."""
API_SERVER_SUPPORT: Final = "liqo.io/api-server-support"
"""On a pod, by a user: ``disabled`` sends it without tokens, ``remote`` with the provider's."""
REMOTE_SERVICE_ACCOUNT_NAME: Final = "liqo.io/remote-service-account-name"
"""On a pod, by a user: the provider's service account that it runs as."""
ANTI_AFFINITY_PRESET: Final = "liqo.io/anti-affinity-preset"
"""On a pod, by a user: ``propagate``, ``soft`` or ``hard``."""
ANTI_AFFINITY_LABELS: Final = "liqo.io/anti-affinity-labels"
"""Beside it: the labels by which pods count as the same."""
REMOTE_RUNTIME_CLASS_NAME: Final = "liqo.io/remote-runtime-class-name"
"""On a pod, by a user: its RuntimeClass at the provider."""
OFFLOADING_PATCH_HASH: Final = "liqo.io/offloading-patch-hash"
"""On the Deployment of a virtual kubelet: of which offloading patch it was made."""
POD_NAME: Final = "offloading.liqo.io/pod-name"
"""On the IP object of an offloaded pod: its name."""
POD_NAMESPACE: Final = "offloading.liqo.io/pod-namespace"
"""On the IP object of an offloaded pod: its namespace."""
FOR_POD_NAME: Final = "offloading.liqo.io/service-account-for-pod-name"
"""On the Secret with a pod's tokens: the name of the pod."""
FOR_POD_UID: Final = "offloading.liqo.io/service-account-for-pod-uid"
"""On the Secret with a pod's tokens: the UID of the pod."""
TOKEN_EXPIRATION: Final = "offloading.liqo.io/service-account-expiration"  # noqa: S105  # a name
"""On the Secret with a pod's tokens: when the first of them expires."""
TOKEN_RENEWAL: Final = "pyliqo.io/tokens-renewed-from"  # noqa: S105  # a name
"""On the Secret with a pod's tokens: from when on they are asked for again."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATIONS_OF_CONTROLLERS: Final = (
    "cloud.google.com/neg",
    "cloud.google.com/neg-status",
    "kubernetes.digitalocean.com/load-balancer-id",
    "ingress.kubernetes.io/backends",
    "ingress.kubernetes.io/forwarding-rule",
    "ingress.kubernetes.io/target-proxy",
    "ingress.kubernetes.io/url-map",
    "metallb.universe.tf/address-pool",
    "metallb.universe.tf/ip-allocated-from-pool",
    "metallb.universe.tf/loadBalancerIPs",
    "loadbalancer.openstack.org/load-balancer-id",
)
"""Written by controllers of one cluster for that cluster. Source: docs/parity.md § 6.2."""
WEBHOOK_SERVICE_NAME: Final = "liqo.io/webhook-service-name"
"""On the Secret of the webhook's certificate: the Service of the webhook."""
LOCAL_POD_UID: Final = "pyliqo.io/local-pod-uid"
"""On a ShadowPod and its Pod: the UID of the local pod that they stand for."""
CONSUMER_VERSION: Final = "pyliqo.io/consumer-version"
"""On a ResourceSlice and its replica: which pyliqo the consumer runs."""
PROVIDER_VERSION: Final = "pyliqo.io/provider-version"
"""On the replica of a ResourceSlice: which pyliqo the provider runs."""
APPLIED: Final = "pyliqo.io/applied"
"""On a twin: the digest of what was sent, so that after a restart nothing is sent again."""
APPLIED_META: Final = "virtual-kubelet.io/last-applied-object-meta"
"""On a virtual Node, a ShadowPod and its Pod: which labels, annotations and taints were written, as
JSON."""
LOCAL_POD_GENERATION: Final = "pyliqo.io/local-pod-generation"
"""On a ShadowPod and its Pod: the generation of the local pod that they were brought to."""
REMOTE_POD: Final = "pyliqo.io/remote-pod"
"""On a local pod: the UID of the provider's Pod that its status tells of, how many were before, and
``DisruptionTarget`` if that Pod has this condition. It stays at the consumer."""
FINISHED: Final = "pyliqo.io/finished"
"""On a ShadowPod: the final phase of the local pod, which the provider may have missed."""
DELETION_GRACE: Final = "pyliqo.io/deletion-grace-period-seconds"
"""On a ShadowPod that is about to be deleted: in how many seconds its Pod is to end."""
OFFERED_STORAGE_CLASS: Final = "pyliqo.io/storage-class"
"""On a virtual Node that offers storage: the class of the provider that its claims get there."""
LARGEST_POD: Final = "pyliqo.io/largest-pod"
"""On a virtual Node: the most of each resource that one node of its cluster has free."""
POD_NETWORKS: Final = "pyliqo.io/pod-networks"
"""Of the Identity of a provider's control plane: the networks in which its pods may be."""
SUGGESTED_LABELS: Final = "pyliqo.io/suggested-labels"
"""On a VirtualNode: the labels that its provider suggests, as JSON; ``spec.labels`` win."""
PLACEMENT: Final = "pyliqo.io/placement"
"""On a local pod: what the webhook added to it, and why. It stays at the consumer."""
MOVED_CLAIM: Final = "pyliqo.io/moved-claim"
"""On the claim that holds the data during a move: what is moved where, as JSON."""
MOVED_DIGEST: Final = "pyliqo.io/moved-digest"
"""On that claim, once all data is in it: the digest of names, modes, owners, contents."""
MOVED: Final = "pyliqo.io/moved"
"""On that claim, once the data is in the claim that replaces it, too."""
RESTORED_FROM: Final = "pyliqo.io/restored-from"
"""On a claim that was created again by a move: the UID of the one its data comes from."""
MOVER: Final = "pyliqo.io/mover"
"""Label of the pods that copy the data of a claim."""
EVICT_MISPLACED: Final = "pyliqo.io/evict-misplaced-pods"
"""On a NamespaceOffloading: the strategy for whose sake pods that violate it are to be evicted."""
ALLOWED_CLUSTERS: Final = "pyliqo.io/allowed-clusters"
"""On a namespace, by an administrator: to which clusters it may be offloaded at most."""
ON_VIRTUAL_NODES: Final = "pyliqo.io/on-virtual-nodes"
"""Label of a DaemonSet that tolerates virtual nodes: `"true"` lets its pods onto them."""
MIRROR_POD: Final = "kubernetes.io/config.mirror"
"""On pods that a kubelet reads from files; the API server only mirrors them."""
SCHEDULING_ENABLED_BY: Final = "pyliqo.io/scheduling-enabled-by"
"""On a namespace whose scheduling label was set by pyliqo, and so may be taken back."""

# Conditions and reasons that the user of a pod sees -----------------------------------------------

OFFLOADED_CONDITION: Final = "pyliqo.io/Offloaded"
"""Condition of a pod: whether it is offloaded, and why not."""
ADDRESS_CONDITION: Final = "pyliqo.io/AddressPublished"
"""False where the provider says an address that no pod of its can have; else it is not there."""
UPDATED_CONDITION: Final = "Updated"
"""Of a ShadowPod: whether its Pod follows a change of its specification."""
PODS_PLACED: Final = "PodsPlaced"
"""Of a NamespaceOffloading: whether every pod runs where the namespace places it."""
POLICIES_REFLECTED: Final = "PoliciesReflected"
"""Of a NamespaceOffloading: whether its policies are reflected; not there where it has none."""
NO_REMOTE_POD: Final = "NoRemotePod"
FAILED_REFLECTION: Final = "FailedReflection"
REFLECTED_IN_PART: Final = "ReflectedInPart"
"""The twin lacks something of its original: the provider does not offer it, or it means nothing
there."""
TOKEN_NOT_SENT: Final = "TokenNotSent"  # noqa: S105  # a reason
"""A pod asks for a token, and its virtual node has no API-server support."""
REFLECTION_DISABLED: Final = "ReflectionDisabled"
MASS_ABSENCE: Final = "MassAbsence"
"""So much is missing from a list at once that nothing is deleted for it, for a while."""
TOO_MUCH: Final = "ProviderSaysTooMuch"
"""A provider shows more objects than are kept of it: what was known before is kept."""
OFFLOADING_ABORTED: Final = "OffloadingAborted"
OFFLOADING_BACK_OFF: Final = "OffloadingBackOff"

# Finalizers ---------------------------------------------------------------------------------------

NAMESPACE_OFFLOADING_FINALIZER: Final = "namespaceoffloading-controller.liqo.io/finalizer"
"""On a NamespaceOffloading: its twins go before it does."""
NAMESPACE_MAP_FINALIZER: Final = "namespacemap-controller.liqo.io/finalizer"
"""On a NamespaceMap at the provider: its twin namespaces go before it does."""
VIRTUAL_NODE_FINALIZER: Final = "virtualnode-controller.liqo.io/finalizer"
"""On a VirtualNode: its Node is drained before it goes."""
REPLICATION_FINALIZER: Final = "crdreplicator.liqo.io/resource"
"""On what is replicated: its replica goes before it does."""
REPLICATION_SECRET_FINALIZER: Final = "crdreplicator.liqo.io/operator"  # noqa: S105  # a finalizer
"""On the Secret of a control plane: what is replicated by it goes before."""
TENANT_FINALIZER: Final = "tenant.liqo.io/finalizer"
"""On a Tenant: all that its consumer has at the provider goes before it does."""
SLICE_FINALIZER: Final = "pyliqo.io/virtual-nodes"
"""On a local ResourceSlice: its virtual nodes go before it does."""
TENANT_RIGHTS_FINALIZER: Final = "pyliqo.io/controller-manager"
"""On the controller manager's own binding in a tenant namespace: what needs it goes before."""

# Field managers -----------------------------------------------------------------------------------

REFLECTION_MANAGER: Final = "reflection.liqo.io"
SHADOW_ENDPOINT_SLICE_MANAGER: Final = "shadow-endpointslice-controller"
