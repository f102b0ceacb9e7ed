"""How a configuration is read and, when it cannot be used, explained.

Belongs here: environment variables laid over the file, and messages that name key, what was found and what is allowed. What can
be set is in `resources.config`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PREFIX = "TILEWRIGHT_"
# values of these may hold passwords or tokens: an error says that they are wrong, not what they are
_SECRET_KEYS = {("alerts", "urls"), ("ledger", "url")}
_TEXT, _NUMBER, _SWITCH, _MOMENT = (
    "must be a text, in quotes",
    "must be a number",
    "must be true or false",
    "must be a date or a time, e.g. 2024-06-01 or 2024-06-01T00:00:00Z",
)
# pydantic's kinds of error; what they tell besides is filled in
_WORDS = {
    "missing": "is required",
    "string_type": _TEXT,
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must not be empty",
    "too_short": "must hold at least {min_length} items",
    "too_long": "must hold at most {max_length} items",
    "string_pattern_mismatch": "must fit {pattern}",
}
_PATTERN_WORDS = {
    "^[A-Za-z][A-Za-z0-9_-]{0,62}$": "must be a letter followed by at most 62 letters, digits, '_' or '-'",
    "^[a-z][a-z0-9_]{0,62}$": "must be a small letter followed by at most 62 small letters, digits or '_'",
}
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Environment(EnvSettingsSource):
    """`TILEWRIGHT_SECTION__KEY` variables; of products `..._PRODUCTS__NDVI__VERSION` or `..._PRODUCTS__0__VERSION`."""

    def __init__(self, settings_cls: type[BaseSettings], written: Mapping[str, Any]) -> None:
        super().__init__(settings_cls)
        self._written = written

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """JSON where it is JSON; otherwise the text itself, for the model to judge."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value

    def __call__(self) -> dict[str, Any]:
        """The values that the environment sets. Raises `ConfigurationError` for a variable that names no key."""
        _refuse_unknown_variables(self.settings_cls)
        values = super().__call__()
        if isinstance(values.get("products"), dict):
            values["products"] = _overlay_products(self._written.get("products"), values["products"])
        return values


def top_level(key: str, written: Mapping[str, Any], *, default: Any) -> Any:
    """A key of the top level as it will be read: the environment's, else the file's, else `default`."""
    for name, value in os.environ.items():
        if name.upper() == f"{PREFIX}{key.upper()}":
            return value
    return written.get(key, default)


def _refuse_unknown_variables(model: type[BaseSettings]) -> None:
    for name in os.environ:
        if not name.upper().startswith(PREFIX):
            continue
        section = name[len(PREFIX) :].split("__")[0].lower()
        if section in model.model_fields:
            continue
        if "__" in name or difflib.get_close_matches(section, model.model_fields, cutoff=0.8):
            raise ConfigurationError(
                f"environment variable {name}: no such key {section!r}; allowed after {PREFIX}: "
                f"{', '.join(sorted(key.upper() for key in model.model_fields))}"
            )


def _overlay_products(written: Any, overrides: Mapping[str, Any]) -> list[Any]:
    products = [dict(item) if isinstance(item, Mapping) else item for item in written] if isinstance(written, list) else []
    places = {str(item.get("name", "")).casefold(): item for item in products if isinstance(item, dict)}
    places |= {str(index): item for index, item in enumerate(products) if isinstance(item, dict)}
    for which, values in overrides.items():
        variable = f"environment variable {PREFIX}PRODUCTS__{which.upper()}"
        if which.casefold() not in places:
            raise ConfigurationError(f"{variable}: no such product; allowed: {', '.join(sorted(places)) or 'none'}")
        if not isinstance(values, Mapping):
            raise ConfigurationError(f"{variable}: must go on with a key of the product, as in ..._{which.upper()}__VERSION")
        places[which.casefold()].update({key: _from_json(value) for key, value in values.items()})
    return products


