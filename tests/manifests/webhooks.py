"""``python3 -m tests.manifests.webhooks``: write the webhook configurations of the table."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apis import keys
from webhook.webhooks import WEBHOOKS, MatchCondition, Row

FOLDER: Final = Path(__file__).parents[2] / "manifests" / "31-webhook-configurations"
_HEAD: Final = """\
# Made by `python3 -m tests.manifests.webhooks` from webhook/webhooks.py: change that.
# The caBundle is not here: liqo-certs applies it with a field manager of its own, and applying this
# file again neither removes nor fights it.
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata:
  name: liqo-webhook
  labels:
    app.kubernetes.io/part-of: liqo
    liqo.io/webhook: "true"
webhooks:
"""
_WIDTH: Final = 118


def page(*, is_mutating: bool) -> str:
    kind = keys.MUTATING_WEBHOOKS if is_mutating else keys.VALIDATING_WEBHOOKS
    rows = [row for row in WEBHOOKS if row.is_mutating == is_mutating]
    return _HEAD.format(kind=kind.kind) + "".join(f"{line}\n" for row in rows for line in _row(row))


def path(*, is_mutating: bool) -> Path:
    return FOLDER / ("mutating.yaml" if is_mutating else "validating.yaml")


def _row(row: Row) -> Iterator[str]:
    yield from _comment(row.about, 2)
    yield f"  - name: {row.name}"
    yield from _indented(4, "clientConfig:", "  service:", f"    namespace: {keys.LIQO_NAMESPACE}")
    yield f"        name: {keys.WEBHOOK_SERVICE}"
    if row.path != keys.LABELLING_PATH:  # which liqo-certs applies
        yield f"        path: {row.path}"
    yield f"        port: {keys.WEBHOOK_PORT}"
    yield from _indented(4, *_rules(row))
    if row.spaces:
        yield from _indented(4, "namespaceSelector:", "  matchExpressions:")
        for one in row.spaces:
            yield from _indented(8, f"- key: {one.key}", f"  operator: {one.operator}")
            if one.values:
                yield f"          values: {_flow(one.values)}"
    if row.conditions:
        yield "    matchConditions:"
        for condition in row.conditions:
            yield from _condition(condition)
    policy = "Fail" if row.is_needed else "Ignore"
    yield from _comment(f"{policy}: {row.why}", 4)
    yield from _indented(4, f"failurePolicy: {policy}", f"timeoutSeconds: {row.timeout_s}")
    yield f"    sideEffects: {'NoneOnDryRun' if row.writes else 'None'}"
    if row.is_mutating:
        yield "    reinvocationPolicy: IfNeeded"
    yield from _indented(4, "matchPolicy: Equivalent", "admissionReviewVersions: [v1]")


def _rules(row: Row) -> Iterator[str]:
    group = row.kind.group or '""'
    names = [f"{row.kind.plural}/{sub}".rstrip("/") for sub in row.subresources]
    yield "rules:"
    yield f"  - apiGroups: [{group}]"
    yield f"    apiVersions: [{row.kind.version}]"
    yield f"    operations: [{', '.join(sorted(row.operations))}]"
    yield f"    resources: [{', '.join(names)}]"
    yield f"    scope: {'Namespaced' if row.kind.namespaced else 'Cluster'}"


def _condition(condition: MatchCondition) -> Iterator[str]:
    yield from _comment(condition.why, 6)
    yield from _indented(6, f"- name: {condition.name}", "  expression: >-")
    yield from _indented(10, *condition.cel.splitlines())


def _flow(values: tuple[str, ...]) -> str:
    quoted = (f'"{value}"' if value in {"true", "false"} else value for value in values)
    return f"[{', '.join(quoted)}]"


def _comment(text: str, indent: int) -> Iterator[str]:
    return _indented(indent, *(f"# {line}" for line in textwrap.wrap(text, _WIDTH - indent)))


def _indented(indent: int, *lines: str) -> Iterator[str]:
    return (f"{' ' * indent}{line}" for line in lines)


if __name__ == "__main__":
    for mutates in (True, False):
        path(is_mutating=mutates).write_text(page(is_mutating=mutates), encoding="utf-8")
