"""Whether a Pod may be made of a ShadowPod as the provider's policy says now. Pure.

Admission judged it when it came; what was narrowed since counts for the next Pod, not for one that
runs. Source: docs/parity.md § 3.8; SEC-A2.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from apis import objects, podaffinity, podpolicies, podsecurity, podspecs, whose
from apis.objects import Key, Object
from apis.podpolicies import PRIVILEGED, Policy
from apis.validation import DeniedError
from controllers.offloading.shadowpod import changes

_View: TypeAlias = Callable[[], Mapping[Key, Object]]


def _nothing() -> Mapping[Key, Object]:
    return {}


@dataclass(frozen=True)
class Permission:
    """The provider's policies and the namespaces of its consumers, as they are now."""

    policies: _View
    namespaces: _View = _nothing

    def refusal(self, shadow: Object) -> str:
        """Return why no Pod may be made of ``shadow``, "" if one may."""
        spec = changes.created(shadow["spec"]["pod"])
        try:
            policy = self._policy(shadow, spec)
            for complaint in podspecs.complaints(spec, policy):
                return f"spec.pod.{complaint}: {podspecs.cure(complaint)}"
            if policy.level != PRIVILEGED:
                for complaint in podsecurity.app_armor(objects.annotations(shadow)):
                    return f"{complaint}: {podspecs.cure(complaint)}"
        except DeniedError as error:
            return str(error)
        return ""

    def policy(self, shadow: Object) -> Policy:
        """Return the policy for the consumer of ``shadow``."""
        return podpolicies.of(self._consumer(shadow), self.policies())

    def version(self) -> frozenset[tuple[str, int]]:
        """Return which rules these are: another one, and what was refused is judged again."""
        return frozenset(
            (key.name, int(policy["metadata"].get("generation") or 0))
            for key, policy in self.policies().items()
        )

    def _consumer(self, shadow: Object) -> str:
        where = objects.key_of(shadow).namespace
        return whose.consumer_of(self.namespaces().get(Key("", where)))

    def _policy(self, shadow: Object, spec: Object) -> Policy:
        namespaces, consumer = self.namespaces(), self._consumer(shadow)
        named = [namespaces.get(Key("", name)) for name in podaffinity.looked_up(spec)]
        policy = podpolicies.of(consumer, self.policies())
        return policy.where(podaffinity.own(named, consumer))