def _from_json(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def explain(path: Path, error: ValidationError, model: type[BaseModel], written: Mapping[str, Any]) -> str:
    """All that is wrong, one line a key: what was found and what is allowed. `written` is the file: it names items."""
    items = error.errors(include_url=False)
    lines: dict[tuple[int | str, ...], tuple[str, str, str]] = {}
    for item in items:
        location = item["loc"]
        if item["type"] == "too_short" and any(_is_inside(other["loc"], location) for other in items):
            continue  # pydantic counts only the tables that are right
        place = _place_of(model, location, written)
        is_secret = tuple(part for part in location if isinstance(part, str)) in _SECRET_KEYS
        is_shown = item["type"] != "missing" and not is_secret and not _is_structure(item["input"])
        found = f" (found {item['input']!r})" if is_shown else ""
        message = _message(item, place, is_secret=is_secret)
        if place.location in lines:  # a key that may be one thing or another is one line
            message = f"{lines[place.location][1]} or {message.removeprefix('must be ')}"
        lines[place.location] = place.name, message, found
    said = [f"  {name or 'configuration'}: {message}{found}" for name, message, found in lines.values()]
    return f"{path}: the configuration cannot be used:\n" + "\n".join(said)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an error is: the key's name for people, the TOML name of its table, what may be there and one level above."""

    location: tuple[int | str, ...]
    name: str
    table: str
    allowed: Any
    above: Any


def _place_of(model: type[BaseModel], location: Sequence[int | str], written: Mapping[str, Any]) -> _Place:
    place, value = _Place((), "", "", model, None), None
    for number, part in enumerate(location):
        following = _allowed_below(place.allowed, part)
        if following is None and not _models(place.allowed):
            continue  # pydantic's name for one of several types
        if isinstance(part, int):
            name, table = _name_of_item(place.name, part, value if _models(following) else None), place.table
        else:
            name = f"{part} of {place.name}" if " of " in place.name else f"{place.name}.{part}".removeprefix(".")
            table = f"{place.table}.{part}".removeprefix(".")
        place = _Place((*place.location, part), name, table, following, place.allowed)
        value = top_level(str(part), written, default=None) if number == 0 else _value_below(value, part)
    return place


def _message(item: ErrorDetails, place: _Place, *, is_secret: bool) -> str:
    kind, found = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"no such key; allowed: {', '.join(sorted(_models(place.above)[0].model_fields))}"
    if kind == "tuple_type":
        return _list_message(place, None if is_secret else found)
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        is_item = isinstance(item["loc"][-1], int)
        return f"must be a table, as in {f'[[{place.table}]]' if is_item else f'[{place.table}]'}"
    context = {name: _plain_number(value) for name, value in item.get("ctx", {}).items()}
    if context.get("pattern") in _PATTERN_WORDS:
        return _PATTERN_WORDS[context["pattern"]]
    if kind == "too_short" and context["min_length"] == 1:
        return "must not be empty"
    if kind in _WORDS:
        return _WORDS[kind].format(**context)
    return item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _list_message(place: _Place, found: Any) -> str:
    parts = next(get_args(kind) for kind in _alternatives(place.allowed) if get_origin(kind) is tuple)
    if _models(parts[0]):
        return f"must be a list of tables, each under two brackets, as in [[{place.table}]]"
    if Ellipsis not in parts:
        return f"must be a list of {len(parts)}"
    is_numeric = {int, float} & set(_alternatives(parts[0]))
    if isinstance(found, int | float if is_numeric else str):
        return f"must be a list: write {json.dumps([found], ensure_ascii=False)}"
    return f"must be a list of {'numbers' if is_numeric else 'texts, each in quotes'}"


def _name_of_item(name: str, index: int, items: Any) -> str:
    """An item by the name it gives itself, if no other has that; else by its place, counted from 1."""
    names = [_value_below(item, "name") for item in items] if isinstance(items, list) else []
    own = _value_below(names, index)
    if isinstance(own, str) and _PLAIN_NAME.fullmatch(own) and names.count(own) == 1:
        return f"{name}.{own}"
    number = index + 1
    ending = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"the {number}{ending} of {name}"


def _alternatives(annotation: Any) -> list[Any]:
    """A type, or those of a union, without what is annotated to them."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for argument in get_args(annotation) for kind in _alternatives(argument)]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [kind for kind in _alternatives(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _allowed_below(annotation: Any, part: int | str) -> Any:
    """What may be at a part of a place; None where the part is no key and no item."""
    for kind in _alternatives(annotation):
        arguments = get_args(kind)
        if isinstance(part, int) and get_origin(kind) is tuple:
            return arguments[0] if Ellipsis in arguments else arguments[min(part, len(arguments) - 1)]
        if isinstance(part, str) and get_origin(kind) is dict:
            return arguments[1]
    fields = {name: field for kind in _models(annotation) for name, field in kind.model_fields.items()}
    return fields[part].annotation if part in fields else None


def _value_below(value: Any, part: int | str) -> Any:
    try:
        return value[part]
    except (LookupError, TypeError):
        return None


def _is_inside(location: Sequence[int | str], other: Sequence[int | str]) -> bool:
    return len(location) > len(other) and tuple(location[: len(other)]) == tuple(other)


def _is_structure(found: Any) -> bool:
    return isinstance(found, Mapping) or (isinstance(found, list | tuple) and any(isinstance(item, Mapping) for item in found))


def _plain_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
