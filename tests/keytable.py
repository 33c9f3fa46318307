"""``python3 -m tests.keytable FILE``: write the tables of labels and annotations into the docs.

They are made of ``apis/keys.py``: its sections, its constants, and the text beneath each.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from apis import keys
from tests import made

MARK: Final = made.mark("tests.keytable", "docs/labels.md")
SECTIONS: Final = {
    "Taint, toleration": "Taint",
    "Labels: peers and replication": "Labels of peers and replicas",
    "Labels: virtual nodes and their pods": "Labels of virtual nodes",
    "Labels: namespaces, offloaded pods and reflected objects": "Labels of namespaces and objects",
    "Annotations": "Annotations",
    "Conditions and reasons that the user of a pod sees": "Conditions of pods",
    "Finalizers": "Finalizers",
}
"""Title in the page by that in the module."""
_TITLE: Final = re.compile(r"# (.+?) -{3,}")


class KeyRow(NamedTuple):
    """One key, such as ``liqo.io/type``."""

    section: str
    key: str
    meaning: str


def rows() -> Iterator[KeyRow]:
    """Yield the keys of the domains ``liqo.io`` and ``pyliqo.io``, in their order.

    Raises:
        AssertionError: one has no text beneath it.
    """
    text = Path(keys.__file__).read_text(encoding="utf-8")
    lines, body = text.splitlines(), ast.parse(text).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        value = node.value if isinstance(node, ast.AnnAssign) else None
        key = value.value if isinstance(value, ast.Constant) else None
        section = _section(lines[: node.lineno])
        if not isinstance(key, str) or "liqo.io/" not in key or section not in SECTIONS:
            continue
        is_told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        assert is_told, f"{key}: say beneath it on what it stands, and what it means"
        assert isinstance(after, ast.Expr)
        yield KeyRow(section, key, " ".join(str(ast.literal_eval(after.value)).split()))


def _section(above: list[str]) -> str:
    titles = (found.group(1) for line in reversed(above) if (found := _TITLE.match(line)))
    return next(titles, "")


def _table() -> Iterator[str]:
    found = list(rows())
    for section, title in SECTIONS.items():
        yield from ("", f"## {title}", "", "| key | meaning |", "| --- | --- |")
        for row in found:
            if row.section == section:
                yield f"| `{row.key}` | {row.meaning.replace('``', '`')} |"


def written_keys(text: str) -> str:
    """Return ``text`` with the tables behind their mark."""
    return made.between(text, MARK, "\n".join(_table()).strip())


if __name__ == "__main__":
    sys.exit(made.main(written_keys))
