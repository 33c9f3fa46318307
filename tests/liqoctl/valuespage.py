"""``python3 -m tests.liqoctl.valuespage FILE``: write the table of all settings into the docs."""

import sys
from collections.abc import Iterator
from typing import Any, Final, get_origin

import msgspec

from liqoctl.forge import values
from tests import made

MARK: Final = made.mark("tests.liqoctl.valuespage", "docs/values.md")
_FORMS: Final = {list: "list", dict: "mapping", str: "text", bool: "true or false"}


def values_table() -> str:
    """Return the table of docs/values.md."""
    rows = [f"| `{path}` | {kind} | {text} |" for path, kind, text in _rows(values.Values, "")]
    return "\n".join(["| setting | form | meaning |", "| --- | --- | --- |", *rows])


def _rows(struct: type[msgspec.Struct], path: str) -> Iterator[tuple[str, str, str]]:
    for field in msgspec.structs.fields(struct):
        name = f"{path}{field.encode_name}"
        held = values.struct_of(field.type)
        if held is values.ProcessValues and path == "" and field.name != "webhook":
            yield name, "mapping", f"{_said(field.type)}: the same settings as `webhook`"
        elif held:
            yield name, "mapping", _said(field.type)
            yield from _rows(held, f"{name}.")
        else:
            yield name, _form(field.type), _said(field.type)


def _said(annotated: Any) -> str:
    return str(annotated.__metadata__[-1].description)


def _form(annotated: Any) -> str:
    held = annotated.__origin__
    held = get_origin(held) or held
    return _FORMS.get(held, "number")


def written_values(text: str) -> str:
    """Return ``text`` with the table."""
    return made.between(text, MARK, values_table())


if __name__ == "__main__":
    sys.exit(made.main(written_values))
