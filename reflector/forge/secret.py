"""The twin of a Secret."""

from typing import Final

from apis import keys
from apis.objects import Object
from apis.pairs import Pair
from reflector.forge import twins

FIELDS: Final = ("data", "type", "immutable")


def remote(local: Object, pair: Pair, settings: twins.Settings) -> Object:
    """Return the twin of the Secret ``local``; what is protected never comes here.

    Source: behaviour.md 6.4.
    """
    return twins.of(keys.SECRET, local, pair, settings, keep=FIELDS)
