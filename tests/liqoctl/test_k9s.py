"""The plugins of k9s call commands that there are."""

import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from apis import keys
from liqoctl.options import cli

FILE = Path(__file__).parents[2] / "docs" / "examples" / "k9s-plugins.yaml"
PLUGINS = yaml.safe_load(FILE.read_text(encoding="utf-8"))["plugins"]
SCOPES = {kind.plural for kind in (keys.POD, keys.NAMESPACE, keys.FOREIGN_CLUSTER)}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_calls_a_command_that_there_is(name: str, tmp_path: Path) -> None:
    plugin = PLUGINS[name]
    assert set(plugin["scopes"]) <= SCOPES
    assert plugin["command"] == "sh"
    [flag, line] = plugin["args"]
    assert flag == "-c"
    words = shlex.split(line.partition(" 2>&1 |")[0].replace("$", ""))
    assert words[0] == "liqoctl"

    away = ["--kubeconfig", str(tmp_path / "none"), *words[1:]]
    result = CliRunner().invoke(cli, [word.lower() for word in away])

    assert result.exit_code == 1, "it is understood, and has no cluster"
    assert str(tmp_path / "none") in result.output


def test_no_key_is_taken_twice() -> None:
    keys_ = [(one["shortCut"], scope) for one in PLUGINS.values() for scope in one["scopes"]]
    assert len(keys_) == len(set(keys_))
