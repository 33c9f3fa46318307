"""What another cluster says, in the shape that all code behind here expects.

The client of a peer (``kube.peer.Peer``) passes every object that it reads through ``fitted``: no
other code meets a list where a text belongs, or a text without an end. Of the kinds in ``SHAPES``
only the fields that are read here are kept. Of other kinds the metadata has its shape, and the rest
is JSON of a bounded depth. What does not fit is absent.

Source: hostile.md part 2, cause 1; rulings.md 20; security.md B2, B8.
"""

import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from apis import keys
from apis.objects import Kind, Object

DEEPEST: Final = 64
"""Levels of JSON in a field without a shape of its own: CRDs and their objects have fewer."""
MOST: Final = 10_000
"""Items of a list and entries of a map: pods and NamespaceMaps have far fewer."""
_ABSENT: Final = object()
_MISFITS: Final = (msgspec.ValidationError, RecursionError, OverflowError)
_UNIONS: Final = (types.UnionType, Union)


_CUT: Final = {"is_cut": True}
"""Of a text that is too long: of what is for people the beginning is kept, nothing of the rest."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """A part of an object."""


def _shape(**fields: Any) -> Any:
    """Return a shape with these fields: a type, or a type and what stands there by default."""
    listed = [
        (name, *one) if isinstance(one, tuple) else (name, one | UnsetType, UNSET)
        for name, one in fields.items()
    ]
    return msgspec.defstruct("Part", listed, bases=(Shape,), frozen=True, gc=False)


def _list(of: Any) -> Any:
    return Annotated[list[of], Meta(max_length=MOST)]


def _map(of: Any) -> Any:
    return Annotated[dict[str, of], Meta(max_length=MOST)]


_NAME: Final[Any] = Annotated[str, Meta(max_length=253)]
_TEXT: Final[Any] = Annotated[str, Meta(max_length=2**16, extra=_CUT)]
_LONG: Final[Any] = Annotated[str, Meta(max_length=2**20)]
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
        loadBalancerClasses=_list(_TEXT),
    ),
)


def _replica(status: Any) -> Any:
    return _shape(metadata=_METADATA, spec=(_ANYTHING, {}), status=status)


SHAPES: Final[Mapping[Kind, Any]] = {
    keys.POD: _shape(metadata=_METADATA, spec=(_NOTHING, _NOTHING()), status=_OF_POD),
    keys.SHADOW_POD: _shape(metadata=_METADATA, spec=(_SENT_SPEC, _SENT_SPEC()), status=_OF_POD),
    keys.EVENT: _EVENT,
    keys.RESOURCE_SLICE: _replica(_SLICE_STATUS),
    keys.NAMESPACE_MAP: _replica(_MAP_STATUS),
    keys.RENEW: _replica(_shape(authParams=_AUTH_PARAMS)),
}
_OTHER: Final = _shape(metadata=_METADATA, spec=_ANYTHING, status=_ANYTHING)
"""An object of any other kind; its further fields stay as they are."""
_SHAPED: Final = frozenset({"metadata", "spec", "status"})
_TYPED: Final = ("apiVersion", "kind")


def fitted(kind: Kind, said: Object, tell: Callable[[str], None] = lambda _: None) -> Object:
    """Return of ``said``, an object of ``kind``, what has its shape.

    ``tell`` gets the path of each field that is left out, or cut, such as ``Pod.status.phase``.
    """
    shape = SHAPES.get(kind, _OTHER)
    found = {name: value for name, value in said.items() if _is_shallow(value)}
    for name in said.keys() - found.keys():
        tell(f"{kind.kind}.{name}")
    made = _fitted(found, shape, kind.kind, tell)
    names = _TYPED if kind in SHAPES else found.keys() - _SHAPED
    return {**{name: found[name] for name in names if name in found}, **made}


def _fitted(value: Any, shape: Any, path: str, tell: Callable[[str], None]) -> Any:
    """Return of ``value`` what fits ``shape``, ``_ABSENT`` if nothing does."""
    try:
        return msgspec.to_builtins(msgspec.convert(value, shape))
    except _MISFITS:
        inner, most = _inside(shape)
    if isinstance(value, dict) and _is_shape(inner):
        return _fields(value, inner, path, tell)
    if isinstance(value, list) and get_origin(inner) is list:
        some = enumerate(value[:most])
        return list(_some(some, get_args(inner)[0], path, tell).values())
    if isinstance(value, dict) and get_origin(inner) is dict:
        some_ = itertools.islice(value.items(), most)
        return _some(some_, get_args(inner)[1], path, tell)
    tell(path)
    return _cut(value, shape) if isinstance(value, str) else _ABSENT


def _cut(value: str, shape: Any) -> Any:
    notes = [note for one in _members(shape) for note in get_args(one) if isinstance(note, Meta)]
    most = next((note.max_length for note in notes if note.extra == _CUT), None)
    return _ABSENT if most is None else value[:most]


def _fields(value: Object, shape: Any, path: str, tell: Callable[[str], None]) -> Object:
    made = {
        field.encode_name: found
        for field in msgspec.structs.fields(shape)
        if field.encode_name in value
        and (
            found := _fitted(
                value[field.encode_name], field.type, f"{path}.{field.encode_name}", tell
            )
        )
        is not _ABSENT
    }
    return dict(msgspec.to_builtins(msgspec.convert(made, shape)))


def _some(
    items: Iterable[tuple[Any, Any]], shape: Any, path: str, tell: Callable[[str], None]
) -> dict[Any, Any]:
    """Return those of ``items`` that fit."""
    return {
        name: found
        for name, value in items
        if (found := _fitted(value, shape, path, tell)) is not _ABSENT
    }


def _inside(shape: Any) -> tuple[Any, int]:
    """Return the shape, list or map that ``shape`` may be, and how long it is at most."""
    for one in _members(shape):
        inner, *notes = get_args(one) if get_origin(one) is Annotated else (one,)
        if _is_shape(inner) or get_origin(inner) in {list, dict}:
            most = next((note.max_length for note in notes if isinstance(note, Meta)), None)
            return inner, most or MOST
    return None, 0


def _members(shape: Any) -> tuple[Any, ...]:
    return get_args(shape) if get_origin(shape) in _UNIONS else (shape,)


def _is_shape(inner: Any) -> bool:
    return isinstance(inner, type) and issubclass(inner, Shape)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [child for one in level for child in _children(one)]
        if not level:
            return True
    return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
