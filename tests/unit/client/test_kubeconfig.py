"""Kubeconfig files as kubectl reads them, and one sentence for each way to be wrong."""

import base64
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube32.api import pki
from kube32.client.kubeconfig import KubeconfigError, load_kubeconfig, render_kubeconfig
from kube32.contract import LIMITS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A CA, and a client certificate with its key."""
    folder = tmp_path_factory.mktemp("pki")
    authority = pki.Authority.open(folder, LIMITS)
    pki.write_pair(folder / "pair.pem", authority.make("somebody"))
    return {"ca": authority.cert_pem, "pair": (folder / "pair.pem").read_text()}


def write(path: Path, **changes: Any) -> Path:
    """A kubeconfig that works, but for the changes at the top level."""
    config: dict[str, Any] = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:6443"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    config.update(changes)
    path.write_text(yaml.safe_dump(config))
    return path


def user(**fields: Any) -> list[dict[str, Any]]:
    """users: with one user."""
    return [{"name": "u", "user": fields}]


def cluster(**fields: Any) -> list[dict[str, Any]]:
    """clusters: with one cluster."""
    return [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **fields}}]


def test_the_current_context_gives_server_token_and_namespace(tmp_path: Path) -> None:
    access = load_kubeconfig(write(tmp_path / "config"))
    assert (access.server, access.token, access.namespace) == ("http://127.0.0.1:6443", "secret", "team")
    assert access.ssl_context is None and access.context == "one" and access.user == "u"


def test_another_context_can_be_named(tmp_path: Path) -> None:
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u"}},
        {"name": "two", "context": {"cluster": "c", "namespace": "other"}},
    ]
    access = load_kubeconfig(write(tmp_path / "config", contexts=contexts), context="two")
    assert (access.namespace, access.token) == ("other", None)


def test_files_of_kubeconfig_are_merged_and_the_first_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first", clusters=[], users=user(token="first"))
    second = write(tmp_path / "second", users=user(token="second"), **{"current-context": "nobody"})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{first}:{second}")
    access = load_kubeconfig()
    assert (access.server, access.token) == ("http://127.0.0.1:6443", "first")


def test_without_kubeconfig_the_file_in_the_home_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert load_kubeconfig().token == "secret"


def test_files_that_it_names_are_found_beside_it(tmp_path: Path, pem: dict[str, str]) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "ca.pem").write_text(pem["ca"])
    (folder / "token").write_text("from-file\n")
    config = write(
        folder / "config",
        clusters=cluster(**{"certificate-authority": "ca.pem", "tls-server-name": "kubernetes"}),
        users=user(tokenFile="token"),
    )
    access = load_kubeconfig(config)
    assert access.token == "from-file" and access.server_hostname == "kubernetes"
    assert access.ssl_context is not None and len(access.ssl_context.get_ca_certs()) == 1
    assert access.ssl_context.verify_mode == ssl.CERT_REQUIRED


def test_a_client_certificate_may_stand_in_the_file_itself(tmp_path: Path, pem: dict[str, str]) -> None:
    blocks = ["-----BEGIN" + b for b in pem["pair"].split("-----BEGIN") if b.strip()]
    data = {
        "client-certificate-data": _b64("".join(b for b in blocks if "CERTIFICATE" in b)),
        "client-key-data": _b64("".join(b for b in blocks if "PRIVATE KEY" in b)),
    }
    config = write(
        tmp_path / "config",
        clusters=cluster(**{"certificate-authority-data": _b64(pem["ca"])}),
        users=user(**data),
    )
    assert load_kubeconfig(config).ssl_context is not None


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_skipping_verification_is_possible_when_it_is_written_there(tmp_path: Path) -> None:
    config = write(tmp_path / "config", clusters=cluster(**{"insecure-skip-tls-verify": True}))
    context = load_kubeconfig(config).ssl_context
    assert context is not None and context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"current-context": ""}, "no current-context"),
        ({"current-context": "x"}, "no context 'x'; it has: one"),
        ({"clusters": []}, "no cluster 'c', which context 'one' names; it has: none"),
        ({"users": []}, "no user 'u', which context 'one' names"),
        ({"clusters": "x"}, "clusters is not a list"),
        ({"clusters": [{"cluster": {}}]}, "an entry of clusters has no name"),
        ({"users": [{"name": "u", "user": ["x"]}]}, "user 'u' is not a mapping"),
        ({"clusters": [{"name": "c", "cluster": {"server": "127.0.0.1:6443"}}]}, "is not a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://h:99999"}}]}, "is not a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": 7}}]}, "server of cluster 'c' is not a string"),
        ({"clusters": cluster(**{"certificate-authority": "absent.pem"})}, "absent.pem: No such file"),
        ({"clusters": cluster(**{"certificate-authority-data": "?"})}, "is not base64"),
        ({"clusters": cluster(**{"certificate-authority-data": "YQ=="})}, "is not PEM"),
        ({"users": user(exec={"command": "x"})}, "has 'exec', which is not offered"),
        ({"users": user(username="x", password="y")}, "has 'username', which is not offered"),
        ({"users": user(tokenFile="absent")}, "tokenFile of user 'u'"),
        ({"users": user(token="a\nb")}, "the token of user 'u' is not one line"),
        ({"users": user(**{"client-key-data": "YQ=="}), "clusters": cluster()}, "has no client-certificate"),
        ({"users": user(**{"client-certificate-data": "YQ=="}), "clusters": cluster()}, "has no client-key"),
        (
            {
                "users": user(**{"client-certificate-data": "YQ==", "client-key-data": "YQ=="}),
                "clusters": cluster(),
            },
            "are no pair in PEM",
        ),
    ],
)
def test_each_fault_is_one_line_that_names_the_file(tmp_path: Path, changes: Any, words: str) -> None:
    config = write(tmp_path / "config", **changes)
    with pytest.raises(KubeconfigError) as caught:
        load_kubeconfig(config)
    message = str(caught.value)
    assert words in message and str(config) in message and "\n" not in message
    assert "secret" not in message


@pytest.mark.parametrize("content", ["a: [", "\x00", "- list", "text", b"\xff\xfe\xfa"])
def test_a_file_that_is_no_kubeconfig_is_said_to_be_none(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(KubeconfigError, match=r"not YAML|not a kubeconfig") as caught:
        load_kubeconfig(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_an_error_when_it_was_named_and_a_hint_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KubeconfigError, match="No such file or directory; name another file"):
        load_kubeconfig(tmp_path / "absent")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(KubeconfigError, match="set KUBECONFIG to the kubeconfig that kube32-sim wrote"):
        load_kubeconfig()


def test_what_is_rendered_is_read_back_and_kubectl_reads_it_too(tmp_path: Path, pem: dict[str, str]) -> None:
    path = tmp_path / "config"
    text = render_kubeconfig("https://127.0.0.1:6443", pem["ca"], "admin", "secret", "kube32-x")
    path.write_text(text)
    access = load_kubeconfig(path)
    assert (access.server, access.token, access.context, access.user) == (
        "https://127.0.0.1:6443",
        "secret",
        "kube32-x",
        "admin",
    )
    kubectl = Path(sys.executable).parent / "kubectl"
    shown = subprocess.run(
        [str(kubectl), "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"],
        env={"KUBECONFIG": str(path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "https://127.0.0.1:6443"
