"""The Deployment of one virtual kubelet: two containers of the same image.

Image and ``arguments`` come from the VkOptionsTemplate and from the VirtualNode's own fields only.
Source: docs/parity.md § 3.4.1, 5.1; SEC-C4.
"""

import hashlib
from typing import Final

from apis import keys, listening, naming, objects
from apis.listening import Address
from apis.objects import Key, Object
from apis.offloading import VirtualNode, VkOptionsTemplate
from controllers.offloading.virtualnode.forge import arguments
from controllers.offloading.virtualnode.forge.arguments import KUBELET, REFLECTOR, LocalCluster

HEALTH_PORTS: Final = {KUBELET: 8090, REFLECTOR: 8091}
METRICS_PORTS: Final = {KUBELET: "metrics", REFLECTOR: "metrics-reflect"}
"""Their names; the reflector's comes after the kubelet's, which is the template's."""

_SCRATCH: Final = "scratch"
_USER: Final = 65532


def deployment(obj: Object, options: VkOptionsTemplate, cluster: LocalCluster) -> Object:
    """Return the whole Deployment of the VirtualNode ``obj``, and owned by it."""
    virtual_node = VirtualNode.parse(obj)
    selector = selector_labels(virtual_node)
    labels = {**options.extra_labels, **selector}
    template: Object = {
        "metadata": {
            "labels": labels,
            "annotations": {
                **options.extra_annotations,
                keys.OFFLOADING_PATCH_HASH: patch_hash(obj["spec"].get("offloadingPatch") or {}),
            },
        },
        "spec": _pod_spec(virtual_node, options, cluster),
    }
    metadata: Object = {
        "labels": {**labels, keys.LIQO_MANAGED: "true"},
        "annotations": dict(options.extra_annotations),
        "ownerReferences": [objects.owner_reference(keys.VIRTUAL_NODE, obj)],
    }
    key = Key(virtual_node.namespace, naming.vk_deployment(virtual_node.name))
    spec = {
        "replicas": options.replicas,
        "selector": {"matchLabels": selector},
        "template": template,
    }
    return objects.named(keys.DEPLOYMENT, key, metadata=metadata, spec=spec)


def selector_labels(virtual_node: VirtualNode) -> dict[str, str]:
    return {
        keys.COMPONENT: keys.VIRTUAL_KUBELET,
        keys.REMOTE_CLUSTER_ID: virtual_node.cluster_id,
        keys.VIRTUAL_NODE_LABEL: virtual_node.name,
    }


def patch_hash(offloading_patch: Object) -> str:
    """Return the annotation value that rolls the pods out when ``offloading_patch`` changes."""
    text = objects.canonical(offloading_patch)
    return hashlib.sha256(text.encode()).hexdigest()


def metrics_addresses(options: VkOptionsTemplate) -> dict[str, Address]:
    """Return where each container serves its metrics; nowhere unless the template enables it.

    Raises:
        ValueError: the template's address cannot be read, or names a port that is used.
    """
    given = listening.parse(options.metrics_address) if options.metrics_enabled else None
    if given is None:
        return {}
    found = {KUBELET: given, REFLECTOR: given._replace(port=given.port + 1)}
    used = sorted([*HEALTH_PORTS.values(), keys.KUBELET_PORT])
    if not (0 < given.port < listening.MOST) or {each.port for each in found.values()} & {*used}:
        raise ValueError(
            f"{options.metrics_address!r:.80}: the metrics need this port and the next, which "
            f"have to be from 1 to {listening.MOST} and none of {', '.join(map(str, used))}"
        )
    return found


def _pod_spec(
    virtual_node: VirtualNode, options: VkOptionsTemplate, cluster: LocalCluster
) -> Object:
    flags = {
        KUBELET: arguments.of_kubelet(virtual_node, options, cluster),
        REFLECTOR: arguments.of_reflector(virtual_node, options, cluster),
    }
    metrics = metrics_addresses(options)
    spec: Object = {
        "serviceAccountName": virtual_node.name,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(name, options, flags[name], metrics.get(name)) for name in flags],
        "volumes": [{"name": _SCRATCH, "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    placement = {
        "imagePullSecrets": list(options.image_pull_secrets),
        "tolerations": list(options.tolerations),
        "nodeSelector": options.node_selector,
        "affinity": options.affinity,
        "priorityClassName": options.priority_class_name,
    }
    return spec | {name: value for name, value in placement.items() if value}


def _container(
    name: str, options: VkOptionsTemplate, flags: list[str], metrics: Address | None
) -> Object:
    port = HEALTH_PORTS[name]
    ports = [_port(f"{name}-health"[:15], port)]
    if name == KUBELET:
        ports.insert(0, _port("kubelet-api", keys.KUBELET_PORT))
    serving = [f"--health-port={port}"]
    if metrics is not None:
        ports.append(_port(METRICS_PORTS[name], metrics.port))
        serving.append(f"--metrics-address={metrics}")
    container: Object = {
        "name": name,
        "image": options.container_image,
        "imagePullPolicy": options.pull_policy,
        "command": ["python3", "-m", name],
        "args": [*flags, *serving],
        "env": _environment(),
        "ports": ports,
        "livenessProbe": _probe("/livez", port, failures=6),
        "readinessProbe": _probe("/readyz", port, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": _SCRATCH, "mountPath": "/tmp"}],  # noqa: S108  # its own memory
    }
    if options.resources:
        container["resources"] = options.resources
    return container


def _port(name: str, number: int) -> Object:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _environment() -> list[Object]:
    paths = {
        "POD_IP": "status.podIP",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "VIRTUALNODE_NAME": f"metadata.labels['{keys.VIRTUAL_NODE_LABEL}']",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in paths.items()
    ]


def _probe(path: str, port: int, *, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": 5,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
