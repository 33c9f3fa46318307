"""AdmissionReview as read off the wire and as answered, and JSON patches made by hand. Pure.

Source: Kubernetes, "Dynamic Admission Control"; docs/parity.md A-2 to A-9; SEC-D8; RFC 6902; RFC
6901 for the pointers; decision 0014.
"""

import base64
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from apis.objects import Key, Kind, Object
from apis.validation import DeniedError
from webhook import strictjson

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
MAX_MESSAGE: Final = 256
MAX_NAME: Final = 80
"""Of namespace and name in a message, which leaves room for what is to be said of them."""
MAX_WARNINGS: Final = 15
"""Of at most 256 characters each: together just below the 4096 that API servers pass on."""

Operation: TypeAlias = dict[str, Any]
"""One operation: {"op": "add", "path": "/spec/tolerations/-", "value": {...}}."""

Path: TypeAlias = tuple[str, ...]
"""Names from the root of an object down; none of them an index of a list."""

_CREATE, _UPDATE, _DELETE = "CREATE", "UPDATE", "DELETE"
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    409: "Conflict",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class MalformedError(Exception):
    """No AdmissionReview as API servers send it: answer 400, with ``uid`` if it had one."""

    def __init__(self, message: str, *, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


@dataclass(frozen=True)
class Request:
    """What somebody asks of the API server; ``object`` and ``old_object`` are {} where not sent."""

    uid: str
    operation: str
    resource: str
    """As ``Kind.resource``: ``pods``, ``namespaceoffloadings.offloading.liqo.io``."""
    version: str = "v1"
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Of the object, where it is known; of the pod, for its subresources."""
    object: Object = field(default_factory=dict, repr=False)
    old_object: Object = field(default_factory=dict, repr=False)
    user: str = ""
    groups: tuple[str, ...] = ()
    is_dry_run: bool = False
    budget_s: float = 8.0
    """How long looking things up may take, so that the API server still waits for the answer."""


@dataclass(frozen=True)
class Admitted:
    """The request may pass, changed by ``patch``; ``warnings`` are shown to the user."""

    patch: Sequence[Operation] = ()
    warnings: Sequence[str] = ()
    verdict: str = "allowed"
    """Why, in a word or two of ours: for the audit log."""


Handler: TypeAlias = Callable[[Request], Admitted]
"""Admits (a validator without a patch) or raises DeniedError."""


class Lookup(Protocol):
    """All that admission may do with a cluster: look. Sync, because Flask's views are."""

    def cached(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, None where only the server can tell."""
        ...

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, asked of the server when the cache has none; raise KubeError."""
        ...

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all cached objects of ``kind``; KubeError before the first list."""
        ...

    def get_live(self, kind: Kind, key: Key) -> Object | None:
        """Return the object as the server has it now; raise KubeError."""
        ...

    def list_live(self, kind: Kind) -> Mapping[Key, Object]:
        """Return all objects of ``kind`` as the server has them now; raise KubeError."""
        ...

    def select_live(
        self, kind: Kind, shape: type[T], namespace: str = "", fields: str = ""
    ) -> Mapping[Key, T]:
        """Return the ``shape`` of what is selected as the server has it now; raise KubeError."""
        ...

    def may_get(self, request: Request, kind: Kind, namespace: str) -> bool:
        """Whether who sent ``request`` may get ``kind`` there; not if nobody says so in time."""
        ...

    def within(self, seconds: float) -> "Lookup":
        """Return a Lookup that gives up ``seconds`` from now."""
        ...


@dataclass(frozen=True)
class WebhookHandler:
    """A handler and what it is for: anything else that arrives there is refused, never guessed."""

    kind: Kind
    operations: frozenset[str]
    handle: Handler
    subresources: tuple[str, ...] = ("",)
    """Empty is the object itself."""
    waits: Callable[[str], bool] = lambda _namespace: True
    """Whether it may have to ask an API server about what is in that namespace."""


class _Resource(msgspec.Struct):
    version: str
    resource: str
    group: str = ""


class _User(msgspec.Struct):
    username: str | None = None
    groups: list[str] | None = None


class _Sent(msgspec.Struct, rename="camel"):
    uid: str
    operation: str
    resource: _Resource
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user_info: _User | None = None
    dry_run: bool | None = None
    options: dict[str, Any] | None = None


class _Where(msgspec.Struct):
    namespace: str | None = None


class _Head(msgspec.Struct):
    request: _Where


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _Sent


def answer(request: Request, handler: WebhookHandler) -> Object:
    """Return the AdmissionReview that answers ``request``.

    Raises:
        MalformedError: it lacks its object.
    """
    try:
        expect(request, handler)
        admitted = handler.handle(request)
    except DeniedError as denied:
        return _answer({"uid": request.uid, **_refusal(denied, about(request, handler.kind))})
    except MalformedError as malformed:
        raise MalformedError(str(malformed), uid=request.uid) from malformed
    return _answer({"uid": request.uid, **_admission(admitted)})


def malformed(error: MalformedError) -> Object:
    denied = DeniedError(str(error), code=400)
    return _answer({"uid": error.uid, **_refusal(denied)})


def parse(body: bytes, *, budget_s: float) -> Request:
    """Return the request in the AdmissionReview ``body``.

    Shape: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {...}}.

    Raises:
        MalformedError: not that, or not strict JSON.
    """
    try:
        sent = strictjson.decode(body)
    except ValueError as error:
        raise MalformedError(f"the body is {error}") from error
    uid = _uid(sent)
    try:
        found = msgspec.convert(sent, _Review)
    except msgspec.ValidationError as error:
        raise MalformedError(f"not an AdmissionReview: {error}", uid=uid) from error
    if (found.api_version, found.kind) != (API_VERSION, "AdmissionReview"):
        message = f"only AdmissionReview of {API_VERSION} is understood: list it alone"
        raise MalformedError(message, uid=uid)
    if not uid:
        raise MalformedError("the request has no uid")
    return _request(found.request, budget_s)


def namespace_in(body: bytes) -> str:
    """Return which namespace the review in ``body`` is about, read without the rest of it.

    Empty where it tells none, or is not a review.
    """
    try:
        return msgspec.json.decode(body, type=_Head).request.namespace or ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _uid(sent: Any) -> str:
    request = sent.get("request") if isinstance(sent, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    return uid[:MAX_MESSAGE] if isinstance(uid, str) else ""


def _request(sent: _Sent, budget_s: float) -> Request:
    resource, user = sent.resource, sent.user_info or _User()
    plural = resource.resource
    return Request(
        uid=sent.uid,
        operation=sent.operation,
        resource=f"{plural}.{resource.group}" if resource.group else plural,
        version=resource.version,
        subresource=sent.sub_resource or "",
        namespace=sent.namespace or "",
        name=sent.name or "",
        object=sent.object or {},
        old_object=sent.old_object or {},
        user=user.username or "",
        groups=tuple(user.groups or ()),
        is_dry_run=bool(sent.dry_run),
        budget_s=budget_s,
    )


def expect(request: Request, handler: WebhookHandler) -> None:
    """Check that ``request`` is one that ``handler`` is for, and whole.

    Raises:
        DeniedError: it is for another.
        MalformedError: it lacks its object.
    """
    is_kind = (request.resource, request.version) == (handler.kind.resource, handler.kind.version)
    if not is_kind or request.subresource not in handler.subresources:
        shown = named(request.resource, request.subresource)
        expected = " and ".join(named(handler.kind.resource, part) for part in handler.subresources)
        message = f"this webhook judges {expected} {handler.kind.version}, not {shown} "
        raise DeniedError(f"{message}{request.version}: correct its configuration", code=400)
    if request.operation not in handler.operations:
        expected = " and ".join(sorted(handler.operations))
        message = (
            f"this webhook judges {expected} of {handler.kind.resource}, not {request.operation}"
        )
        raise DeniedError(f"{message}: correct its configuration", code=400)
    if request.operation in (_CREATE, _UPDATE) and not request.object:
        raise MalformedError(f"{request.operation} without an object")
    if request.operation in (_UPDATE, _DELETE) and not request.old_object:
        raise MalformedError(f"{request.operation} without an oldObject")


def named(resource: str, subresource: str) -> str:
    """Return what webhook configurations call it: ``pods/exec``, or ``pods`` for the pod itself."""
    return "/".join(part for part in (resource, subresource) if part)


def _admission(admitted: Admitted) -> Object:
    response: Object = {"allowed": True, "auditAnnotations": {"verdict": admitted.verdict}}
    if admitted.patch:
        encoded = base64.b64encode(msgspec.json.encode(admitted.patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    if admitted.warnings:
        response["warnings"] = [sentence(text) for text in admitted.warnings[:MAX_WARNINGS]]
    return response


def about(request: Request, kind: Kind) -> str:
    """Return the object as refusals call it: "pod shop/web"; "…" stands for a generated end."""
    metadata = request.object.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    name = request.name or given.get("name") or f"{given.get('generateName') or ''}…"
    named = f"{request.namespace}/{name}" if request.namespace else str(name)
    return f"{kind} {_shortened(named, MAX_NAME)}"


def _refusal(denied: DeniedError, subject: str = "") -> Object:
    message = sentence(": ".join(part for part in (subject, str(denied)) if part))
    reason = _REASONS.get(denied.code, "Forbidden")
    return {
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": denied.code,
            "reason": reason,
            "message": message,
        },
        "auditAnnotations": {"verdict": "denied", "reason": message},
    }


def _answer(response: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def sentence(text: str) -> str:
    """Return ``text`` as one line of at most 256 printable characters.

    What is too long loses its middle: object and field come first, what to do comes last.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return _shortened(text, MAX_MESSAGE)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 1]}…{text[-end:]}"


