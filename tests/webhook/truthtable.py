"""``python3 -m tests.webhook.truthtable FILE``: write what the rules say into the docs.

The table is made by the functions that judge pods, so it is what they do.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from apis import keys
from apis.nodeselector import Term
from apis.objects import Object
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from tests import made
from webhook.admission import Admitted
from webhook.rules import pods

BEGIN: Final = made.mark("tests.webhook.truthtable", "docs/how-pods-are-judged.md")
END: Final = made.END
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_HEAD: Final = (
    "strategy",
    "selector",
    "pod",
    "required terms added up to",
    "toleration",
    "verdict in the audit log",
)


def _requirement(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


_SYMBOLS: Final = {
    "A": _requirement("disk", "In", "ssd"),
    "B": _requirement("zone", "In", "a", "b"),
    "S1": _requirement("region", "In", "eu"),
    "S2": _requirement("region", "In", "us"),
    "vn": _requirement(keys.NODE_TYPE, "In", keys.VIRTUAL_NODE_TYPE),
    "!vn": _requirement(keys.NODE_TYPE, "NotIn", keys.VIRTUAL_NODE_TYPE),
    "node": _requirement("metadata.name", "In", "worker"),
}
_A, _B, _S1, _S2 = ({"matchExpressions": [_SYMBOLS[name]]} for name in ("A", "B", "S1", "S2"))
_EMPTY: Final[Term] = {}
_NODE: Final[Term] = {"matchFields": [_SYMBOLS["node"]]}
_DAEMON: Final = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
_OF_A_SET: Final = {"ownerReferences": [_DAEMON]}


class _Pod(NamedTuple):
    """A pod, and how the table calls it."""

    name: str
    terms: tuple[Term, ...] = ()
    spec: Object = {}  # noqa: RUF012  # a tuple's, read only
    metadata: Object = {}  # noqa: RUF012  # a tuple's, read only

    def whole(self) -> Object:
        """Return it as a user sends it."""
        required = {"nodeSelectorTerms": list(self.terms)}
        affinity = {"nodeAffinity": {_REQUIRED: required}} if self.terms else {}
        spec: Object = {"affinity": affinity, "tolerations": [], **self.spec}
        return {"metadata": dict(self.metadata), "spec": spec}


_PLAIN: Final = (_Pod("none"), _Pod("A or B", (_A, _B)))
_FORCED: Final = _Pod("A, RuntimeClass `liqo`", (_A,), {"runtimeClassName": keys.RUNTIME_CLASS})
_ODD: Final = (
    _Pod("A or an empty term", (_A, _EMPTY)),
    _Pod("tolerates virtual nodes", spec={"tolerations": [pods.TOLERATION]}),
    _FORCED,
    _Pod("of a DaemonSet, on its node", (_NODE,), metadata=_OF_A_SET),
    _Pod(
        "the same, tolerates virtual nodes", (_NODE,), {"tolerations": [pods.TOLERATION]}, _OF_A_SET
    ),
    _Pod("names a node", spec={"nodeName": "worker"}),
)
_SELECTORS: Final[tuple[tuple[Term, ...], ...]] = ((), (_S1, _S2))


def table() -> str:
    """Return the table in Markdown."""
    lines = [_HEAD, ["---"] * len(_HEAD), *_rows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _rows() -> Iterator[Sequence[str]]:
    for strategy in Strategy:
        for selector in _SELECTORS:
            for pod in (*_PLAIN, _FORCED):
                yield _row(pod, NamespaceOffloading(strategy, selector))
    for pod in _ODD:
        if pod is not _FORCED:
            yield _row(pod, NamespaceOffloading(Strategy.REMOTE, (_S1,)))


def _row(pod: _Pod, offloading: NamespaceOffloading) -> Sequence[str]:
    judged = pods.place(pod.whole(), offloading)
    tolerates = any("tolerations" in change["path"] for change in judged.patch)
    return (
        offloading.strategy.value,
        _said(offloading.cluster_selector),
        pod.name,
        _said(_terms(pod, judged)),
        "added" if tolerates else "none",
        judged.verdict,
    )


def _terms(pod: _Pod, judged: Admitted) -> Sequence[Term]:
    for change in judged.patch:
        if change["path"].endswith("nodeSelectorTerms"):
            return list(change["value"])
        if change["path"] == "/spec/affinity/nodeAffinity":
            return list(change["value"][_REQUIRED]["nodeSelectorTerms"])
    return pod.terms


def _said(terms: Sequence[Term]) -> str:
    return " or ".join(map(_term, terms)) or "none"


def _term(term: Term) -> str:
    names = {str(requirement): name for name, requirement in _SYMBOLS.items()}
    asked = [one for part in ("matchFields", "matchExpressions") for one in term.get(part) or []]
    return "∧".join(names[str(one)] for one in asked) or "(empty)"


def written(text: str) -> str:
    """Return ``text`` with the table."""
    return made.between(text, BEGIN, table())


if __name__ == "__main__":
    sys.exit(made.main(written))
