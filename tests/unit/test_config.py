"""Bad configuration stops at load and says file, key, what was found and what is allowed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resources.config import Config, load_config
from resources.errors import ConfigurationError, ErrorKind

GOOD = """
[window]
start = 2024-06-01

[grid]
tms = "WebMercatorQuad"
zoom = 12
area = "-105.9,40.1,-105.4,40.6"

[[products]]
name = "true_colour"
bands = ["red", "green", "blue"]

[[products]]
name = "ndvi"
expression = "(nir - red) / (nir + red)"
dtype = "float32"
nodata = "nan"
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TILEWRIGHT_") and name != "TILEWRIGHT_CI"]:
        monkeypatch.delenv(name)


def load(folder: Path, text: str = GOOD) -> Config:
    path = folder / "tilewright.toml"
    path.write_text(text, "utf-8")
    return load_config(path)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text)
    assert caught.value.kind is ErrorKind.BAD_CONFIGURATION
    return str(caught.value)


def test_a_small_configuration_loads_with_defaults(tmp_path: Path) -> None:
    """Window, grid and products suffice; all state hangs from the file's folder."""
    config = load(tmp_path)
    assert [product.name for product in config.products] == ["true_colour", "ndvi"]
    assert config.window.start == datetime(2024, 6, 1, tzinfo=UTC)
    assert {config.state_dir.parent, config.store_dir.parent, config.source_dir.parent} == {tmp_path}
    assert config.ledger_url == f"sqlite:///{tmp_path}/.tilewright/ledger.sqlite"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param("zoom = 12", "zooom = 12", ["grid.zooom", "no such key", "zoom", "12"], id="typo in a key"),
        pytest.param(
            "[window]", "[windows]", ["windows: no such key", "window: is required", "allowed: alerts"], id="typo in a section"
        ),
        pytest.param(
            'name = "ndvi"',
            'nmae = "ndvi"',
            ["nmae of the 2nd of products", "on_rejected_scene", "'ndvi'"],
            id="typo in a product",
        ),
        pytest.param("zoom = 12", "zoom = 31", ["grid.zoom", "30", "found 31"], id="zoom too deep"),
        pytest.param("zoom = 12", "zoom = -1", ["grid.zoom", "0", "found -1"], id="zoom negative"),
        pytest.param("zoom = 12", "zoom = 12\ntile_px = -256", ["grid.tile_px", "16", "found -256"], id="negative tile size"),
        pytest.param("zoom = 12", "zoom = 12\ntile_px = 250", ["grid.tile_px", "16", "found 250"], id="tile size not of 16"),
        pytest.param("zoom = 12", "zoom = 12\nmetatile = 0", ["grid.metatile", "1", "found 0"], id="empty metatile"),
        pytest.param(
            'tms = "WebMercatorQuad"\nzoom = 12', 'crs = "EPSG:32632"\nresolution = -30', ["grid.resolution", "-30"], id="size"
        ),
        pytest.param(
            "zoom = 12", 'zoom = 12\ncrs = "EPSG:3857"', ["grid: give either tms and zoom, or crs"], id="two kinds of grid"
        ),
        pytest.param("zoom = 12", "", ["grid: tms needs zoom"], id="no zoom"),
        pytest.param(
            'name = "ndvi"', 'name = "True_Colour"', ["products", "'true_colour'", "'True_Colour'", "differ"], id="same name"
        ),
        pytest.param(
            'name = "ndvi"', 'name = "../ndvi"', ["name of the 2nd of products", "letter", "'../ndvi'"], id="name that is a path"
        ),
        pytest.param(
            'nodata = "nan"', "nodata = 3\nbands = ['a']", ["products.ndvi: give either bands or expression"], id="two contents"
        ),
        pytest.param('dtype = "float32"', 'dtype = "uint8"', ["products.ndvi: nodata = nan", "uint8"], id="nan in whole numbers"),
        pytest.param('dtype = "float32"', 'dtype = "complex64"', ["products.ndvi.dtype", "'float32'", "'complex64'"], id="dtype"),
        pytest.param('nodata = "nan"', 'compositing = "highest"', ["products.ndvi", "highest", "by_band"], id="highest of what"),
        pytest.param("2024-06-01", '"soon"', ["window.start", "'soon'"], id="time that is none"),
        pytest.param("2024-06-01", "20240601", ["window.start", "20240601", "2024-06-01"], id="number for a time"),
        pytest.param(
            "2024-06-01", "2024-06-01\nend = 2024-06-01", ["window: end (2024-06-01", "after start"], id="empty calendar"
        ),
        pytest.param("[[products]]", "[products]", ["cannot be read as TOML"], id="table twice"),
        pytest.param("[window]", "[window", ["cannot be read as TOML", "line 2"], id="bad TOML"),
    ],
)
def test_what_is_wrong_is_said_by_key(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    """The message names the file, the key, what was found and what is allowed."""
    assert old in GOOD
    message = refusal(tmp_path, GOOD.replace(old, new))
    assert str(tmp_path / "tilewright.toml") in message
    assert not [word for word in words if word not in message], message


INSPECTIONS = """
pipeline = "inspections"
[window]
start = 2024-06-01
[[fields]]
name = "site_m"
label = "Site"
[[fields]]
name = "height_m"
label = "Height"
type = "number"
"""
PRODUCT = GOOD + "[[products]]\nname = 'evi'\nbands = ['a']\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD + "[source]\npatterns = '*.tif'", "source.patterns: must be a list: write [\"*.tif\"] (found '*.tif')"),
        (GOOD + "[source]\nignore = ['a', 3]", "the 2nd of source.ignore: must be a text, in quotes (found 3)"),
        (GOOD + "[alerts]\nurls = [3]", "the 1st of alerts.urls: must be a text, in quotes"),
        (GOOD + "[executor]\nworkers = 0", "executor.workers: must be at least 1 (found 0)"),
        (GOOD + "[store]\nuri = 3", "store.uri: must be a text, in quotes (found 3)"),
        (
            PRODUCT + "masks = 'x'",
            "products.evi.masks: must be a list of tables, each under two brackets, as in [[products.masks]]",
        ),
        (PRODUCT + "masks = [{ band = 'q', bits = 3 }]", "bits of the 1st of products.evi.masks: must be a list: write [3]"),
        (PRODUCT + "nodata = 'x'", "products.evi.nodata: must be a number or 'nan' (found 'x')"),
        (INSPECTIONS + "min = 'five'", "fields.height_m.min: must be a number (found 'five')"),
        (INSPECTIONS + "units = 3", "fields.height_m.units: must be a table, as in [fields.units] (found 3)"),
        (INSPECTIONS + "[[fields]]\nlabel = 'x'", "name of the 3rd of fields: is required"),
        (INSPECTIONS + "[[fields]]\nname = 'height_m'\nlabel = 3", "label of the 3rd of fields: must be a text, in quotes"),
        (INSPECTIONS + "[[fields]]\nname = 'Height'\nlabel = 'x'", "fields.Height.name: must be a small letter followed by"),
        (INSPECTIONS + "[findings]\ncolumns = { a = 'b' }", "findings.columns: must hold at least 2 items"),
        ("pipeline = 'inspections'\nwindow = 3", "window: must be a table, as in [window] (found 3)"),
        ("pipeline = 'inspections'\nfields = 3", "fields: must be a list of tables, each under two brackets, as in [[fields]]"),
    ],
)
def test_a_place_has_a_name_and_the_remedy_fits_it(tmp_path: Path, text: str, line: str) -> None:
    """Items of lists go by their names, else counted from 1; what to write is shown for what is allowed there."""
    message = refusal(tmp_path, text)
    assert f"\n  {line}" in message, message
    assert "Input should" not in message


