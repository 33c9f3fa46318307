"""``python3 -m tests.fieldtable FILE``: write the fields of our kinds into the docs.

They are made of the CustomResourceDefinitions.
"""

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests import made
from tests.manifests import documents

MARK: Final = made.mark("tests.fieldtable", "docs/fields.md")
_PARTS: Final = frozenset({"spec", "status"})
_TYPE_META: Final = frozenset({"apiVersion", "kind", "metadata"})
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches `{}`",
    "format": "{}",
}


class FieldRow(NamedTuple):
    """One field, such as ``spec.labels``; ``[]`` follows a list, ``.*`` a mapping."""

    path: str
    type_: str
    meaning: str
    rules: str


def field_rows(schema: dict[str, Any], path: str = "") -> Iterator[FieldRow]:
    """Yield the fields below ``schema``, each before those inside it.

    Those of Kubernetes' own types, such as a toleration, are not shown.
    """
    required = schema.get("required") or ()
    for name, field in (schema.get("properties") or {}).items():
        if not path and name in _TYPE_META:
            continue
        here = f"{path}.{name}" if path else name
        type_, inner, suffix = _shape(field)
        if here not in _PARTS:
            meaning = field.get("description") or inner.get("description") or ""
            yield FieldRow(
                here, type_, meaning, _rules_of_field(field, is_required=name in required)
            )
        if _is_told(inner):
            yield from field_rows(inner, f"{here}{suffix}")


def _is_told(schema: dict[str, Any]) -> bool:
    """Whether a field inside has a meaning here; what has none is as in Kubernetes."""
    fields = [_shape(field) for field in (schema.get("properties") or {}).values()]
    described = any("description" in one for one in (schema.get("properties") or {}).values())
    return described or any(_is_told(inner) for _, inner, _ in fields)


def _shape(field: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the type of a field, the schema of what is inside, and what its path ends with."""
    if "items" in field:
        return f"list of {_shape(field['items'])[0]}", field["items"], "[]"
    inside = field.get("additionalProperties")
    if isinstance(inside, dict):
        return f"map of {_shape(inside)[0]}", inside, ".*"
    if field.get("x-kubernetes-int-or-string"):
        return "quantity", field, ""
    return str(field.get("type", "any")), field, ""


def _rules_of_field(field: dict[str, Any], *, is_required: bool) -> str:
    said = ["required"] if is_required else []
    if "default" in field:
        said.append(f"default `{json.dumps(field['default'])}`")
    if "enum" in field:
        said.append("one of " + ", ".join(f"`{one}`" for one in field["enum"]))
    said += [text.format(field[name]) for name, text in _BOUNDS.items() if name in field]
    rules = (one.get("message") for one in field.get("x-kubernetes-validations") or ())
    return "; ".join([*said, *(rule for rule in rules if rule)])


def _pages() -> Iterator[str]:
    for crd in documents.of_kind("CustomResourceDefinition"):
        spec = crd["spec"]
        (version,) = spec["versions"]
        names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
        short = ", ".join(f"`{one}`" for one in names.get("shortNames") or ())
        scope = "in a namespace" if spec["scope"] == "Namespaced" else "of the cluster"
        yield from ("", f"## {names['kind']}", "")
        yield f"`{spec['group']}/{version['name']}`, {scope}{', short ' + short if short else ''}."
        yield from ("", *textwrap.wrap(_cell(schema["description"]), 120), "")
        yield from ("| field | type | meaning | rules |", "| --- | --- | --- | --- |")
        for row in field_rows(schema):
            cells = (f"`{row.path}`", row.type_, _cell(row.meaning), _cell(row.rules))
            yield f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written_fields(text: str) -> str:
    """Return ``text`` with the tables behind their mark."""
    return made.between(text, MARK, "\n".join(_pages()).strip())


if __name__ == "__main__":
    sys.exit(made.main(written_fields))
