"""``python3 -m tests.rightspage FILE``: write the rights of each process into the docs.

They are made of the roles in ``manifests/20-rbac`` and of the comments there.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from tests import made
from tests.manifests import documents

MARK: Final = made.mark("tests.rightspage", "docs/rights.md")
FOLDER: Final = documents.ROOT / "20-rbac"
ROLES: Final = frozenset({"Role", "ClusterRole"})
GUARDS: Final = {
    "liqo-certs": "liqo-certs",
    "liqo-controller-manager": "liqo-controller-manager",
    "liqo-controller-manager-tenant": "liqo-controller-manager",
    "liqo-controller-manager-twin": "liqo-controller-manager",
    "liqo-remote-controlplane": "liqo-consumer-marks, liqo-kinds",
    "liqo-virtual-kubelet-local": "liqo-virtual-kubelets, liqo-tokens, liqo-volumes",
    "liqo-virtual-kubelet-namespaced": "liqo-virtual-kubelets, liqo-tokens",
    "liqo-virtual-kubelet-remote": "liqo-consumers, liqo-consumer-marks",
}
"""Which ValidatingAdmissionPolicies say what RBAC cannot."""
BOUND_LATER: Final = {
    "liqo-controller-manager-tenant": "the controller manager, in each tenant namespace",
    "liqo-controller-manager-twin": "the controller manager, in each remote namespace",
    "liqo-virtual-kubelet-local": "each virtual kubelet",
    "liqo-virtual-kubelet-namespaced": "each virtual kubelet, in each namespace offloaded to it",
    "liqo-virtual-kubelet-tenant": "each virtual kubelet, in its tenant namespace",
    "liqo-virtual-kubelet-remote": "a consumer, in each of its remote namespaces",
    "liqo-virtual-kubelet-remote-clusterwide": "a consumer",
    "liqo-remote-controlplane": "a consumer, in its tenant namespace",
    "pyliqo-view": "users with the role view, edit or admin, where it is bound",
    "pyliqo-admin": "users with the role admin, where it is bound",
}
"""Who is bound by a controller, or by liqoctl."""


class Part(NamedTuple):
    """A role with the comments that say why: of the whole, and of each rule."""

    role: dict[str, Any]
    comment: str
    reasons: list[str]


def parts() -> Iterator[Part]:
    """Yield the roles in the order of the files."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for text in re.split(r"(?m)^---\n", path.read_text(encoding="utf-8")):
            role = yaml.safe_load(text)
            if role and role["kind"] in ROLES:
                head, _, rules = text.partition("\nrules:\n")
                yield Part(role, _words(re.findall(r"(?m)^# ?(.*)$", head)), list(_reasons(rules)))


def _reasons(rules: str) -> Iterator[str]:
    """Yield why each rule is there; a rule without a comment goes with the one before."""
    said, last = list[str](), ""
    for line in rules.splitlines():
        if comment := re.match(r" +# ?(.*)", line):
            said.append(comment[1])
        elif line.startswith("  - "):
            last, said = _words(said) or last, []
            yield last


def _words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split()).replace("|", "\\|")


def holders(role: dict[str, Any]) -> str:
    """Return who has the role, and where."""
    kind, name = role["kind"], role["metadata"]["name"]
    found = [
        (binding["subjects"][0]["name"], binding["metadata"].get("namespace", ""))
        for binding in documents.of_kind("RoleBinding", "ClusterRoleBinding")
        if (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, name)
        and binding["metadata"].get("namespace") == role["metadata"].get("namespace")
    ]
    bound = sorted(f"`{who}`{f' in `{where}`' if where else ''}" for who, where in found)
    later = BOUND_LATER.get(name)
    return ", ".join([*bound, *([later] if later else [])]) or "whom an administrator binds it to"


def _page() -> Iterator[str]:
    for role, comment, reasons in parts():
        name, space = role["metadata"]["name"], role["metadata"].get("namespace", "")
        yield from ("", f"## {role['kind']} {name}{f' in {space}' if space else ''}", "")
        yield f"Held by: {holders(role)}."
        if guards := GUARDS.get(name):
            yield from ("", f"Limited by the policies: {guards}.")
        if comment:
            yield from ("", *textwrap.wrap(comment, 120, break_on_hyphens=False))
        yield from ("", "| may | of | why |", "| --- | --- | --- |")
        for rule, reason in zip(role["rules"], reasons, strict=True):
            yield f"| {', '.join(rule['verbs'])} | {_of(rule)} | {reason} |"


def _of(rule: dict[str, Any]) -> str:
    group = next(iter(rule.get("apiGroups") or [""]), "")
    kinds = [f"{one}.{group}" if group else one for one in rule.get("resources") or ()]
    what = ", ".join(f"`{one}`" for one in [*kinds, *rule.get("nonResourceURLs", ())])
    names = ", ".join(f"`{one}`" for one in rule.get("resourceNames") or ())
    return f"{what} called {names}" if names else what


def written_rights(text: str) -> str:
    """Return ``text`` with the tables behind their mark."""
    return made.between(text, MARK, "\n".join(_page()).strip())


if __name__ == "__main__":
    sys.exit(made.main(written_rights))
