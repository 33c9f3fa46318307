"""The twin of a Secret."""

from typing import Final

from apis import keys, reflection
from apis.objects import Object
from reflector.forge import fields, referenced, twins
from reflector.forge.contract import Forge, Scene

FIELDS: Final = fields.sent(keys.SECRET)
_OPAQUE: Final = "Opaque"


def twin(local: Object, scene: Scene) -> Object:
    """Return the twin of the Secret ``local``; what is protected never comes here.

    Source: docs/parity.md § 6.4.
    """
    return twins.of(keys.SECRET, local, scene, keep=FIELDS)


def is_fixed(wanted: Object, found: Object) -> bool:
    """Whether ``found`` is of another type, or immutable and says something else."""
    was, is_ = (each.get("type") or _OPAQUE for each in (found, wanted))
    return was != is_ or twins.is_immutable(found, wanted, FIELDS)


FORGE: Final = Forge(
    reflection.SECRET,
    twin,
    lacks=twins.lacks(keys.SECRET),
    is_fixed=is_fixed,
    stays=referenced.stays(keys.SECRET),
    selector=(f"!{keys.SERVICE_ACCOUNT_NAME}",),
    inputs=referenced.inputs(keys.SECRET),
)
