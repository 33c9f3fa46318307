"""The schemas of what another cluster says: names, texts, lists and maps with a length.

Of the kinds in ``SHAPES`` only the fields that are read here are kept. Of others, which an
administrator opted in or ``liqoctl`` reads, the metadata has its shape, and the rest is JSON of a
bounded depth. Source: docs/decisions/0013 (20).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from apis import keys
from apis.objects import Kind

MOST: Final = 10_000
"""Items of a list and entries of a map: pods and NamespaceMaps have far fewer."""
MOST_DATA: Final = 200_000
"""Keys of a ConfigMap or Secret: more do not fit into the 1 MiB that an API server takes."""
CUT: Final = {"is_cut": True}
"""Of a text that is too long: of what is for people the beginning is kept, nothing of the rest."""


class Schema(msgspec.Struct, frozen=True, gc=False):
    """A part of an object."""


def _shape(**fields: Any) -> Any:
    """Return a shape with these fields: a type, or a type and what stands there by default."""
    listed = [
        (name, *one) if isinstance(one, tuple) else (name, one | UnsetType, UNSET)
        for name, one in fields.items()
    ]
    return msgspec.defstruct(
        "Part", listed, bases=(Schema,), rename={"class_": "class"}, frozen=True, gc=False
    )


def _list(of: Any) -> Any:
    return Annotated[list[of], Meta(max_length=MOST)]


def _map(of: Any) -> Any:
    return Annotated[dict[str, of], Meta(max_length=MOST)]


_NAME: Final[Any] = Annotated[str, Meta(max_length=253)]
_TEXT: Final[Any] = Annotated[str, Meta(max_length=2**16, extra=CUT)]
_LONG: Final[Any] = Annotated[str, Meta(max_length=2**20)]
_BASE64: Final[Any] = Annotated[str, Meta(max_length=2**20 * 4 // 3 + 2**10)]
"""Of 1 MiB, which Kubernetes lets a Secret or ConfigMap hold, decoded."""
_TIME: Final[Any] = _NAME | None
_NUMBER: Final[Any] = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_TRUTH: Final[Any] = bool | None
_TEXTS, _AMOUNTS, _ANYTHING = _map(_TEXT), _map(str | int), dict[str, Any]

_OWNER = _shape(apiVersion=_TEXT, kind=_NAME, name=_NAME, uid=_NAME, controller=_TRUTH)
_META = _shape(
    name=(_NAME, ""),
    namespace=_NAME,
    uid=(_NAME, ""),
    resourceVersion=(_NAME, ""),
    generation=_NUMBER,
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=_NUMBER | None,
    labels=_TEXTS | None,
    annotations=_map(_LONG) | None,
    finalizers=_list(_TEXT) | None,
    ownerReferences=_list(_OWNER) | None,
    managedFields=_list(_shape(manager=_TEXT, operation=_NAME)) | None,
)
_METADATA = (_META, _META())

_CONDITIONS = _list(
    _shape(
        type=_NAME,
        status=_NAME,
        reason=_TEXT,
        message=_TEXT,
        lastTransitionTime=_TIME,
        lastProbeTime=_TIME,
        observedGeneration=_NUMBER,
    )
)
_STATE = _shape(
    waiting=_shape(reason=_TEXT, message=_TEXT),
    running=_shape(startedAt=_TIME),
    terminated=_shape(
        exitCode=_NUMBER,
        signal=_NUMBER,
        reason=_TEXT,
        message=_TEXT,
        startedAt=_TIME,
        finishedAt=_TIME,
        containerID=_TEXT,
    ),
)
_USER = _shape(uid=_NUMBER, gid=_NUMBER, supplementalGroups=_list(_NUMBER))
_CONTAINERS = _list(
    _shape(
        name=_NAME,
        state=_STATE,
        lastState=_STATE,
        ready=bool,
        started=_TRUTH,
        restartCount=_NUMBER,
        image=_TEXT,
        imageID=_TEXT,
        containerID=_TEXT,
        allocatedResources=_AMOUNTS,
        resources=_shape(limits=_AMOUNTS, requests=_AMOUNTS),
        volumeMounts=_list(
            _shape(name=_TEXT, mountPath=_TEXT, readOnly=bool, recursiveReadOnly=_NAME)
        ),
        user=_shape(linux=_USER),
    )
)
_POD_STATUS = _shape(
    conditions=(_CONDITIONS, []),
    phase=_NAME,
    reason=_TEXT,
    message=_TEXT,
    podIP=_NAME,
    startTime=_TIME,
    observedGeneration=_NUMBER,
    containerStatuses=_CONTAINERS,
    initContainerStatuses=_CONTAINERS,
    ephemeralContainerStatuses=_CONTAINERS,
)
_OF_POD = (_POD_STATUS, _POD_STATUS())
_NOTHING = _shape()
_SENT = _shape(
    containers=_list(_ANYTHING),
    initContainers=_list(_ANYTHING),
    ephemeralContainers=_list(_ANYTHING),
    tolerations=_list(_ANYTHING),
    activeDeadlineSeconds=_NUMBER,
)
"""What of the PodSpec that was sent is compared with the local pod."""
_SENT_SPEC = _shape(pod=(_SENT, _SENT()))

_INVOLVED = _shape(kind=_NAME, namespace=_NAME, name=_NAME, uid=_NAME, fieldPath=_TEXT)
_EVENT = _shape(
    metadata=_METADATA,
    involvedObject=(_INVOLVED, _INVOLVED()),
    source=_shape(component=_TEXT),
    series=_shape(count=_NUMBER, lastObservedTime=_TIME) | None,
    reportingComponent=_TEXT,
    type=_NAME,
    reason=_TEXT,
    message=_TEXT,
    action=_TEXT,
    count=_NUMBER,
    firstTimestamp=_TIME,
    lastTimestamp=_TIME,
    eventTime=_TIME,
)

_AUTH_PARAMS = _shape(
    ca=_LONG,
    signedCRT=_LONG,
    apiServer=_TEXT,
    proxyURL=_TEXT,
    awsConfig=_map(_TEXT),
)
_CLASSES = {
    f"{each}Classes": _list(_shape(**{f"{each}ClassName": _NAME, "default": bool}))
    for each in ("storage", "ingress", "loadBalancer")
}
_SLICE_STATUS = _shape(
    conditions=_CONDITIONS,
    resources=_AMOUNTS,
    largestPod=_AMOUNTS,
    authParams=_AUTH_PARAMS,
    nodeLabels=_TEXTS,
    nodeSelector=_TEXTS,
    **_CLASSES,
)
_MAP_STATUS = _shape(
    currentMapping=_map(_shape(remoteNamespace=_NAME, phase=_NAME, reason=_TEXT, message=_TEXT)),
    offered=_shape(
        serviceTypes=_list(_TEXT),
        annotationDomains=_list(_TEXT),
        podAnnotationDomains=_list(_TEXT),
        podTolerations=_list(_shape(key=_TEXT, operator=_NAME, value=_TEXT, effect=_NAME)),
        loadBalancerClasses=_list(_TEXT),
    ),
)


_OF_SLICE = _shape(
    consumerClusterID=_NAME, providerClusterID=_NAME, resources=_AMOUNTS, class_=_NAME, csr=_LONG
)
_OF_RENEW = _shape(
    consumerClusterID=_NAME,
    publicKey=_LONG,
    csr=_LONG,
    identityType=_NAME,
    resourceSliceRef=_shape(name=_NAME),
)

_DATA = Annotated[dict[str, _LONG], Meta(max_length=MOST_DATA)]
_ENCODED = Annotated[dict[str, _BASE64], Meta(max_length=MOST_DATA)]
_OF_SERVICE = _shape(
    type=_NAME,
    selector=_TEXTS | None,
    ports=_list(
        _shape(
            name=_NAME,
            port=_NUMBER,
            targetPort=int | _NAME,
            protocol=_NAME,
            appProtocol=_NAME,
            nodePort=_NUMBER,
        )
    ),
    clusterIP=_NAME,
    externalName=_NAME,
    allocateLoadBalancerNodePorts=_TRUTH,
    externalTrafficPolicy=_NAME,
    internalTrafficPolicy=_NAME,
    ipFamilyPolicy=_NAME,
    loadBalancerClass=_NAME,
    loadBalancerSourceRanges=_list(_NAME),
    publishNotReadyAddresses=_TRUTH,
    sessionAffinity=_NAME,
    sessionAffinityConfig=_shape(clientIP=_shape(timeoutSeconds=_NUMBER)),
)
_OF_INGRESS = _shape(
    defaultBackend=_ANYTHING, rules=_list(_ANYTHING), tls=_list(_ANYTHING), ingressClassName=_NAME
)
_OF_SHADOW_SLICE = _shape(
    template=_shape(addressType=_NAME, endpoints=_list(_ANYTHING), ports=_list(_ANYTHING))
)
_OF_CLAIM = _shape(
    accessModes=_list(_NAME),
    volumeMode=_NAME,
    resources=_shape(requests=_AMOUNTS, limits=_AMOUNTS),
    storageClassName=_NAME,
)


def _twin(spec: Any, status: Any = _NOTHING) -> Any:
    """Return the shape of what this cluster writes there: the fields that it writes."""
    return _shape(metadata=_METADATA, spec=(spec, spec()), status=status)


SCHEMAS: Final[Mapping[Kind, Any]] = {
    keys.POD: _shape(metadata=_METADATA, spec=(_NOTHING, _NOTHING()), status=_OF_POD),
    keys.SHADOW_POD: _shape(metadata=_METADATA, spec=(_SENT_SPEC, _SENT_SPEC()), status=_OF_POD),
    keys.EVENT: _EVENT,
    keys.RESOURCE_SLICE: _twin(_OF_SLICE, _SLICE_STATUS),
    keys.NAMESPACE_MAP: _twin(_shape(desiredMapping=_map(_NAME)), _MAP_STATUS),
    keys.RENEW: _twin(_OF_RENEW, _shape(authParams=_AUTH_PARAMS)),
    keys.CONFIG_MAP: _shape(metadata=_METADATA, data=_DATA, binaryData=_ENCODED, immutable=_TRUTH),
    keys.SECRET: _shape(metadata=_METADATA, data=_ENCODED, type=_NAME, immutable=_TRUTH),
    keys.SERVICE: _twin(_OF_SERVICE),
    keys.SHADOW_ENDPOINT_SLICE: _twin(_OF_SHADOW_SLICE),
    keys.INGRESS: _twin(_OF_INGRESS),
    keys.PERSISTENT_VOLUME_CLAIM: _twin(_OF_CLAIM, _shape(capacity=_AMOUNTS)),
}
STATUS: Final = _shape(message=_TEXT, reason=_NAME, code=_NUMBER)
"""Why an API server refuses, in all its words: Kubernetes, ``Status``."""
OTHER: Final = _shape(metadata=_METADATA, spec=_ANYTHING, status=_ANYTHING)
"""An object of any other kind; its further fields stay as they are."""
