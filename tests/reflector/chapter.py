"""``python3 -m tests.reflector.chapter FILE``: write the table of kinds into the docs."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from apis import reflection, reflectionpolicy
from apis.reflection import ReflectedKind
from reflector.kinds import fields
from reflector.kinds.fields import Fate
from tests import made

BEGIN: Final = made.mark("tests.reflector.chapter", "docs/what-is-reflected.md")
END: Final = made.END
_HEAD: Final = ("kind", "goes", "on the other side", "policies", "workers", "has", "has not")


def reflection_table() -> str:
    """Return the table in Markdown, and which annotations are in no row of it."""
    lines = [_HEAD, ["---"] * len(_HEAD), *_reflection_rows()]
    rows = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    never = "".join(f"- `{name}`\n" for name in sorted(reflectionpolicy.NEVER_ANNOTATIONS))
    return f"{rows}\n{_fields()}\nThese annotations never leave, whatever is said:\n\n{never}"


def _fields() -> str:
    """Return what becomes of fields that do not go as they are, in a table."""
    lines = [("kind", "field", "what becomes of it", "why, or how"), ["---"] * 4]
    lines += [
        (kind.kind, f"`{path}`", field.fate.value, field.why)
        for kind, rows in fields.FIELDS.items()
        for path, field in rows.items()
        if field.fate is not Fate.SENT and path not in fields.OF_ALL
    ]
    told = "Of their fields in Kubernetes 1.31 to 1.37 these do not go as they are:"
    return f"{told}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _reflection_rows() -> Iterator[Sequence[str]]:
    for row in reflection.KINDS:
        yield (
            f"{row.kind.kind} (`{row.name}`)",
            "to the provider" if row.is_outward else "to the consumer",
            row.twin.kind,
            _policies(row),
            str(row.workers),
            row.copied,
            row.left_out,
        )


def _policies(row: ReflectedKind) -> str:
    if row.like:
        return f"as `{row.like}`"
    if not row.is_configurable:
        return "its own"
    first, *others = (f"`{policy.value}`" for policy in row.policies)
    return f"**{first}**, {', '.join(others)}"


def written_reflection(text: str) -> str:
    """Return ``text`` with the table."""
    return made.between(text, BEGIN, reflection_table())


if __name__ == "__main__":
    sys.exit(made.main(written_reflection))
