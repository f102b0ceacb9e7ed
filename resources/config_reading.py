"""How a configuration is read and, when it cannot be used, explained.

Belongs here: environment variables laid over the file, and messages that name key, what was found and what is allowed. What can
be set is in `resources.config`.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from resources.errors import ConfigurationError

PREFIX = "TILEWRIGHT_"
# values of these may hold passwords or tokens: an error says that they are wrong, not what they are
_SECRET_KEYS = {("alerts", "urls"), ("ledger", "url")}
_PLAIN_WORDS = {
    "string_pattern_mismatch": "must be a letter followed by at most 62 letters, digits, '_' or '-'",
    "tuple_type": "must be a list; tables of a list are written with two brackets, as in [[products]]",
    "model_type": "must be a table",
}


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


def explain(path: Path, error: ValidationError, model: type[BaseModel]) -> str:
    """All that is wrong, one line a key: what was found and what is allowed."""
    items = error.errors(include_url=False)
    broken_inside = {item["loc"][0] for item in items if len(item["loc"]) > 1}
    lines = []
    for item in items:
        location, found = item["loc"], item.get("input")
        if item["type"] == "too_short" and location[:1] and location[0] in broken_inside:
            continue  # pydantic counts only the tables that are right
        message = _PLAIN_WORDS.get(item["type"], item["msg"].removeprefix("Value error, "))
        if item["type"] == "extra_forbidden":
            message = f"no such key; allowed: {_allowed_keys(model, location[:-1])}"
        elif item["type"] == "missing":
            message = "is required"
        is_secret = tuple(part for part in location if isinstance(part, str)) in _SECRET_KEYS
        is_shown = item["type"] != "missing" and not is_secret and not _is_structure(found)
        lines.append(f"  {'.'.join(map(str, location)) or 'configuration'}: {message}{f' (found {found!r})' if is_shown else ''}")
    return f"{path}: the configuration cannot be used:\n" + "\n".join(lines)


def _is_structure(found: Any) -> bool:
    return isinstance(found, Mapping) or (isinstance(found, list | tuple) and any(isinstance(item, Mapping) for item in found))


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    here: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        annotation = here.model_fields[part].annotation
        here = next((kind for kind in _flatten(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if here is None:
            return "none"
    return ", ".join(sorted(here.model_fields))


def _flatten(annotation: Any) -> list[Any]:
    arguments = getattr(annotation, "__args__", ())
    return [annotation, *(inner for argument in arguments for inner in _flatten(argument))]
