"""Quantities and durations: values, canonical forms, sizes for people, and what is none."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.formats import duration, quantity


@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ("0.5", "0.5", "500m"),
        ("100m", "0.1", "100m"),
        ("1000m", "1", "1"),
        ("1000", "1000", "1k"),
        ("128974848", "128974848", "128974848"),
        ("1e3", "1000", "1e3"),
        ("32Ki", "32768", "32Ki"),
        ("1024Ki", "1048576", "1Mi"),
        ("1.5Gi", "1610612736", "1536Mi"),
        ("0.5Ki", "512", "512"),
        ("0", "0", "0"),
        ("-1", "-1", "-1"),
        (".5", "0.5", "500m"),
        ("0.0000000001", "1e-9", "1n"),
        ("999999999E", str(2**63 - 1), str(2**63 - 1)),
    ],
)
def test_quantities_mean_what_kubernetes_means(text: str, value: str, canonical: str) -> None:
    assert quantity.parse(text) == Decimal(value)
    assert quantity.canonical(text) == canonical
    assert quantity.parse(quantity.canonical(text)) == quantity.parse(text)


@pytest.mark.parametrize(
    "text", ["", "x", "1Q", "32kib", "1 Ki", "1e", "--1", "1.2.3", "٣", "1" * 65, "1e99999", "NaN"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        quantity.parse(text)


def test_whole_numbers_and_thousandths_round_up() -> None:
    assert quantity.to_int("32Ki") == 32768
    assert quantity.to_int("1m") == 1
    assert quantity.to_millis("0.5") == 500
    assert quantity.to_millis("1n") == 1
    assert quantity.to_millis("999999999E") == (2**63 - 1) * 1000


@given(st.integers(0, 2**53), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_the_canonical_form_keeps_the_value_and_is_stable(number: int, suffix: str) -> None:
    once = quantity.canonical(f"{number}{suffix}")
    assert quantity.parse(once) == quantity.parse(f"{number}{suffix}")
    assert quantity.canonical(once) == once


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0"), (512, "512"), (1024, "1Ki"), (65_536, "64Ki"), (66_764, "65.2Ki"), (1_572_864, "1.5Mi")],
)
def test_sizes_are_written_for_people(size: int, shown: str) -> None:
    assert quantity.human_bytes(size) == shown


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1m30s", 90_000),
        ("1.5s", 1500),
        ("2h", 7_200_000),
        ("0", 0),
        ("999us", 0),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, ms: int) -> None:
    assert duration.parse_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 s", "1s2", "1d", "1s" * 40, "1.2.3s", "０s"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 500ms, 10s or 1m30s"):
        duration.parse_ms(text)
