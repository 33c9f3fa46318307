"""The metadata that every cached object has, whatever else is kept of it."""

import msgspec


class Meta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Which object it is, and in which version; a kind of cache adds the fields it needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
