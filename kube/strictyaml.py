"""The strict reader of YAML that somebody else wrote: no anchors, no tags, nothing twice, little.

Apart from its caller, because it is seldom needed: what this project writes is JSON, and reading
YAML takes 0.6 MiB of memory for as long as a process lives.

Source: docs/parity.md SEC-B5.
"""

from typing import Any, Final

import yaml

_MAX_DEPTH: Final = 8
_MAX_NODES: Final = 500


class StrictYamlError(ValueError):
    """The text is refused; the sentence says what of it, and quotes nothing but keys."""


def load(text: bytes) -> Any:
    """Return the one document of ``text``: lists, dicts with words as keys, texts and None.

    Numbers, booleans and dates come as they are written.

    Raises:
        StrictYamlError: it is no YAML, or more than plain YAML.
    """
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except StrictYamlError:
        raise
    except (yaml.YAMLError, UnicodeError, ValueError):
        # The cause is not chained: PyYAML quotes the text, keys included.
        raise StrictYamlError("the kubeconfig is not YAML") from None
    return _plain(node) if node else None


def _check_events(text: bytes) -> None:
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if getattr(event, "anchor", None):
            raise StrictYamlError("anchors and aliases are not allowed in a kubeconfig")
        if getattr(event, "tag", None):
            raise StrictYamlError("tags are not allowed in a kubeconfig")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if depth > _MAX_DEPTH or nodes > _MAX_NODES or documents > 1:
            raise StrictYamlError("the kubeconfig is nested too deeply or holds too much")


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        names = [name.value for name, _ in node.value]
        for name in names:
            if not isinstance(name, str):
                raise StrictYamlError("a key of the kubeconfig is not a word")
            if names.count(name) > 1:
                raise StrictYamlError(f"{name} is given twice")
        return {name.value: _plain(value) for name, value in node.value}
    return None if node.tag == "tag:yaml.org,2002:null" else node.value
