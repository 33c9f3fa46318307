"""What authors are told of the reflection of their objects: once, and that it is over.

Source: docs/parity.md § 6.1.
"""

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from apis import keys, objects, reflectionpolicy, texts
from apis.objects import Key, Kind, Object
from apis.reflectionpolicy import NotReflected, ReflectionEvent, ReflectionSubject

SUCCESSFUL: Final = reflectionpolicy.SUCCESSFUL
FAILED: Final = keys.FAILED_REFLECTION
DISABLED: Final = keys.REFLECTION_DISABLED


class Tell(Protocol):
    """Records an Event on an original."""

    def __call__(
        self, obj: Object, type_: Literal["Normal", "Warning"], reason: str, message: str, /
    ) -> None:
        """Return at once; a reason that was just told may be dropped."""
        ...


class Told:
    """Remembers what was said last of each original of ``kind``, and why it has no twin."""

    def __init__(self, tell: Tell, kind: Kind, destination: str) -> None:
        self._tell, self._kind, self._destination = tell, kind, destination
        self._last: dict[Key, tuple[str, str]] = {}

    def remember(self, namespace: str, told: Mapping[ReflectionSubject, ReflectionEvent]) -> None:
        """Take what Events there say for said: it is not repeated, and that it is over is told."""
        for (cluster, kind, name, uid), said in told.items():
            is_ours = (cluster, kind) == (self._destination, self._kind.kind)
            if is_ours and said.reason != SUCCESSFUL:
                self._last[Key(namespace, name)] = (uid, said.message)

    def failed(self, original: Object, message: str) -> None:
        """Say why ``original`` has no twin, or one that is not as it says.

        The provider may have written ``message``.
        """
        message = texts.clamp(message)
        self._last[objects.key_of(original)] = (objects.uid(original), message)
        self._tell(original, "Warning", FAILED, message)

    def succeeded(self, original: Object, lacks: str = "") -> None:
        """Say that what was told is over. Of what goes well nothing is said: that is a write.

        What its twin ``lacks`` is told once.
        """
        if lacks:
            self._once(original, keys.REFLECTED_IN_PART, lacks)
            return
        last = self._last.pop(objects.key_of(original), None)
        if last and last[0] == objects.uid(original):
            message = f"{self._kind} reflected to {self._destination}"
            self._tell(original, "Normal", SUCCESSFUL, message)

    def disabled(self, key: Key, original: Object | None, stay: NotReflected | None) -> None:
        """Say once why ``original`` has no twin; of what is protected, say nothing."""
        if original is None or stay is None or not stay.is_told:
            self._last.pop(key, None)
        else:
            self._once(original, DISABLED, stay.reason)

    def _once(self, original: Object, reason: str, message: str) -> None:
        said, key = (objects.uid(original), message), objects.key_of(original)
        if self._last.get(key) != said:
            self._last[key] = said
            self._tell(original, "Normal", reason, message)