def test_all_faults_are_said_at_once(tmp_path: Path) -> None:
    """Two faults are two lines, and nothing is added that follows only from them."""
    message = refusal(tmp_path, GOOD.replace("zoom = 12", "zoom = 99").replace('name = "ndvi"', 'name = "a b"'))
    assert len(message.splitlines()) == 3, message


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """The message names the file looked for and how to name another."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: no such configuration file.*--config"):
        load_config(tmp_path / "nowhere.toml")


def test_a_folder_for_a_file_is_said(tmp_path: Path) -> None:
    """A folder given as configuration is refused with its path."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path)


def test_bytes_that_are_no_text_are_said(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused as TOML."""
    (tmp_path / "tilewright.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read as TOML"):
        load_config(tmp_path / "tilewright.toml")


def test_the_environment_overrides_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested key, a list, a whole section, a product by name and one by number."""
    monkeypatch.setenv("TILEWRIGHT_GRID__ZOOM", "9")
    monkeypatch.setenv("TILEWRIGHT_SOURCE__BANDS", '["red", "nir"]')
    monkeypatch.setenv("TILEWRIGHT_RETRY", '{"attempts_max": 7}')
    monkeypatch.setenv("TILEWRIGHT_PRODUCTS__NDVI__VERSION", "2")
    monkeypatch.setenv("TILEWRIGHT_PRODUCTS__0__BANDS", '["nir", "red", "green"]')
    config = load(tmp_path)
    assert (config.grid.zoom, config.grid.tms) == (9, "WebMercatorQuad")
    assert config.source.bands == ("red", "nir")
    assert config.retry.attempts_max == 7
    assert config.product("ndvi").version == "2"
    assert config.product("true_colour").bands == ("nir", "red", "green")


@pytest.mark.parametrize("value", ["json://127.0.0.1:9/alerts", '["json://127.0.0.1:9/alerts"]'])
def test_one_alert_url_needs_no_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The URL may stand in the variable as it is, or in a JSON list."""
    monkeypatch.setenv("TILEWRIGHT_ALERTS__URLS", value)
    assert load(tmp_path).alerts.urls == ("json://127.0.0.1:9/alerts",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TILEWRIGHT_RETRY__ATTEMPTS_MAXX", "9", ["retry.attempts_maxx", "attempts_max", "'9'"]),
        ("TILEWRIGHT_RETRY__ATTEMPTS_MAX", "many", ["retry.attempts_max", "'many'"]),
        ("TILEWRIGHT_RETRIES__ATTEMPTS_MAX", "9", ["TILEWRIGHT_RETRIES__ATTEMPTS_MAX", "RETRY"]),
        ("TILEWRIGHT_STATES", "elsewhere", ["TILEWRIGHT_STATES", "STATE"]),
        ("TILEWRIGHT_WINDOW", "{broken", ["window", "'{broken'"]),
        ("TILEWRIGHT_PRODUCTS__EVI__VERSION", "2", ["TILEWRIGHT_PRODUCTS__EVI", "ndvi", "true_colour"]),
        ("TILEWRIGHT_PRODUCTS__7__VERSION", "2", ["TILEWRIGHT_PRODUCTS__7", "0, 1"]),
        ("TILEWRIGHT_PRODUCTS__NDVI", "2", ["TILEWRIGHT_PRODUCTS__NDVI", "VERSION"]),
    ],
)
def test_a_bad_variable_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: list[str]
) -> None:
    """A variable that names no key, or holds what the key cannot, never passes in silence."""
    monkeypatch.setenv(name, value)
    message = refusal(tmp_path, GOOD)
    assert not [word for word in words if word not in message], message


def test_a_refusal_does_not_repeat_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alert URLs and the ledger's URL may hold passwords; the message names the key only."""
    monkeypatch.setenv("TILEWRIGHT_ALERTS__URLS", '{"slack": "tokenA-tokenB"}')
    message = refusal(tmp_path, GOOD + '\n[ledger]\nurl = ["postgresql://me:hunter2@db"]\n')
    assert "alerts.urls" in message
    assert "ledger.url" in message
    assert "token" not in message
    assert "hunter2" not in message


def test_two_projects_do_not_meet(tmp_path: Path) -> None:
    """Two configurations in two folders share neither ledger, outputs nor Dagster home."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    one, two = load(first), load(second)
    for attribute in ("state_dir", "store_dir", "dagster_home", "ledger_url"):
        assert getattr(one, attribute) != getattr(two, attribute)
