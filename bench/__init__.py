"""Measurements of Kube32: `python -m bench [move|snapshot|api ...]`, figures in build/bench/<name>.json."""
