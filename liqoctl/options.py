"""What all commands share: global flags, aliases, flag types, and the verbs of several kinds.

Source: docs/parity.md § 7.1.
"""

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from apis import keys, naming, networks, objects, resources, texts
from liqoctl.forge.tables import printable


@dataclass(frozen=True)
class Session:
    """The global flags: which cluster, which namespace, how much to say."""

    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    """Of the kubeconfig, in place of the context's; the same for ``user``."""
    user: str = ""
    namespace: str = ""
    verbose: bool = False
    skip_confirm: bool = False
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels and annotations for all objects that are made."""

    @property
    def liqo_namespace(self) -> str:
        """The namespace in which pyliqo is, or is to be, installed."""
        return self.namespace or keys.LIQO_NAMESPACE

    def confirm(self, question: str) -> None:
        """Ask ``question`` on stderr, unless ``--skip-confirm`` answers it.

        Raises:
            click.Abort: the answer is no, or there is nobody to answer.
        """
        if not self.skip_confirm:
            click.confirm(question, abort=True, err=True)


# Flags and their types ----------------------------------------------------------------------------

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def examples(*lines: str) -> str:
    """Return the end of a help text that shows ``lines``, each as it is typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


_ALIASES: Final = {
    "id": "identity", "identities": "identity", "namespaces": "namespace", "ns": "namespace",
    "peers": "peer", "po": "pod", "pods": "pod", "resourceslices": "resourceslice",
    "rs": "resourceslice", "rslice": "resourceslice", "tenants": "tenant", "tn": "tenant",
    "virtualnodes": "virtualnode", "vn": "virtualnode",
}  # fmt: skip
_OF_NETWORK: Final = frozenset(
    {"configuration", "gatewayclient", "gatewayserver", "network", "publickey", "test"}
)
"""Commands and kinds of Liqo's network module."""
_NO_NETWORK: Final = (
    "is of Liqo's network between the clusters, and pyliqo has none: leave it out; "
    "where an IP fabric joins the clusters, run the controllers of both with --ip-fabric instead"
)


