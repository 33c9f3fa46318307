"""What a VirtualNode may say, and what it gets from its VkOptionsTemplate. Pure.

Source: docs/parity.md § 3.4, 9 #9; SEC-C4; decision 0006.
"""

from collections.abc import Iterable
from typing import Final

from apis import keys, objects, quotas, resources, slices, validation
from apis.objects import Key, Object, key_of, labels
from apis.validation import DeniedError
from webhook import admission
from webhook.admission import Admitted, Lookup, Operation, Request

_LISTS: Final = ("labelsNotReflected", "annotationsNotReflected")
_FLAGS: Final = ("createNode", "disableNetworkCheck")


def _template_key(obj: Object) -> Key:
    """Return the VkOptionsTemplate that ``obj`` is made from.

    Raises:
        DeniedError: one outside our namespace, where not only administrators write.
    """
    admission.check_object(obj, "VirtualNode")
    path = "spec.vkOptionsTemplateRef"
    reference = validation.struct(objects.spec(obj).get("vkOptionsTemplateRef"), path)
    namespace = validation.text(reference.get("namespace"), f"{path}.namespace")
    if namespace not in ("", keys.LIQO_NAMESPACE):
        message = f"{path}.namespace is {namespace!r}, and templates count in"
        raise DeniedError(f"{message} {keys.LIQO_NAMESPACE!r} only: refer to one there")
    name = validation.text(reference.get("name"), f"{path}.name")
    return Key(keys.LIQO_NAMESPACE, name or keys.DEFAULT_VK_OPTIONS_TEMPLATE)


def fill(request: Request, lookup: Lookup) -> Admitted:
    """Fill what a new VirtualNode leaves open from its template.

    Raises:
        DeniedError: there is no such template.
    """
    obj, key = request.object, _template_key(request.object)
    template = lookup.get(keys.VK_OPTIONS_TEMPLATE, key)
    if template is None:
        cure = "create it, or correct spec.vkOptionsTemplateRef"
        if key.name == keys.DEFAULT_VK_OPTIONS_TEMPLATE:
            cure = "liqo-controller-manager makes it when it starts, try again then"
        raise DeniedError(f"spec.vkOptionsTemplateRef: there is no VkOptionsTemplate {key}: {cure}")
    spec, options = objects.spec(obj), objects.spec(template)
    filled = {**_flags(spec, options), **_not_reflected(spec, options)}
    changes = _put(obj, filled)
    return Admitted(changes, verdict="filled in" if changes else "unchanged")


def _flags(spec: Object, options: Object) -> Object:
    missing = (name for name in _FLAGS if spec.get(name) is None)
    return {name: options[name] for name in missing if options.get(name) is not None}


def _not_reflected(spec: Object, options: Object) -> Object:
    path = "spec.offloadingPatch"
    have = validation.struct(spec.get("offloadingPatch"), path)
    united = {name: _union(have, options, name) for name in _LISTS}
    changed = {name: names for name, names in united.items() if names != (have.get(name) or [])}
    return {"offloadingPatch": {**have, **changed}} if changed else {}


def _union(have: Object, options: Object, name: str) -> list[str]:
    own = validation.items(have.get(name), f"spec.offloadingPatch.{name}")
    return [*own, *(one for one in options.get(name) or [] if one not in own)]


def _put(obj: Object, filled: Object) -> list[Operation]:
    if obj.get("spec") is None:
        return admission.put(obj, ("spec",), filled) if filled else []
    found = (admission.put(obj, ("spec", name), value) for name, value in filled.items())
    return [operation for part in found for operation in part]


def check(request: Request, lookup: Lookup) -> Admitted:
    """Admit a VirtualNode by the nodes there are, with a warning if its ResourceSlice is too small.

    Raises:
        DeniedError: it is outside tenant namespaces, a Node or another one has its name, it says
            itself what is to run, it refers to a template elsewhere, or an amount cannot be read.
    """
    if request.operation == "UPDATE":
        return _check_update(request.old_object, request.object)
    obj, key = request.object, _slice_key(request.object)
    shared = lookup.get(keys.RESOURCE_SLICE, key) if key else None
    namespace = lookup.get_live(keys.NAMESPACE, Key("", request.namespace))
    others = lookup.list_live(keys.VIRTUAL_NODE).values()
    name = request.name  # none yet where it is to be generated
    has_node = bool(name) and lookup.get(keys.NODE, Key("", name)) is not None
    _template_key(obj)
    _check_template({}, obj)
    _check_amounts({}, obj)
    if namespace is None or labels(namespace).get(keys.TENANT_NAMESPACE) != "true":
        message = f"metadata.namespace: it lacks the label {keys.TENANT_NAMESPACE}=true"
        raise DeniedError(f"{message}: create the VirtualNode in the tenant namespace of its peer")
    name = obj["metadata"].get("name")
    for other in map(key_of, others):
        if name and other.name == name:
            message = f"metadata.name: there is a VirtualNode {other} already"
            raise DeniedError(f"{message}: choose another name", code=409)
    if has_node:
        cure = "choose another name, or delete that Node if it is left over"
        raise DeniedError(f"metadata.name: there is a node {name!r} already: {cure}", code=409)
    return Admitted(warnings=_too_much(obj, shared, others) if shared else ())


def _check_update(old: Object, new: Object) -> Admitted:
    """Admit a change; what did not change is not checked, so that no old one is stuck."""
    admission.check_object(old, "VirtualNode")
    admission.check_object(new, "VirtualNode")
    before, after = objects.spec(old), objects.spec(new)
    _check_template(before, new)
    _check_amounts(before, new)
    if before.get("vkOptionsTemplateRef") != after.get("vkOptionsTemplateRef"):
        _template_key(new)
    return Admitted()


def _check_template(before: Object, obj: Object) -> None:
    template = objects.spec(obj).get("template")
    if template is None or template == before.get("template"):
        return
    message = "spec.template is not taken: the Deployment of a virtual kubelet is derived from the"
    raise DeniedError(f"{message} VkOptionsTemplate: leave it out and choose one of those")


def _check_amounts(before: Object, obj: Object) -> None:
    quota = objects.spec(obj).get("resourceQuota")
    if quota == before.get("resourceQuota"):
        return
    path = "spec.resourceQuota.hard"
    hard = validation.struct(validation.struct(quota, "spec.resourceQuota").get("hard"), path)
    try:
        quotas.check_amounts(hard, path)
    except ValueError as error:
        raise DeniedError(str(error), code=validation.INVALID) from error


def _slice_key(obj: Object) -> Key | None:
    """Return the ResourceSlice whose share ``obj`` is; None if it names none."""
    admission.check_object(obj, "VirtualNode")
    name = slices.of_virtual_node(obj)
    return Key(obj["metadata"].get("namespace") or "", name) if name else None


def _too_much(obj: Object, shared: Object, others: Iterable[Object]) -> list[str]:
    mine, key = _slice_key(obj), key_of(obj)
    alike = [other for other in others if _slice_key(other) == mine and key_of(other) != key]
    granted = objects.status(shared).get("resources")
    try:
        have = resources.parse_resources(granted)
        wanted = resources.total(_hard(one) for one in [obj, *alike])
    except ValueError:
        return []
    scarce = [name for name in resources.lacking(wanted, have) if name in have]
    return [
        f"the virtual nodes of resource slice {mine} promise {wanted[name]} of {name}, it has "
        f"{have[name]}"
        for name in scarce
    ]


def _hard(obj: Object) -> resources.Resources:
    quota = objects.spec(obj).get("resourceQuota") or {}
    return resources.parse_resources(quota.get("hard"))
