"""A namespace and its twin in another cluster, and how the twin's objects are told from others."""

from dataclasses import dataclass

from apis import keys, objects
from apis.objects import Key, Object


@dataclass(frozen=True)
class Pair:
    """``origin`` is the consumer's cluster ID, ``destination`` the provider's."""

    origin: str
    destination: str
    local_namespace: str
    remote_namespace: str

    def twin_of(self, key: Key) -> Key:
        """Return where the twin of the local object ``key`` is."""
        return Key(self.remote_namespace, key.name)

    def original_of(self, key: Key) -> Key:
        """Return where the original of the remote object ``key`` is."""
        return Key(self.local_namespace, key.name)

    def labels(self) -> dict[str, str]:
        """Return the labels that every reflected object carries."""
        return {keys.ORIGIN: self.origin, keys.DESTINATION: self.destination}

    def reflects(self, obj: Object) -> bool:
        """Whether the remote object ``obj`` is a twin made by this origin."""
        return self.labels().items() <= objects.labels(obj).items()

    def selector(self) -> str:
        """Return the label selector of the twins."""
        return ",".join(f"{key}={value}" for key, value in self.labels().items())
