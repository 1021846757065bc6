"""Finds the cluster as kubectl does and runs one verb against it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from kube32.cli.errors import CliError
from kube32.client.api import ApiClient, ApiError
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import KubeconfigError, load_kubeconfig


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace the global options name; empty values mean the kubeconfig's own."""

    kubeconfig: Path | None
    context: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connected cluster and the namespace to work in."""

    client: ApiClient
    namespace: str
    server: str


async def _connected(target: Target, verb: Callable[[Cluster], Awaitable[int]]) -> int:
    access = load_kubeconfig(target.kubeconfig, context=target.context or None)
    transport = HttpTransport(access.server, ssl_context=access.ssl_context, token=access.token)
    try:
        namespace = target.namespace or access.namespace or "default"
        return await verb(Cluster(ApiClient(transport), namespace, access.server))
    except (TimeoutError, ConnectionError) as error:
        raise CliError(f"{access.server} does not answer: {error or type(error).__name__}") from None
    finally:
        await transport.close()


def run_in_cluster(target: Target, verb: Callable[[Cluster], Awaitable[int]]) -> None:
    """Runs `verb` and exits with what it returns."""
    run_verb(lambda: asyncio.run(_connected(target, verb)))


def run_verb(verb: Callable[[], int]) -> None:
    """Exits with the verb's code; every expected failure is one line on stderr."""
    try:
        code = verb()
    except CliError as error:
        print(f"kube32-cli: {error}", file=sys.stderr)
        code = error.code
    except KubeconfigError as error:
        print(f"kube32-cli: {error}", file=sys.stderr)
        code = 2
    except ApiError as error:
        print(f"kube32-cli: {error.message or error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    raise SystemExit(code)
