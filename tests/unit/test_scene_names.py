"""The pattern language: what file names say, and what a wrong pattern is told."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.scenes.naming import DoneMarker, NamePattern, compile_patterns, first_match
from assets.sources.names import path_of, relative_of, uri_of
from resources.errors import ConfigurationError

COLLECTION_1 = "{sensor}_{level}_{path_row}_{date:%Y%m%d}_{made}_{collection}_{tier}_{band}.TIF"


def day(year: int, month: int, date: int, *clock: int) -> datetime:
    return datetime(year, month, date, *clock, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "path", "scene", "band", "acquired"),
    [
        (COLLECTION_1, "LC08_L1TP_195025_20130707_20170503_01_T1_B10.TIF", "LC08_L1TP_195025_20130707_20170503_01_T1", "B10",
         day(2013, 7, 7)),
        (COLLECTION_1, "LC08_L1TP_195025_20130707_20170503_01_T1_BQA.TIF", "LC08_L1TP_195025_20130707_20170503_01_T1", "BQA",
         day(2013, 7, 7)),
        (COLLECTION_1, "LE07_L1TP_195025_20010730_20170204_01_T1_B6_VCID_1.TIF", "LE07_L1TP_195025_20010730_20170204_01_T1",
         "B6_VCID_1", day(2001, 7, 30)),
        ("LT5{path_row:6}{date:%Y%j}{station}_{band}.tif", "LT51670552010352MLK00_B1.tif", "LT51670552010352MLK00", "B1",
         day(2010, 12, 18)),
        ("LT5{path_row}{date:%Y%j}{station}_{band}.tif", "LT51670552010352MLK00_B1.tif", "LT51670552010352MLK00", "B1",
         day(2010, 12, 18)),
        ("{tile}_{date:%Y%m%dT%H%M%S}_{band}.jp2", "T32TMT_20200101T101010_B04.jp2", "T32TMT_20200101T101010", "B04",
         day(2020, 1, 1, 10, 10, 10)),
        ("{tile}_{date:%Y%m%dT%H%M%S}_{band}_{size}.jp2", "T32TMT_20200101T101010_B04_10m.jp2", "T32TMT_20200101T101010_10m",
         "B04", day(2020, 1, 1, 10, 10, 10)),
        ("{scene}_{band}.tif", "north_field_red.tif", "north_field", "red", None),
        ("{scene}.tif", "a/b/plain.tif", "plain", None, None),
        ("{scene}/{band}.tif", "2020/S2A/B04.tif", "S2A", "B04", None),
        ("{scene}/{scene}_{band}.tif", "S/S_B1.tif", "S", "B1", None),
        ("{date:%Y%m%d}.tif", "20200229.tif", "20200229", None, day(2020, 2, 29)),
        ("{{{scene}}}.tif", "{x}.tif", "x", None, None),
        ("{scene}.tif", "we\nird \"q' é🛰.tif", "we\nird \"q' é🛰", None, None),
        ("{scene}.tif", "a..b.tif", "a..b", None, None),
        ("{scene}", "noextension", "noextension", None, None),
    ],
)  # fmt: skip
def test_a_name_says_scene_band_and_date(
    pattern: str, path: str, scene: str, band: str | None, acquired: datetime | None
) -> None:
    """A name gives the scene the file belongs to, the band it holds, and when the scene was acquired, in UTC."""
    found = NamePattern(pattern).match(path)
    assert found is not None
    assert (found.scene_id, found.band, found.acquired) == (scene, band, acquired)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("{scene}.TIF", "a.tif"),
        ("{scene}.tif", "a.TIF"),
        ("{scene}.tif", "a.tif.aux.xml"),
        ("{scene}.tif", ".tif"),
        ("{scene}/{scene}_{band}.tif", "S/T_B1.tif"),
        ("{scene}/{band}.tif", "B04.tif"),
        ("{scene}_{date:%Y%m%d}.tif", "a_20201301.tif"),
        ("{path_row:6}.tif", "12345.tif"),
    ],
)
def test_a_name_that_differs_does_not_match(pattern: str, path: str) -> None:
    """Letter case, a repeated part, a fixed width and the parts of a date must all be met."""
    assert NamePattern(pattern).match(path) is None


def test_a_date_outside_the_calendar_is_kept_as_text() -> None:
    """The 30th of February matches and gives no time, so that the scene is listed as undated instead of being lost."""
    found = NamePattern("{scene}_{date:%Y%m%d}.tif").match("a_20200230.tif")
    assert found is not None
    assert (found.acquired, found.date_text) == (None, "20200230")


def test_the_first_pattern_that_matches_speaks() -> None:
    """Patterns are tried in their order."""
    patterns = compile_patterns(["{scene}_{band}.tif", "{scene}.tif"])
    both, whole = first_match(patterns, "a_b.tif"), first_match(patterns, "ab.tif")
    assert both is not None
    assert both.band == "b"
    assert whole is not None
    assert whole.band is None
    assert first_match(patterns, "a.png") is None


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("{scene", "brace at position 0"),
        ("scene}", "brace at position 5"),
        ("{date}_{scene}.tif", "{date} without a format"),
        ("{date:%Q}.tif", "%Q"),
        ("{date:%Y}.tif", "year and day"),
        ("{date:%Y%m%d}{date:%H}.tif", "twice"),
        ("{date:%Y%Y%m%d}.tif", "given twice"),
        ("{a b}.tif", "{a b}"),
        ("{}.tif", "{}"),
        ("{scene:wide}.tif", "{scene:wide}"),
        ("*.tif", "no wildcard"),
        ("/data/{scene}.tif", "relative path"),
        ("../{scene}.tif", "no file names"),
        ("", "relative path"),
    ],
)
def test_a_wrong_pattern_is_told_what_is_allowed(pattern: str, found: str) -> None:
    """A pattern that cannot be used stops at load, with its key, its text, what was found and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        NamePattern(pattern)
    message = str(caught.value)
    assert message.startswith(f"source.patterns: pattern {pattern!r}: ")
    assert found in message
    assert "allowed: {scene}, {band}, {date:%Y%m%d}" in message


