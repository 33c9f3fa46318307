"""What all commands share: global flags, aliases, flag types.

Source: behaviour.md 7.1; stack.md 9.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from liqoctl.forge import flags

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def examples(*lines: str) -> str:
    """Return the end of a help text that shows ``lines``, each as it is typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@dataclass(frozen=True)
class Session:
    """The global flags: which cluster, which namespace, how much to say."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = ""
    verbose: bool = False
    skip_confirm: bool = False
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations for all objects that are made."""


_ALIASES: Final = {
    "id": "identity",
    "identities": "identity",
    "namespaces": "namespace",
    "ns": "namespace",
    "peers": "peer",
    "po": "pod",
    "pods": "pod",
    "resourceslices": "resourceslice",
    "rs": "resourceslice",
    "rslice": "resourceslice",
    "tenants": "tenant",
    "tn": "tenant",
    "virtualnodes": "virtualnode",
    "vn": "virtualnode",
}


class _Verb(click.Group):
    """A group whose commands are kinds, which also go by short names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called ``cmd_name``, by its name or an alias."""
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


def verb(*lines: str, **rest: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Return the decorator of a group of kinds, whose help ends with the examples ``lines``."""
    return click.group(cls=_Verb, epilog=examples(*lines), **rest)


class Duration(click.ParamType[float]):
    """``20s``, ``2m``, ``1m30s``: seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds, or fail with what is expected."""
        try:
            return value if isinstance(value, float) else flags.seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pairs(click.ParamType[dict[str, str]]):
    """``key=value``, several with commas."""

    name = "key=value,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        """Return the mapping, or fail with the part that is none."""
        try:
            return value if isinstance(value, dict) else flags.pairs([str(value)])
        except ValueError as error:
            self.fail(str(error), param, ctx)


def timeout(default: str) -> Callable[..., Any]:
    """Return the option ``--timeout``, in seconds as ``timeout``."""
    return click.option(
        "--timeout", type=Duration(), default=default, show_default=True, help="How long to wait."
    )


REMOTE_CLUSTER_ID: Final = click.option(
    "--remote-cluster-id", required=True, help="Cluster ID of the peer."
)
OUTPUT: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="Print the objects instead of applying them; nothing is written to the cluster.",
)
TEXT_OUTPUT: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to print it.",
)

_GLOBAL: Final = (
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="Kubeconfig of the cluster.  [default: $KUBECONFIG, else ~/.kube/config]",
    ),
    click.option("--context", help="Context of the kubeconfig to use."),
    click.option(
        "-n",
        "--namespace",
        help="Namespace of the objects, where a command does not find it itself.",
    ),
    click.option("--global-labels", type=Pairs(), help="Labels for every object that is made."),
    click.option(
        "--global-annotations", type=Pairs(), help="Annotations for every object that is made."
    ),
    click.option("--skip-confirm", is_flag=True, default=None, help="Do not ask back."),
    click.option("-v", "--verbose", is_flag=True, default=None, help="Say more."),
)
_NAMES: Final = (
    "kubeconfig", "context", "namespace", "global_labels", "global_annotations", "skip_confirm",
    "verbose",
)  # fmt: skip


def global_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the global flags, and hand them to ``function`` as ``session``.

    They may stand before and behind the name of the command; behind wins.
    """

    @functools.wraps(function)
    def with_session(*args: Any, **rest: Any) -> Any:
        context = click.get_current_context()
        context.obj = {**(context.obj or {}), **_taken(rest)}
        return function(*args, session=_session(context.obj), **rest)

    for option in reversed(_GLOBAL):
        with_session = option(with_session)
    return with_session


_REMOTE: Final = (
    click.option(
        "--remote-kubeconfig",
        type=click.Path(path_type=Path),
        help="Kubeconfig of the provider.  [default: that of the consumer]",
    ),
    click.option("--remote-context", help="Context of that kubeconfig to use."),
)


def remote_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags for the provider, and hand them to ``function`` as ``remote``.

    To be used below ``global_flags``: what is not said of the provider is as for the consumer.
    """

    @functools.wraps(function)
    def with_remote(
        *args: Any,
        session: Session,
        remote_kubeconfig: Path | None,
        remote_context: str | None,
        **rest: Any,
    ) -> Any:
        provider = remote(session, remote_kubeconfig, remote_context)
        return function(*args, session=session, remote=provider, **rest)

    for option in reversed(_REMOTE):
        with_remote = option(with_remote)
    return with_remote


def remote(session: Session, kubeconfig: Path | str | None, context: str | None) -> Session:
    """Return the session of the provider: what is not said of it is as for the consumer.

    Raises:
        click.UsageError: nothing is said of it.
    """
    if not kubeconfig and not context:
        raise click.UsageError("say where the provider is: --remote-kubeconfig or --remote-context")
    path = Path(kubeconfig) if kubeconfig else session.kubeconfig
    return replace(session, kubeconfig=path, context=context)


def _taken(rest: dict[str, Any]) -> dict[str, Any]:
    given = {name: rest.pop(name) for name in _NAMES}
    return {name: value for name, value in given.items() if value is not None}


def _session(given: Mapping[str, Any]) -> Session:
    metadata = {
        "labels": given.get("global_labels") or {},
        "annotations": given.get("global_annotations") or {},
    }
    return Session(
        kubeconfig=given.get("kubeconfig"),
        context=given.get("context"),
        namespace=given.get("namespace") or "",
        verbose=bool(given.get("verbose")),
        skip_confirm=bool(given.get("skip_confirm")),
        metadata={name: values for name, values in metadata.items() if values},
    )


def confirm(session: Session, question: str) -> None:
    """Ask ``question`` on stderr, unless ``--skip-confirm`` answers it.

    Raises:
        click.Abort: the answer is no, or there is nobody to answer.
    """
    if not session.skip_confirm:
        click.confirm(question, abort=True, err=True)