class Command(click.Command):
    """A command whose switches may also be spelled ``--switch=false``, as Go's are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        switches = {
            name: no
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and param.secondary_opts
            for name, no in zip(param.opts, param.secondary_opts * len(param.opts), strict=False)
        }
        try:
            spelled = switched(args, switches)
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from error
        return super().parse_args(ctx, spelled)


class Group(Command, click.Group):
    """A group of them; what belongs to Liqo's network is refused with what to do instead."""

    command_class = Command

    def command(  # type: ignore[override]  # its help has examples, always
        self, name: str, *lines: str, **rest: Any
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """Return the decorator of the command ``name``, whose help ends with the examples."""
        return super().command(name, epilog=examples(*lines), **rest)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:  # it may be told in the words of another cluster
            vars(error)["message"] = printable(error.message)  # click calls it final
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _OF_NETWORK and not ctx.resilient_parsing:
            ctx.fail(f"'{ctx.command_path} {args[0]}' {_NO_NETWORK}")
        return super().resolve_command(ctx, args)


class _Switch(click.Option):
    """An option that is on or off; where it is off by default, its help is about on only."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or self.default is True:
            return record
        return record[0].partition(" / ")[0], record[1]


def switch(*names: str, **rest: Any) -> Callable[..., Any]:
    """Return an option that is on or off, called ``names``, the long one first.

    ``--x`` and ``--x=true`` say yes, ``--no-x`` and ``--x=false`` say no.
    """
    long, *short = names
    declared = f"{long}/--no-{long.removeprefix('--')}"
    return click.option(declared, *short, cls=_Switch, **{"default": False, **rest})


REPLACE: Final = switch(
    "--replace",
    help="Accept another API server or key of a peer of that name: it is the same cluster.",
)


PROVIDER_SERVER: Final = click.option(
    "--provider-server",
    default="",
    help="API server that the provider may announce besides that of its kubeconfig.",
)


def _networks(_context: click.Context, param: click.Parameter, given: Sequence[str]) -> str:
    found, wrong = networks.parse_pod_networks(",".join(given))
    if wrong:
        message = f"{wrong[0]!r} is no network such as 10.1.0.0/16"
        raise click.BadParameter(message, param=param)
    return networks.joined_networks(found)


PROVIDER_POD_CIDR: Final = click.option(
    "--provider-pod-cidr",
    multiple=True,
    metavar="CIDR",
    callback=_networks,
    help="Network of the provider's pods; may be repeated.  [default: what the provider says]",
)
"""Outside of it this cluster publishes no address that the provider says of a pod."""


class Parsed(click.ParamType[Any]):
    """What ``parse`` makes of a text; its ValueError is shown as what is wrong with the flag."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _named(name: str, is_one: Callable[[str], bool], rule: str) -> Parsed:
    def parse(text: str) -> str:
        if not is_one(text):
            raise ValueError(f"{text!r:.80} is {rule}, a letter or digit at each end")
        return text

    return Parsed(name, parse)


def _amount(text: str) -> str:
    if text and resources.parse_quantity(text).nanos < 0:
        raise ValueError(f"{text!r} is below 0")
    return text


def _amounts(text: str) -> dict[str, str]:
    found = texts.pairs(text)
    for resource, amount in found.items():
        if not naming.is_qualified_name(resource):
            raise ValueError(f"{resource!r:.80} is no name of a resource")
        try:
            _amount(amount)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from error
    return found


DURATION: Final = Parsed("duration", objects.parse_duration)
"""``20s``, ``2m``, ``1m30s``: seconds."""
KEY_VALUES: Final = Parsed("key=value,...", texts.pairs)
AMOUNT: Final = Parsed("quantity", _amount)
AMOUNTS: Final = Parsed("resource=amount,...", _amounts)
NAMESPACE: Final = _named(
    "namespace", naming.is_dns_label,
    "no name of a namespace: use lower-case letters, digits and '-', at most 63",
)  # fmt: skip
NAME: Final = _named(
    "name", naming.is_dns_subdomain,
    "no name of an object: use lower-case letters, digits, '-' and '.'",
)  # fmt: skip
CLUSTER_ID: Final = _named(
    "cluster ID", lambda text: not text or naming.is_dns_label(text),
    "not a cluster ID: use 1 to 63 lower-case letters, digits and '-'",
)  # fmt: skip
MOST_OF_A_FILE: Final = 1 << 20
"""Characters of a file of settings or certificates: a ConfigMap holds no more."""


class SetValues(click.ParamType[dict[str, Any]]):
    """A YAML file that holds a mapping; ``-`` is stdin."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        import yaml

        with click.File().convert(value, param, ctx) as file:
            try:
                found = yaml.load(file.read(MOST_OF_A_FILE), Loader=yaml.CSafeLoader) or {}
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                self.fail(f"{value}: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail(
                f"{value}: a mapping is needed, such as 'webhook: {{replicas: 3}}'", param, ctx
            )
        return found


def pairs(name: str, help_: str, kind: Parsed = KEY_VALUES) -> Callable[..., Any]:
    """Return an option that may be repeated, as one mapping; the last word on a key holds."""

    def merged(_: object, __: object, given: Iterable[Mapping[str, str]]) -> dict[str, str]:
        return {key: value for one in given for key, value in one.items()}

    return click.option(name, type=kind, multiple=True, callback=merged, help=help_)


def _with(
    options: Iterable[Callable[..., Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    for option in reversed([*options]):
        function = option(function)
    return function


_AMOUNTS: Final = (
    click.option(
        "--cpu",
        type=AMOUNT,
        default="",
        help="CPUs to ask for.  [default: what the provider gives]",
    ),
    click.option(
        "--memory", type=AMOUNT, default="", help="Memory to ask for.  [default: the same]"
    ),
    click.option("--pods", type=AMOUNT, default="", help="Pods to ask for.  [default: the same]"),
    pairs("--resource", "Other resources.", AMOUNTS),
)


def amounts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of what a slice asks for, and hand it to ``function`` as ``resources``."""

    @functools.wraps(function)
    def with_resources(*, cpu: str, memory: str, pods: str, **rest: Any) -> Any:
        named = {"cpu": cpu, "memory": memory, "pods": pods}
        asked = {name: amount for name, amount in named.items() if amount}
        return function(resources={**asked, **rest.pop("resource")}, **rest)

    return _with(_AMOUNTS, with_resources)


def left_out(**fields: str) -> frozenset[str]:
    """Return of ``fields``, by their parameters, those that the command line leaves to a default.

    What is there already keeps them as they are.
    """
    source = click.get_current_context().get_parameter_source
    return frozenset(
        field for name, field in fields.items() if source(name) is ParameterSource.DEFAULT
    )


def timeout(default: str, help_: str = "How long to wait.") -> Callable[..., Any]:
    """Return the option ``--timeout``, in seconds as ``timeout_s``."""
    return click.option(
        "--timeout", "timeout_s", type=DURATION, default=default, show_default=True, help=help_
    )


STANDSTILL: Final = timeout("2m", "Give up when nothing has changed for so long.")
"""Of commands that wait as long as something moves."""
REMOTE_CLUSTER_ID: Final = click.option(
    "--remote-cluster-id", required=True, type=CLUSTER_ID, help="Cluster ID of the peer."
)


def output(*forms: str, **rest: Any) -> Callable[..., Any]:
    """Return the option ``--output``, one of ``forms``, as ``form``."""
    return click.option("-o", "--output", "form", type=click.Choice(forms), **rest)


OUTPUT: Final = output(
    "yaml", "json",
    help="Print the objects instead of applying them; nothing is written to the cluster.",
)  # fmt: skip
TEXT_OUTPUT: Final = output(
    "text", "json", "yaml", default="text", show_default=True, help="How to print it."
)
_SHOWN: Final = output(
    "wide", "yaml", "json", "name",
    help="Show more columns, or print the whole objects, or their names alone.",
)  # fmt: skip
_HEADERS: Final = switch("--headers", "has_head", default=True, help="Name the columns.")
_IN_ALL: Final = switch("--all-namespaces", "in_all", "-A", help="List objects of all namespaces.")


class Shown(NamedTuple):
    """How objects are shown: ``wide``, ``yaml``, ``json``, ``name`` or as a short table."""

    form: str | None
    in_all: bool = False
    """Whether their namespaces are shown, too."""
    has_head: bool = True


def shown(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what each ``get`` of objects has, and hand it to ``function`` as ``how``."""

    @functools.wraps(function)
    def with_how(*, form: str | None, in_all: bool, has_head: bool, **rest: Any) -> Any:
        return function(how=Shown(form, in_all, has_head), **rest)

    return _with((_IN_ALL, _SHOWN, _HEADERS), with_how)


_GLOBAL: Final = (
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="Kubeconfig of the cluster.  [default: $KUBECONFIG, else ~/.kube/config]",
    ),
    click.option("--context", help="Context of the kubeconfig to use."),
    click.option("--cluster", help="Cluster of the kubeconfig to use.  [default: the context's]"),
    click.option("--user", help="User of the kubeconfig to use.  [default: the context's]"),
    click.option(
        "-n",
        "--namespace",
        help="Namespace to work in.  [default: that of the kubeconfig's context for namespaced "
        "objects, else liqo]",
    ),
    click.option("--global-labels", type=KEY_VALUES, help="Labels for every object that is made."),
    click.option(
        "--global-annotations", type=KEY_VALUES, help="Annotations for every object that is made."
    ),
    switch("--skip-confirm", default=None, help="Do not ask for confirmation."),
    switch("--verbose", "-v", default=None, help="Print more details."),
)
_NAMES: Final = (
    "kubeconfig", "context", "cluster", "user", "namespace", "global_labels",
    "global_annotations", "skip_confirm", "verbose",
)  # fmt: skip


def global_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the global flags, and hand them to ``function`` as ``session``.

    They may stand before and behind the name of the command; behind wins.
    """

    @functools.wraps(function)
    def with_session(*args: Any, **rest: Any) -> Any:
        context = click.get_current_context()
        context.obj = {**(context.obj or {}), **_said(rest)}
        others = {name: value for name, value in rest.items() if name not in _NAMES}
        return function(*args, session=_session(context.obj), **others)

    return _with(_GLOBAL, with_session)


_REMOTE: Final = (
    click.option(
        "--remote-kubeconfig",
        type=click.Path(path_type=Path),
        help="Kubeconfig of the provider.  [default: that of the consumer]",
    ),
    click.option("--remote-context", help="Context of that kubeconfig to use."),
    click.option("--remote-cluster", help="Cluster of that kubeconfig to use."),
    click.option("--remote-user", help="User of that kubeconfig to use."),
    click.option(
        "--remote-namespace",
        help="Namespace of pyliqo on the provider.  [default: that on the consumer]",
    ),
)
_REMOTE_NAMES: Final = ("kubeconfig", "context", "cluster", "user", "namespace")


def remote_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags for the provider, whose session ``function`` gets by calling ``remote``.

    To be used below ``global_flags``: what is not said of the provider is as for the consumer.
    """

    @functools.wraps(function)
    def with_remote(*args: Any, session: Session, **rest: Any) -> Any:
        given = {name: rest.pop(f"remote_{name}") for name in _REMOTE_NAMES}
        remote = functools.partial(_remote, session, given)
        return function(*args, session=session, remote=remote, **rest)

    return _with(_REMOTE, with_remote)


def _remote(session: Session, given: Mapping[str, Any]) -> Session:
    """Return the session of the provider: what is not ``given`` of it is as for the consumer.

    Raises:
        click.UsageError: nothing is said of it.
    """
    if not any(given[name] for name in ("kubeconfig", "context", "cluster")):
        raise click.UsageError("say where the provider is: --remote-kubeconfig or --remote-context")
    return replace(
        session,
        kubeconfig=given["kubeconfig"] or session.kubeconfig,
        context=given["context"],
        cluster=given["cluster"] or "",
        user=given["user"] or "",
        namespace=given["namespace"] or session.namespace,
    )


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name in _NAMES if (value := given.get(name)) is not None}


def session_of(context: click.Context) -> Session:
    """Return what the global flags of a command line say that is typed so far."""
    given: dict[str, Any] = {}
    one: click.Context | None = context
    while one is not None:
        given, one = {**_said(one.params), **given}, one.parent
    return _session(given)


def _session(given: Mapping[str, Any]) -> Session:
    metadata = {part: given.get(f"global_{part}") for part in ("labels", "annotations")}
    own = {name: value for name, value in given.items() if not name.startswith("global_")}
    return Session(**own, metadata={part: said for part, said in metadata.items() if said})


# The command itself, and the verbs that several kinds share ---------------------------------------

MODULES: Final[Mapping[str, Sequence[str]]] = {
    "activate": ["provider"],
    "authenticate": ["authentication"],
    "backup": ["backup"],
    "bundle": ["backup"],
    "completion": ["completion"],
    "cordon": ["provider"],
    "create": ["identity", "resourceslice", "virtualnode"],
    "dashboard": ["dashboard"],
    "delete": ["identity", "resourceslice", "virtualnode"],
    "drain": ["provider"],
    "force": ["peer"],
    "generate": ["identity"],
    "get": [
        "identity", "install", "provider", "reflections",
        "resourceslice",
    ],
    "info": ["info"],
    "install": ["install"],
    "move": ["move"],
    "offload": ["offload"],
    "peer": ["peer"],
    "set": ["provider"],
    "unauthenticate": ["authentication"],
    "uncordon": ["provider"],
    "uninstall": ["uninstall"],
    "unoffload": ["offload"],
    "unpeer": ["peer"],
    "version": ["install"],
    "why": ["why"],
}  # fmt: skip
"""The modules of ``liqoctl`` in which a command is, or the kinds of a verb are."""


class _Root(Group):
    """The group of all commands: the modules of one are imported when it is asked for.

    So a TAB waits for few of them. Source: click, "Lazily Loading Subcommands".
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*MODULES, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        every = [module for modules in MODULES.values() for module in modules]
        for module in MODULES.get(cmd_name, every):  # of all of them one may have been meant
            importlib.import_module(f"liqoctl.{module}")
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Root,
    context_settings=CONTEXT,
    epilog=examples(
        "liqoctl install --cluster-id rome",
        "liqoctl peer --kubeconfig rome.kubeconfig --remote-kubeconfig milan.kubeconfig",
        "liqoctl offload namespace foo",
        "liqoctl unoffload namespace foo",
        "liqoctl why pod web-0 -n foo",
        "kubectl liqo offload namespace foo -l region=europe",
    ),
)
@click.version_option(package_name="pyliqo", message="%(prog)s %(version)s")
@global_flags
def cli(session: Session) -> None:
    """Extend this cluster over others: virtual nodes, offloaded namespaces.

    Data goes to stdout, progress to stderr. Exit status: 0 done, 1 not done, 2 wrong usage.
    """


class _Verb(Group):
    """A group whose commands are kinds, which also go by short names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


def verb(*lines: str, **rest: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Return the decorator of a group of kinds, whose help ends with the examples ``lines``."""
    return cli.group(cls=_Verb, epilog=examples(*lines), **rest)


@verb(
    "liqoctl create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name milan",
    "liqoctl create nonce --remote-cluster-id rome",
)
def create() -> None:
    """Make objects of a peering: slices, virtual nodes, tenants, identities, nonces."""


@verb("liqoctl delete virtualnode milan", "liqoctl delete tenant rome")
def delete() -> None:
    """Remove objects of a peering."""


@verb(
    "liqoctl get tenant",
    "liqoctl get nonce --remote-cluster-id rome",
    "liqoctl get reflections -n shop",
)
def get() -> None:
    """Show objects of a peering."""


@verb(
    "liqoctl generate tenant --remote-cluster-id milan --nonce NONCE > tenant.yaml",
    "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
)
def generate() -> None:
    """Print objects for the other cluster's administrator, where nobody reaches both clusters."""


@verb("liqoctl force unpeer milan")
def force() -> None:
    """Give up a peer that does not come back."""


# Flags that may be repeated, and Go's booleans ----------------------------------------------------

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def switched(args: Iterable[str], switches: Mapping[str, str]) -> list[str]:
    """Return ``args`` with ``--x=true`` as ``--x`` and ``--x=false`` as its opposite.

    Shape: ``switches`` is {"--x": "--no-x"}. What stands behind ``--`` is left as it is.
    Source: Go, ``strconv.ParseBool``, by which kubectl's and Liqo's own flags are read.

    Raises:
        ValueError: the value is neither.
    """
    given = iter(args)
    found = []
    for arg in given:
        found.append(_spelled(arg, switches))
        if arg == "--":
            break
    return [*found, *given]


def _spelled(arg: str, switches: Mapping[str, str]) -> str:
    name, sign, value = arg.partition("=")
    if not sign or name not in switches:
        return arg
    if value not in _TRUE | _FALSE:
        raise ValueError(f"{arg}: {value!r} is neither true nor false")
    return name if value in _TRUE else switches[name]