@given(st.binary(min_size=1, max_size=60).filter(lambda raw: b"\0" not in raw and b"/" not in raw and raw not in (b".", b"..")))
def test_every_file_name_has_a_uri_of_its_own(raw: bytes) -> None:
    """Any bytes a file system allows become text that can be stored, and come back as they were, so no two files share a uri."""
    name = os.fsdecode(raw)
    uri = uri_of(name)
    assert uri.encode("utf-8").decode("utf-8") == uri
    assert uri.isprintable()
    assert relative_of(uri) == name
    assert os.fsencode(path_of(uri, "/source")) == b"/source/" + raw


@pytest.mark.parametrize("uri", ["../x.tif", "a/../../x.tif", "/etc/passwd", "a/..", "%2E%2E/x.tif", "a%00b.tif"])
def test_a_uri_cannot_leave_the_source(uri: str) -> None:
    """A uri that would lead out of the source folder is refused, also when its dots are escaped."""
    with pytest.raises(ValueError, match="leaves the source folder"):
        path_of(uri, "/source")


def test_a_done_marker_names_its_scene() -> None:
    """The marker's name is made from the scene's, and is recognised as no scene of its own."""
    marker = DoneMarker("{scene}.done")
    assert marker.name_for("S2A_1") == "S2A_1.done"
    assert marker.is_marker("S2A_1.done")
    assert not marker.is_marker("S2A_1.tif")


@pytest.mark.parametrize("text", ["done", "{scene}", "{scene}/{scene}", "{scene}_{band}.done", "x/{scene}.done", "*.done"])
def test_a_wrong_done_marker_is_told_what_is_allowed(text: str) -> None:
    """A done marker that is no file name around one {scene} stops at load."""
    with pytest.raises(ConfigurationError, match=r"source\.done_marker: found .*allowed: one file name with \{scene\}"):
        DoneMarker(text)
