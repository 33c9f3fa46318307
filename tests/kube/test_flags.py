"""A flag is one field of a process's options."""

import argparse
from dataclasses import dataclass

import pytest

from kube import flags
from kube.flags import flag


@dataclass(frozen=True, kw_only=True)
class Options:
    """As a process has them."""

    name: str = flag("who it is", "--name", required=True)
    place: str = flag("where", "--place", env="PLACE", default="here")
    count: int = flag("how many (%(default)s)", "--how-many", "-n", type=flags.count, default=2)
    networks: tuple[str, ...] = flag("several", "--network", action="append")
    keys: tuple[str, ...] = flag("several", "--key", action="extend", type=flags.names)
    is_on: bool = flag("a switch", "--on", **flags.SWITCH, default=False)
    started: str = "later"


def parse(*argv: str, **environment: str) -> Options:
    parser = argparse.ArgumentParser()
    flags.add(parser, Options, environment)
    return Options(**flags.taken(Options, vars(parser.parse_args(argv))))


def test_fields_have_what_flags_say_and_else_their_defaults() -> None:
    assert (
        parse("--name=a")
        == Options(name="a")
        == Options(name="a", place="here", count=2, networks=(), keys=(), is_on=False)
    )
    several = ("--network=x", "--network=y", "--key=a,b", "--key=c")
    assert parse("--name=a", "-n3", "--on", *several) == Options(
        name="a", count=3, networks=("x", "y"), keys=("a", "b", "c"), is_on=True
    )


def test_the_environment_comes_before_the_default_and_after_the_flag() -> None:
    assert parse("--name=a", PLACE="there").place == "there"
    assert parse("--name=a", "--place=elsewhere", PLACE="there").place == "elsewhere"


@pytest.mark.parametrize("argv", [[], ["--name=a", "--how-many=0"], ["--name=a", "--on=perhaps"]])
def test_nonsense_ends_the_process_and_names_the_flag(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*argv)
    assert ended.value.code == 2
    assert "--name" in capsys.readouterr().err
