# --- Event ---


def event_last_seen(obj: dict[str, Any], now: float) -> str:
    """LAST SEEN."""
    series = obj.get("series")
    if isinstance(series, dict):
        return since(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return event_first_seen(obj, now) if last is None else since(last, now)


def event_first_seen(obj: dict[str, Any], now: float) -> str:
    """FIRST SEEN."""
    first = obj.get("firstTimestamp")
    return since(obj.get("eventTime") if first is None else first, now)


def event_object(obj: dict[str, Any], _now: float) -> str:
    """OBJECT: kind/name."""
    about = mapping(obj, "involvedObject")
    kind, name = string(about.get("kind")).lower(), string(about.get("name"))
    return f"{kind}/{name}" if name else kind


def event_source(obj: dict[str, Any], _now: float) -> str:
    """SOURCE: component and host."""
    source = mapping(obj, "source")
    component = string(source.get("component"), string(obj.get("reportingComponent")))
    host = string(source.get("host"), string(obj.get("reportingInstance")))
    return f"{component}, {host}" if host else component


def event_message(obj: dict[str, Any], _now: float) -> str:
    """MESSAGE."""
    return string(obj.get("message")).strip()


def event_count(obj: dict[str, Any], _now: float) -> int:
    """COUNT."""
    series = obj.get("series")
    if isinstance(series, dict):
        return number(series.get("count"))
    return number(obj.get("count")) or 1
