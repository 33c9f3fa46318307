"""The twin of an Ingress: the provider's own controller serves it."""

from typing import Final

from apis import keys, objects, reflection
from apis.objects import Object
from reflector.forge import fields, twins
from reflector.forge.contract import Forge, Scene

COPIED: Final = fields.sent(keys.INGRESS, "spec.")


def twin(local: Object, scene: Scene) -> Object:
    """Return the twin of the Ingress ``local``: its class is one of the provider's.

    Source: docs/parity.md § 6.7.
    """
    have = objects.spec(local)
    spec = {name: have[name] for name in COPIED if have.get(name)}
    if scene.settings.enable_ingress and scene.settings.ingress_class:
        spec["ingressClassName"] = scene.settings.ingress_class
    made = twins.of(keys.INGRESS, local, scene, spec=spec)
    made["metadata"].get("annotations", {}).pop(keys.INGRESS_CLASS, None)
    return made


FORGE: Final = Forge(reflection.INGRESS, twin, lacks=twins.lacks(keys.INGRESS))
