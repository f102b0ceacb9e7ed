"""Formulas over bands: what is computed, and what is refused before anything is."""

from __future__ import annotations

import numpy as np
import pytest

from assets.products.expression import evaluate, parse_formulas
from resources.errors import ConfigurationError

NAN = float("nan")


def compute(text: str, **bands: object) -> list[float]:
    """The one formula of `text` over short lists."""
    (formula,) = parse_formulas("p", text)
    values = [np.array([bands[name]], dtype=np.float32) for name in formula.bands]
    return [float(value) for value in evaluate(formula, values)[0]]


def test_ndvi_has_its_closed_form() -> None:
    """(nir - red) / (nir + red), exact to the last bit of a float64."""
    red, nir = [0, 1, 100, 5000, 65535], [1, 1, 300, 0, 65535]
    expected = [(n - r) / (n + r) for r, n in zip(red, nir, strict=True)]
    assert compute("(nir - red) / (nir + red)", red=red, nir=nir) == expected


def test_unsigned_bands_do_not_wrap() -> None:
    """A difference below zero is below zero, whatever dtype the bands came in."""
    (formula,) = parse_formulas("p", "a - b")
    assert evaluate(formula, [np.array([[1]], "uint8"), np.array([[3]], "uint8")])[0, 0] == -2.0


def test_what_is_no_number_is_absent() -> None:
    """Division by zero, zero over zero, a negative logarithm and root, and overflow give absent pixels, never infinity."""
    assert np.isnan(compute("a / b", a=[1, 0, -1], b=[0, 0, 0])).all()
    assert np.isnan(compute("log(a)", a=[-1, 0])).all()
    assert np.isnan(compute("sqrt(a)", a=[-1])).all()
    assert np.isnan(compute("a ** 400", a=[1e5])).all()
    assert compute("where(b == 0, 0, a / b)", a=[1, 6], b=[0, 3]) == [0, 2]


def test_absent_pixels_stay_absent() -> None:
    """A pixel absent in any band of the formula is absent, also where a comparison would have made it false."""
    assert np.isnan(compute("where(a > 1, a, b)", a=[NAN, 2], b=[5, NAN])).all()
    assert compute("min(a, b)", a=[1, 2], b=[3, 1]) == [1, 1]
    assert np.isnan(compute("max(a, b, 7)", a=[NAN], b=[3])).all()


def test_integers_divide_and_compare_as_numbers() -> None:
    """1 / 2 is a half; a comparison alone gives 1 and 0; logic is & | ~."""
    assert compute("a * (1 / 2)", a=[3]) == [1.5]
    assert compute("a > 2", a=[1, 3]) == [0, 1]
    assert compute("where((a > 1) & ~(a >= 3), 10, 20)", a=[1, 2, 3]) == [20, 10, 20]
    assert compute("max(a, 2, 3) - min(a, 2)", a=[1, 5]) == [2, 3]
    assert compute("-a % 3 + abs(-2)", a=[4]) == [compute("-a % 3", a=[4])[0] + 2]


def test_outputs_are_split_by_semicolons() -> None:
    """Each part is one output with its own bands, in order of first use; a last empty part is forgiven."""
    formulas = parse_formulas("p", "b2 - B1; b2 ;")
    assert [(formula.text, formula.bands) for formula in formulas] == [("b2 - B1", ("b2", "B1")), ("b2", ("b2",))]


def test_bands_may_be_named_like_functions_or_constants() -> None:
    """A band called sqrt, pi or v1 is that band."""
    assert compute("sqrt + pi + v1 * v0", sqrt=[1], pi=[2], v1=[3], v0=[4]) == [15]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "formula"),
        ("a; ; b", "formula"),
        ("(a - b", "never closed"),
        ("1 + 2", "no band name"),
        ("__import__('os')", "function '__import__'"),
        ("a.real", "'a.real'"),
        ("a[0]", "'a[0]'"),
        ("a if b else 1", "'a if b else 1'"),
        ("(lambda: a)()", "function"),
        ("[a for a in b]", "'[a for a in b]'"),
        ("a + 'x'", "\"'x'\""),
        ("a + True", "True"),
        ("a + 1j", "1j"),
        ("a and b", "'and' or 'or'"),
        ("a < b < 3", "chain"),
        ("a & b", "comparison is needed"),
        ("(a > 1) + 1", "number is needed"),
        ("where(a, 1, 2)", "comparison is needed"),
        ("where(a > 1, 2)", "where takes 3"),
        ("min(a)", "min takes two or more"),
        ("mean(a)", "function 'mean'"),
        ("a // 2", "'a // 2'"),
        ("a @ b", "'a @ b'"),
        ("a + 1e999", "inf"),
        ("b-8a", "formula"),
        ("a := 3", "formula"),
        ("a\x00", "formula"),
        ("+".join(["a"] * 1900), "formula"),
        ("(" * 300 + "a" + ")" * 300, "formula"),
        ("a" * 5000, "5000 characters"),
    ],
)
def test_formulas_are_refused_with_what_was_found_and_what_is_allowed(text: str, found: str) -> None:
    """Anything but arithmetic over bands stops at configuration, naming product, formula, finding and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        parse_formulas("ndvi", text)
    assert "product ndvi" in caught.value.message
    assert found in caught.value.message
    assert "allowed:" in caught.value.message
