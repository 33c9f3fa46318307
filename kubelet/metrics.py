"""What a virtual kubelet counts. Label values are ours, never a user's."""

from typing import Final

from prometheus_client import Gauge

from kube.metrics import REGISTRY

UNANSWERED: Final = Gauge(
    "pyliqo_kubelet_unanswered_pods",
    "Pods whose ShadowPod the provider took a minute ago, and made no Pod of",
    registry=REGISTRY,
)
STREAMS: Final = Gauge(
    "pyliqo_kubelet_streams",
    "Open exec, attach and portforward streams",
    ["subresource"],
    registry=REGISTRY,
)
