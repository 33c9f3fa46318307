"""The twin of a ConfigMap; the one with the cluster's root certificates goes by another name."""

from typing import Final

from apis import keys, naming, objects, reflection
from apis.objects import Object
from apis.offloading import MappedNamespace
from reflector.forge import fields, referenced, twins
from reflector.forge.contract import Forge, Scene

FIELDS: Final = fields.sent(keys.CONFIG_MAP)


def twin(local: Object, scene: Scene) -> Object:
    """Return the twin of the ConfigMap ``local``.

    Source: docs/parity.md § 6.4.
    """
    made = twins.of(keys.CONFIG_MAP, local, scene, keep=FIELDS)
    made["metadata"]["name"] = twin_name(objects.key_of(local).name, scene.pair)
    return made


def twin_name(name: str, pair: MappedNamespace) -> str:
    """Return the name at the provider: the provider has a ``kube-root-ca.crt`` of its own."""
    if name == keys.ROOT_CA_CONFIG_MAP:
        return naming.root_ca_config_map(pair.origin)
    return name


def original_name(name: str, pair: MappedNamespace) -> str:
    if name == naming.root_ca_config_map(pair.origin):
        return keys.ROOT_CA_CONFIG_MAP
    return name


def is_fixed(wanted: Object, found: Object) -> bool:
    """Whether ``found`` is immutable and says something else."""
    return twins.is_immutable(found, wanted, FIELDS)


FORGE: Final = Forge(
    reflection.CONFIG_MAP,
    twin,
    lacks=twins.lacks(keys.CONFIG_MAP),
    is_fixed=is_fixed,
    stays=referenced.stays(keys.CONFIG_MAP),
    twin_name=twin_name,
    original_name=original_name,
    inputs=referenced.inputs(keys.CONFIG_MAP),
)
