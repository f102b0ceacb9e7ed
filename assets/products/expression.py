"""Formulas over band names, e.g. `(nir - red) / (nir + red)`; `;` separates the outputs.

Formulas come from a configuration file and are checked against a short list of what may stand in them, before anything is
computed. All numbers are 64-bit floats. A pixel is absent where any band of its formula is absent, and where the result is
no finite number (division by zero, the logarithm of a negative number).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.errors import ConfigurationError

_FUNCTIONS: dict[str, int] = {
    "where": 3,
    "abs": 1,
    "sqrt": 1,
    "exp": 1,
    "log": 1,
    "log10": 1,
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "arctan": 1,
    "arctan2": 2,
    "floor": 1,
    "ceil": 1,
}
_MANY = ("min", "max")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod)
_LOGIC = (ast.BitAnd, ast.BitOr)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_ALLOWED = (
    "band names, numbers, + - * / ** %, comparisons, & | ~ between comparisons, "
    f"{', '.join(sorted([*_FUNCTIONS, *_MANY]))}, parentheses; ';' between outputs"
)
_LENGTH_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Formula:
    """One output: its text as written, the bands it reads, and what is evaluated (over `v0`, `v1`, ... for those bands)."""

    text: str
    bands: tuple[str, ...]
    compiled: str


@lru_cache(maxsize=256)
def parse_formulas(product: str, text: str) -> tuple[Formula, ...]:
    """The formulas of `text`. Raises `ConfigurationError` naming the product, the formula, what was found and what is allowed."""
    if len(text) > _LENGTH_MAX:
        raise ConfigurationError(f"product {product}: expression of {len(text)} characters; allowed: {_LENGTH_MAX}")
    parts = [part.strip() for part in text.split(";")]
    if parts[-1] == "" and len(parts) > 1:
        parts.pop()
    return tuple(_parse(product, part) for part in parts)


def _parse(product: str, text: str) -> Formula:
    try:
        tree = ast.parse(text, mode="eval")
        bands: dict[str, str] = {}
        body, is_logic = _translate(tree.body, bands)
        if not bands:
            raise _RefusedError("no band name in it")
        if is_logic:
            body = _call("where", [body, ast.Constant(1.0), ast.Constant(0.0)])
        compiled = ast.unparse(ast.fix_missing_locations(body))
        formula = Formula(text, tuple(bands), compiled)
        evaluate(formula, [np.ones((1, 1))] * len(bands))
    except _RefusedError as refused:
        raise ConfigurationError(f"product {product}: expression {text!r}: {refused}; allowed: {_ALLOWED}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigurationError(
            f"product {product}: expression {text!r} is not a formula ({detail}); allowed: {_ALLOWED}"
        ) from None
    return formula


class _RefusedError(Exception):
    """Something that may not stand in a formula."""


def _translate(node: ast.expr, bands: dict[str, str]) -> tuple[ast.expr, bool]:
    """The node over `v0`, `v1`, ... with all numbers as floats, and whether it is true-or-false."""
    match node:
        case ast.Name(id=name):
            return ast.Name(bands.setdefault(name, f"v{len(bands)}"), ast.Load()), False
        case ast.Constant(value=bool()):
            raise _RefusedError(f"found {node.value!r}")
        case ast.Constant(value=int() | float() as value):
            if not np.isfinite(float(value)):
                raise _RefusedError(f"found the number {value!r}")
            return ast.Constant(float(value)), False
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return ast.UnaryOp(node.op, _number(operand, bands)), False
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return ast.UnaryOp(node.op, _logic(operand, bands)), True
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            return ast.BinOp(_number(left, bands), op, _number(right, bands)), False
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _LOGIC):
            return ast.BinOp(_logic(left, bands), op, _logic(right, bands)), True
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARISONS):
            return ast.Compare(_number(left, bands), [op], [_number(right, bands)]), True
        case ast.Compare() if len(node.ops) > 1:
            raise _RefusedError("found a chain of comparisons; write (a < b) & (b < c)")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _MANY and len(args) > 1:
            return _extreme(name, [_number(item, bands) for item in args]), False
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if _FUNCTIONS.get(name) == len(args):
            first = _logic(args[0], bands) if name == "where" else _number(args[0], bands)
            return _call(name, [first, *(_number(item, bands) for item in args[1:])]), False
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS or name in _MANY:
            raise _RefusedError(f"{name} takes {_FUNCTIONS.get(name, 'two or more')} argument(s)")
        case ast.Call():
            raise _RefusedError(f"found the function {ast.unparse(node.func)!r}")
        case ast.BoolOp():
            raise _RefusedError("found 'and' or 'or'; write & or | between comparisons in parentheses")
    raise _RefusedError(f"found {ast.unparse(node)!r}")


def _number(node: ast.expr, bands: dict[str, str]) -> ast.expr:
    translated, is_logic = _translate(node, bands)
    if is_logic:
        raise _RefusedError(f"found the comparison {ast.unparse(node)!r} where a number is needed; use where(...)")
    return translated


def _logic(node: ast.expr, bands: dict[str, str]) -> ast.expr:
    translated, is_logic = _translate(node, bands)
    if not is_logic:
        raise _RefusedError(f"found the number {ast.unparse(node)!r} where a comparison is needed")
    return translated


def _call(name: str, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _extreme(name: str, arguments: list[ast.expr]) -> ast.expr:
    better: ast.cmpop = ast.Lt() if name == "min" else ast.Gt()
    result = arguments[0]
    for item in arguments[1:]:
        result = _call("where", [ast.Compare(result, [better], [item]), result, item])
    return result


def evaluate(formula: Formula, values: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """The formula over arrays `(y, x)` of its bands in order, NaN where absent; the result is NaN where it is absent."""
    import numexpr  # heavy, and only products with a formula need it

    numexpr.set_num_threads(1)
    names: Mapping[str, NDArray[np.float64]] = {f"v{i}": item.astype(np.float64, copy=False) for i, item in enumerate(values)}
    # a formula may have turned an absent number into a present one: where(nan > 1, a, b) is b
    absent = np.zeros(values[0].shape, dtype=bool)
    for item in names.values():
        absent |= np.isnan(item)
    with np.errstate(all="ignore"):
        computed = numexpr.evaluate(formula.compiled, local_dict=dict(names), global_dict={})
    result = np.array(np.broadcast_to(computed, values[0].shape), dtype=np.float64)
    result[absent | ~np.isfinite(result)] = np.nan
    return result
