"""``python3 -m tests.manifests.celtables``: write what a consumer may say into policies.

The variables and conditions named here are made of ``apis.allowlist``, ``apis.podvolumes`` and
``policytable``; all other lines of the policies are written by hand.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from apis import allowlist, keys, podvolumes
from apis.allowlist import AllowedKey, AllowedValue
from tests.manifests import documents, policytable

FOLDER: Final = documents.ROOT / "70-policies"
MUTATING: Final = documents.ROOT / "mutating" / "annotations.yaml"
_WIDTH: Final = 128
_INDENT: Final = " " * 8
_OURS: Final = "one.matches('^([^/]+[.])?(py)?liqo[.]io/')"


def files() -> dict[Path, str]:
    """Return the text of each policy with its made variables, by its file."""
    made: dict[Path, Mapping[str, Iterable[str]]] = {
        FOLDER / "consumers.yaml": _consumers(),
        FOLDER / "consumer-marks.yaml": _marks(),
        MUTATING: {
            "unlisted": _UNLISTED,
            "gone": ("variables.unlisted.filter(name, !variables.isIngress ||", *_UNSHAPED),
        },
    }
    return {path: _written(path, parts) for path, parts in made.items()}


def _written(path: Path, parts: Mapping[str, Iterable[str]]) -> str:
    text = path.read_text(encoding="utf-8")
    for name, lines in parts.items():
        head = f"    - name: {name}\n      expression: >-\n"
        before, found, rest = text.partition(head)
        if not found:
            raise ValueError(f"{path.name} has no variable {name} with a folded expression")
        after = re.sub(rf"\A(?:{_INDENT}.*\n)+", "", rest)
        text = before + head + "".join(f"{_INDENT}{line}\n" for line in lines) + after
    return text


def _list(names: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _lines(*parts: str) -> Iterator[str]:
    """Return ``parts`` as lines; long lists are wrapped, expressions are not."""
    for part in parts:
        is_list = part.startswith("[")
        yield from textwrap.wrap(part, _WIDTH, break_on_hyphens=False) if is_list else [part]


# What is reflected --------------------------------------------------------------------------------

_UNLISTED: Final = (
    f"variables.newAnnotations.size() > {allowlist.MOST_ANNOTATIONS} ? [] :",
    "variables.newAnnotations.filter(name, !name.matches(variables.opened) &&",
    f"!name.matches('{allowlist.PLAIN}'))",
)
_UNSHAPED: Final = (
    f"!(name.matches('{allowlist.INGRESSES}') &&",
    f"variables.annotations[name].matches('{allowlist.VALUES}')) &&",
    f"!(name.matches('{allowlist.PLACES}') &&",
    f"variables.annotations[name].matches('{allowlist.PLACE}')))",
)


def _consumers() -> dict[str, Iterable[str]]:
    noted, kinds = allowlist.NOTED, allowlist.OF_KIND
    changed = "!(name in variables.had && variables.had[name] == variables.annotations[name])"
    return {
        "foreignAnnotations": _lines(
            "(variables.isService ?", _list(noted[keys.SERVICE]), ": variables.isIngress ?",
            _list(noted[keys.INGRESS]), ": variables.isClaim ?",
            _list(noted[keys.PERSISTENT_VOLUME_CLAIM]), ": [])",
            f".filter(name, name in variables.annotations && {changed})",
        ),
        "ordering": (
            f"variables.isClaim ? '{kinds[keys.PERSISTENT_VOLUME_CLAIM]}' :",
            f"variables.isData ? '{kinds[keys.CONFIG_MAP]}' :",
            f"'{kinds[keys.SERVICE]}'",
        ),
        "unlisted": _UNLISTED,
        "orders": (
            "variables.unlisted.filter(name, !variables.isIngress ?",
            "name.matches(variables.ordering) :",
            *_UNSHAPED,
        ),
        "orderLabels": _lines(
            "(variables.isData ?", _list(allowlist.LABELS),
            ": variables.isService ?", _list(allowlist.INJECTED), ": [])",
            ".filter(one, one in variables.labels && !one.matches(variables.opened) &&",
            "!(one in variables.hadLabels && variables.hadLabels[one] == variables.labels[one]))",
        ),
        "oddFields": (
            "!variables.isClaim ? [] : dyn(object.spec).filter(one,",
            f"!(one in {_list(podvolumes.TEMPLATE_FIELDS)}) &&",
            ("(variables.isNew || !(one in dyn(oldObject.spec)) || "
            "dyn(oldObject.spec)[one] != dyn(object.spec)[one]))"),
        ),
    }  # fmt: skip


# This project's own kinds -------------------------------------------------------------------------


def _saying(table: Iterable[AllowedKey], says: AllowedValue) -> list[str]:
    return [mark.key for mark in table if mark.says is says]


def _size(name: str) -> str:
    return f"variables.{name}.map(one, one.size() + variables.{name}[one].size()).sum()"


def _marks() -> dict[str, Iterable[str]]:
    twins, replicas = allowlist.SHADOW_LABELS, allowlist.REPLICA_LABELS
    names = [mark.key for mark in twins]
    ids = {
        True: _saying(twins, AllowedValue.CONSUMER),
        False: _saying(replicas, AllowedValue.CONSUMER),
    }
    fixed = {AllowedValue.TRUE: "true", AllowedValue.FALSE: "false"}
    said = "variables.labels[one]"
    kept = f"!(one in variables.hadLabels && variables.hadLabels[one] == {said})"
    ours = f"(variables.isTwin ? one in variables.marks : {_OURS})"
    notes = _saying(allowlist.REPLICA_ANNOTATIONS, AllowedValue.ANYTHING)
    others = [name for name in names if name != keys.ORIGIN]
    origin = f"object.metadata.labels['{keys.ORIGIN}']"
    return {
        "is-a-consumers-and-no-plain-shadow-pod": _lines(
            "!request.userInfo.?groups.orValue([]).exists(one,",
            "one in ['system:masters', 'system:serviceaccounts']) &&",
            "!(request.resource.resource == 'shadowpods' &&",
            f"object.metadata.?labels.orValue({{}}).size() <= {policytable.MOST_LABELS} &&",
            f"object.metadata.?annotations.orValue({{}}).size() <= {policytable.MOST_NOTES} &&",
            "(request.operation == 'CREATE' ?",
            f"'{keys.ORIGIN}' in object.metadata.?labels.orValue({{}}) && {origin} != 'liqo.io' &&",
            "request.userInfo.?groups.orValue([]).all(one,",
            f"one == 'system:authenticated' || one == {origin}) &&",
            _list(others),
            ".all(one, !(one in object.metadata.labels)) &&",
            "object.metadata.?finalizers.orValue([]).size() == 0 &&",
            "object.metadata.?ownerReferences.orValue([]).size() == 0 :",
            _list(names),
            ".all(one, object.metadata.?labels[?one] == oldObject.metadata.?labels[?one]) &&",
            *(
                f"object.metadata.?{one}.orValue([]) == oldObject.metadata.?{one}.orValue([]){end}"
                for one, end in (("finalizers", " &&"), ("ownerReferences", "))"))
            ),
        ),
        "isHuge": (
            (
                f"variables.labels.size() > {policytable.MOST_NOTES} || "
                f"variables.notes.size() > {policytable.MOST_NOTES}"
            ),
        ),
        "isFull": (
            "variables.isRead && !variables.isTwin &&",
            f"{_size('notes')} > {allowlist.MOST_CHARACTERS} &&",
            "(variables.isNew ||",
            f"{_size('notes')} >",
            f"{_size('hadNotes')})",
        ),
        "marks": _lines(_list(names)),
        "wrongLabels": (
            "!variables.isRead ? [] :",
            f"variables.labels.filter(one, {ours} &&",
            f"{kept} &&",
            "!(variables.isTwin ?",
            f"one in {_list(ids[True])} &&",
            f"{said} == variables.consumer :",
            f"one in {_list(ids[False])} ? {said} == variables.consumer :",
            *(
                f"one in {_list(_saying(replicas, says))} ? {said} == '{value}' :"
                for says, value in fixed.items()
            ),
            f"one in {_list(_saying(replicas, AllowedValue.ANYTHING))}))",
        ),
        "lackingLabels": (
            "!variables.isRead || variables.isTwin || !variables.isNew ? [] :",
            (
                f"{_list(mark.key for mark in replicas if mark.is_needed)}"
                ".filter(one, !(one in variables.labels))"
            ),
        ),
        "wrongNotes": (
            "!variables.isRead || variables.isTwin ? [] :",
            f"variables.notes.filter(one, {_OURS} &&",
            "!(one in variables.hadNotes && variables.hadNotes[one] == variables.notes[one]) &&",
            f"!(one in {_list(notes)}))",
        ),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
