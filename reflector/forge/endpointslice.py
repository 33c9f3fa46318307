"""The twin of an EndpointSlice: what the provider needs to reach pods that do not run there.

Pods on the provider are found there by the provider's own controller, by the selector of the
Service. Addresses are the same everywhere, unless an IP fabric joins the clusters: then pods go by
their own, which the provider maps, and what is elsewhere by that of its IP object.
"""

from collections.abc import Callable, Iterable
from typing import Final

from apis import keys, networks, objects, reflection, reflectionpolicy
from apis.objects import Key, Object
from apis.reflectionpolicy import NotReflected
from reflector.forge import fields, shapes, twins
from reflector.forge.contract import Forge, Input, Scene, Settings

COPIED: Final = fields.sent(keys.ENDPOINT_SLICE, "endpoints[].")


def twin(local: Object, scene: Scene) -> Object:
    """Return the ShadowEndpointSlice of the EndpointSlice ``local``.

    Source: docs/parity.md § 6.6.

    Raises:
        NotYetError: an address has no IP object, or one without a remapped address.
    """
    template = {
        "addressType": local["addressType"],
        "endpoints": [_endpoint(each, scene) for each in _elsewhere(local, scene)],
        "ports": local.get("ports") or [],
    }
    made = twins.of(keys.SHADOW_ENDPOINT_SLICE, local, scene, spec={"template": template})
    made["metadata"]["labels"][keys.ENDPOINT_SLICE_MANAGED_BY] = keys.ENDPOINT_SLICE_MANAGER
    return made


def stays(local: Object, scene: Scene) -> NotReflected | None:
    """Return why ``local`` has no twin: as its Service, unless it says itself.

    Raises:
        ContradictionError: it carries both annotations.
    """
    service = reflectionpolicy.service_of(local)
    found = scene.look.get(keys.SERVICE, service) if service else None
    is_needed = any(True for _ in _elsewhere(local, scene))
    return reflectionpolicy.slice_stays(local, found, scene.policy, is_needed=is_needed)


def _elsewhere(local: Object, scene: Scene) -> Iterable[Object]:
    """Yield the endpoints that are not on the provider; those on unknown nodes are not known."""
    for endpoint in local.get("endpoints") or []:
        name = endpoint.get("nodeName")
        node: shapes.Labelled | None = scene.look.get(keys.NODE, Key("", name)) if name else None
        if not name or (node and not node.is_node_of(scene.pair.destination)):
            yield endpoint


def _endpoint(endpoint: Object, scene: Scene) -> Object:
    made = {name: endpoint[name] for name in COPIED if endpoint.get(name)}
    made["addresses"] = [_reached(address, scene) for address in endpoint["addresses"]]
    made["nodeName"] = scene.pair.origin
    ready = (endpoint.get("conditions") or {}).get("ready")
    if ready is not None:
        made["conditions"] = {"ready": ready}
    if target := endpoint.get("targetRef"):
        made["targetRef"] = {**target, "kind": f"Remote{target.get('kind', '')}"}
    return made


def _reached(address: str, scene: Scene) -> str:
    pods = scene.settings.local_pods
    if not pods or networks.contains(pods, address):
        return address
    known: Iterable[Object] = scene.look.each(keys.IP)
    for one in known:
        given = objects.status(one).get("ip")
        if given and objects.spec(one).get("ip") == address:
            return str(given)
    raise reflectionpolicy.NotYetError(
        f"address {address} is of no pod here, and no IP of ipam.liqo.io in namespace "
        f"{scene.pair.local_namespace} says how it is reached: create one with spec.ip {address}"
    )


def _is_fabric(settings: Settings) -> bool:
    return bool(settings.local_pods)


def _of_ip(old: Object | None, new: Object | None, scene: Scene) -> Iterable[Key]:
    addresses = {objects.spec(each).get("ip") for each in (old, new) if each}
    return _that(
        scene,
        lambda each: any(
            not addresses.isdisjoint(one["addresses"]) for one in each["endpoints"] or ()
        ),
    )


def _of_service(old: Object | None, new: Object | None, scene: Scene) -> Iterable[Key]:
    changed = new or old
    if changed is None or _says_the_same(old, new):
        return []
    service = objects.key_of(changed)
    return _that(scene, lambda each: reflectionpolicy.service_of(each) == service)


def _says_the_same(old: Object | None, new: Object | None) -> bool:
    return bool(old and new) and objects.annotations(old or {}) == objects.annotations(new or {})


def _of_node(
    old: shapes.Labelled | None, new: shapes.Labelled | None, scene: Scene
) -> Iterable[Key]:
    changed = new or old
    if changed is None or (new and new.says_the_same(old)):
        return []
    name = changed.metadata.name
    return _that(
        scene, lambda each: any(one.get("nodeName") == name for one in each["endpoints"] or ())
    )


def _that(scene: Scene, is_about: Callable[[Object], bool]) -> list[Key]:
    """Return the slices of which ``is_about`` is true, and those that the cache has in outline.

    An outline, of a large one, lacks ``endpoints`` and the label of its Service.
    """
    slices = scene.look.each(keys.ENDPOINT_SLICE)
    return [objects.key_of(each) for each in slices if "endpoints" not in each or is_about(each)]


FORGE: Final = Forge(
    reflection.ENDPOINT_SLICE,
    twin,
    lacks=twins.lacks(keys.SHADOW_ENDPOINT_SLICE),
    stays=stays,
    inputs=(
        Input(keys.SERVICE, _of_service),
        Input(keys.NODE, _of_node, shape=shapes.Labelled),
        Input(keys.IP, _of_ip, is_needed=_is_fabric, may_be_unknown=True),
    ),
)