# JSON Patch, from what is there and what is wanted ------------------------------------------------


def find(obj: Object, path: Path) -> Any:
    """Return what is at ``path``, None when it or anything above it is missing."""
    found: Any = obj
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def put(obj: Object, path: Path, value: Any) -> list[Operation]:
    """Return what sets ``value`` at ``path`` and makes the objects above it; [] if it is there.

    It looks at ``obj`` as sent: two paths of one patch may not lack the same parent.
    """
    found, depth = obj, 0
    while depth < len(path) and isinstance(found, dict) and found.get(path[depth]) is not None:
        found, depth = found[path[depth]], depth + 1
    if depth == len(path) and found == value:
        return []
    depth = min(depth + 1, len(path))
    for name in reversed(path[depth:]):
        value = {name: value}
    return [{"op": "add", "path": _pointer(path[:depth]), "value": value}]


def append(obj: Object, path: Path, item: Any) -> list[Operation]:
    """Return what adds ``item`` to the end of the list at ``path``, which is made if missing."""
    if find(obj, path) is None:
        return put(obj, path, [item])
    return [{"op": "add", "path": _pointer((*path, "-")), "value": item}]


def applied(obj: Object, operations: Iterable[Operation]) -> Object:
    """Return ``obj`` after ``operations`` of this module; what they leave alone is shared."""
    for operation in operations:
        obj = _with(obj, _names(operation["path"]), operation["value"])
    return obj


def _with(found: Any, names: Sequence[str], value: Any) -> Any:
    name, *below = names
    if name == "-" and isinstance(found, list):
        return [*found, value]
    return {**found, name: _with(found[name], below, value) if below else value}


@functools.lru_cache(maxsize=256)
def _names(pointer: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


@functools.lru_cache(maxsize=256)
def _pointer(path: Path) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


# Whether an object is of its kind, as far as rules read it ----------------------------------------


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _NodeRequirements(msgspec.Struct, rename="camel"):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    """A NodeSelector of Kubernetes: a pod has one, and a NamespaceOffloading."""

    node_selector_terms: list[_NodeRequirements] | None = None


def check_object(obj: Object, kind: str) -> None:
    """Check the metadata of ``obj``, and that its spec is an object.

    Raises:
        MalformedError: something else is there.
    """
    check_struct(obj, _Object, kind)


def check_struct(obj: Object, shape: type[msgspec.Struct], kind: str) -> None:
    """Check what rules read of ``obj``, a ``kind``: what ``shape`` lacks is not looked at.

    Raises:
        MalformedError: something else is there.
    """
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        raise MalformedError(f"not a {kind}: {error}") from error
