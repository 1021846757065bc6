"""Validation of probes and life-cycle handlers: a pod answers HTTP and has no processes."""

from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.contract import text

Object = dict[str, Any]
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_SCHEMES = ("HTTP", "HTTPS")
_PORT_HIGHEST = 65535


def check_probes(container: Object, path: str, problems: Problems) -> None:
    """The probes and the life cycle of a container that stays."""
    for kind in PROBES:
        if kind in container:
            _check_probe(container[kind], kind, f"{path}.{kind}", problems)
    for when in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(when)
        if handler is not None:
            _check_handler(handler, f"{path}.lifecycle.{when}", problems)


def _check_probe(probe: Object, kind: str, path: str, problems: Problems) -> None:
    _check_handler(probe, path, problems)
    for count in _COUNTS:
        if probe.get(count, 0) < 0:
            problems.invalid(f"{path}.{count}", probe[count], text("validation", "not_negative"))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and kind == "readinessProbe":
        problems.invalid(
            f"{path}.terminationGracePeriodSeconds", grace, text("validation", "readiness_grace")
        )
    elif grace is not None and grace <= 0:
        problems.invalid(f"{path}.terminationGracePeriodSeconds", grace, text("validation", "positive"))
    if kind != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        problems.invalid(
            f"{path}.successThreshold", probe["successThreshold"], text("validation", "must_be_1")
        )


def _check_handler(handler: Object, path: str, problems: Problems) -> None:
    found = [kind for kind in _HANDLERS if kind in handler]
    if not found:
        problems.required(path, text("validation", "handler_none"))
        return
    for extra in found[1:]:
        problems.forbidden(f"{path}.{extra}", text("validation", "handler_many"))
    kind = found[0]
    action: Object = handler[kind]
    if kind in ("exec", "grpc"):
        problems.forbidden(f"{path}.{kind}", text("validation", f"handler_{kind}"))
    elif kind == "httpGet":
        _check_http(action, f"{path}.httpGet", problems)
    elif kind == "tcpSocket":
        _check_port(action.get("port", 0), f"{path}.tcpSocket.port", problems)


def _check_http(action: Object, path: str, problems: Problems) -> None:
    if not action.get("path"):
        problems.required(f"{path}.path")
    _check_port(action.get("port", 0), f"{path}.port", problems)
    scheme = action.get("scheme", "HTTP")
    if scheme not in _SCHEMES:
        problems.unsupported(f"{path}.scheme", scheme, _SCHEMES)
    elif scheme != "HTTP":
        problems.forbidden(f"{path}.scheme", text("validation", "handler_https"))
    for index, header in enumerate(action.get("httpHeaders") or ()):
        name = header.get("name", "")
        if name:
            problems.invalids(f"{path}.httpHeaders[{index}].name", name, names.header_name(name))


def _check_port(port: int | str, path: str, problems: Problems) -> None:
    if isinstance(port, str):
        problems.invalids(path, port, names.port_name(port))
    else:
        problems.between(path, port, 1, _PORT_HIGHEST)
