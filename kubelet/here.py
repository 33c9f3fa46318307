"""The pods of this node by namespace, so that nobody looks through all of them for a few."""

from collections.abc import Callable, Iterable
from typing import Any

from apis.objects import Key
from kube.informer import Change, Informer


class Here:
    """The keys of what ``pods`` has; it changes as that does."""

    def __init__(self, pods: Informer[Any]) -> None:
        self._keys: dict[str, dict[Key, None]] = {}
        self._handlers: list[Callable[[], None]] = []
        self.may_have = pods.may_have
        """Whether a pod is here, as far as is known."""
        pods.subscribe(self._on_pod)

    def on_namespace(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` whenever a namespace gets its first pod here, or loses its last."""
        self._handlers.append(handler)

    def of(self, namespace: str) -> Iterable[Key]:
        """Return the pods of ``namespace``."""
        return list(self._keys.get(namespace, ()))

    def all(self) -> Iterable[Key]:
        """Return all pods."""
        return [key for keys in self._keys.values() for key in keys]

    def namespaces(self) -> Iterable[str]:
        """Return the namespaces that have pods here."""
        return list(self._keys)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._keys

    def _on_pod(self, change: Change[Any]) -> None:
        namespace = change.key.namespace
        was_there = namespace in self._keys
        if change.new is not None:
            self._keys.setdefault(namespace, {})[change.key] = None
        elif was_there:
            self._keys[namespace].pop(change.key, None)
            if not self._keys[namespace]:
                del self._keys[namespace]
        if was_there != (namespace in self._keys):
            for handler in self._handlers:
                handler()
