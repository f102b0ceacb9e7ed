"""Alerts: each fact reaches each channel once, whatever is down meanwhile, and is said again only while it stands."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from resources.alerts import AlertFact, Channel, Severity, deliver, enqueue, keep_standing, open_channels
from resources.ledger import Ledger
from tests.support.ledgers import START, MovableClock
from tests.support.receiver import Receiver, receiving

DAY = timedelta(days=1)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on this machine."""
    with receiving() as running:
        yield running


def _fact(name: str = "check.tiles", *, repeats: bool = False, title: str = "A check failed") -> AlertFact:
    return AlertFact(fingerprint=name, title=title, body=f"{name}: what to do next", severity=Severity.FAILURE, repeats=repeats)


def test_a_fact_is_delivered_once(ledger: Ledger, receiver: Receiver) -> None:
    """The same fact enqueued at every tick reaches the receiver as one message, with its severity."""
    channels = open_channels([receiver.url])
    for tick in range(3):
        assert enqueue(ledger, [_fact()]) == (1 if tick == 0 else 0)
        deliver(ledger, channels, now=START + tick * DAY, repeat_every=DAY)
    assert receiver.titles() == ["A check failed"]
    assert receiver.messages[0]["type"] == "failure"
    assert receiver.messages[0]["message"] == "check.tiles: what to do next"


@pytest.mark.parametrize("fault", ["refused", "error", "hanging"])
def test_alerts_are_kept_while_the_channel_is_down(ledger: Ledger, receiver: Receiver, fault: str) -> None:
    """A receiver that refuses, fails or hangs loses nothing: all alerts arrive after it recovers, in order, once each."""
    enqueue(ledger, [_fact("a", title="first"), _fact("b", title="second")])
    channels = open_channels([receiver.url])
    if fault == "refused":
        with receiving() as gone:
            dead_url = gone.url
        report = deliver(ledger, open_channels([dead_url]), now=START, repeat_every=DAY)
    else:
        receiver.fail() if fault == "error" else receiver.hang()
        report = deliver(ledger, channels, now=START, repeat_every=DAY)
        assert receiver.attempts == 1, "a channel that failed is left alone for the rest of the call"
    assert (report.due, report.messages_sent, report.completed, report.waiting) == (2, 0, 0, 2)
    assert len(report.failed_channels) == 1
    receiver.recover()
    report = deliver(ledger, channels, now=START + DAY, repeat_every=DAY)
    assert (report.messages_sent, report.completed, report.waiting, report.failed_channels) == (2, 2, 0, ())
    deliver(ledger, channels, now=START + 2 * DAY, repeat_every=DAY)
    assert receiver.titles() == ["first", "second"]


def test_a_standing_fact_is_said_daily_and_then_falls_silent(ledger: Ledger, receiver: Receiver, clock: MovableClock) -> None:
    """While it stands it is said once a day, however often the sensor ticks; resolved, no more; back again, it is new."""
    channels = open_channels([receiver.url])
    counts = []
    for hour in range(0, 49, 3):
        clock.now = START + timedelta(hours=hour)
        keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="letter.")
        deliver(ledger, channels, now=clock.now, repeat_every=DAY)
        counts.append(len(receiver.messages))
    assert counts == [1] * 8 + [2] * 8 + [3]
    assert keep_standing(ledger, [], prefix="letter.") == (0, 1)
    clock.now = START + timedelta(days=9)
    deliver(ledger, channels, now=clock.now, repeat_every=DAY)
    assert len(receiver.messages) == 3
    assert keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="letter.") == (1, 0)
    deliver(ledger, channels, now=clock.now, repeat_every=DAY)
    assert len(receiver.messages) == 4
    keep_standing(ledger, [], prefix="letter.")
    keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="letter.")
    deliver(ledger, channels, now=clock.now + timedelta(hours=1), repeat_every=DAY)
    assert len(receiver.messages) == 5, "back again within the day it is said at once"


def test_resolving_touches_only_its_own_kind(ledger: Ledger, receiver: Receiver) -> None:
    """Resolved dead letters do not silence standing facts of another prefix."""
    keep_standing(ledger, [_fact("letter.1", repeats=True, title="letter")], prefix="letter.")
    keep_standing(ledger, [_fact("window.1", repeats=True, title="window")], prefix="window.")
    channels = open_channels([receiver.url])
    deliver(ledger, channels, now=START, repeat_every=DAY)
    keep_standing(ledger, [], prefix="letter.")
    deliver(ledger, channels, now=START + DAY, repeat_every=DAY)
    assert receiver.titles() == ["letter", "window", "window"]
    with pytest.raises(ValueError, match=r"begins with 'window\.'"):
        keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="window.")


def test_a_fact_resolved_while_the_channel_was_down_is_still_told_once(ledger: Ledger, receiver: Receiver) -> None:
    """What stood for an hour while the channel was down is told when it recovers, once."""
    channels = open_channels([receiver.url])
    keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="letter.")
    receiver.fail()
    deliver(ledger, channels, now=START, repeat_every=DAY)
    keep_standing(ledger, [], prefix="letter.")
    receiver.recover()
    for day in range(3):
        deliver(ledger, channels, now=START + day * DAY, repeat_every=DAY)
    assert len(receiver.messages) == 1


def test_a_broken_channel_neither_hides_nor_doubles(ledger: Ledger, receiver: Receiver) -> None:
    """With one channel down the other gets each alert once; the broken one gets what it missed when it recovers."""
    with receiving() as broken:
        broken.fail()
        channels = open_channels([broken.url, receiver.url])
        enqueue(ledger, [_fact("a", title="first"), _fact("b", title="second")])
        for tick in range(4):
            report = deliver(ledger, channels, now=START + timedelta(minutes=tick), repeat_every=DAY)
        assert receiver.titles() == ["first", "second"]
        assert report.waiting == 2
        broken.recover()
        report = deliver(ledger, channels, now=START + timedelta(hours=1), repeat_every=DAY)
        assert broken.titles() == ["first", "second"]
        assert receiver.titles() == ["first", "second"]
        assert (report.completed, report.waiting) == (2, 0)


def test_a_broken_channel_does_not_stop_the_daily_repeat_of_the_other(ledger: Ledger, receiver: Receiver) -> None:
    """A standing fact is said daily on the channel that works, however long the other has been down."""
    with receiving() as broken:
        broken.fail()
        channels = open_channels([broken.url, receiver.url])
        keep_standing(ledger, [_fact("letter.1", repeats=True)], prefix="letter.")
        for hour in range(0, 49, 6):
            deliver(ledger, channels, now=START + timedelta(hours=hour), repeat_every=DAY)
        assert len(receiver.messages) == 3
        assert broken.messages == []


def test_without_channels_everything_waits(ledger: Ledger, receiver: Receiver) -> None:
    """Facts from before a URL was configured are delivered when there is one."""
    enqueue(ledger, [_fact()])
    report = deliver(ledger, (), now=START, repeat_every=DAY)
    assert (report.due, report.waiting, report.completed) == (1, 1, 0)
    deliver(ledger, open_channels([receiver.url]), now=START, repeat_every=DAY)
    assert len(receiver.messages) == 1


class Killed(BaseException):
    """Stands for the end of the process."""


def test_death_between_sending_and_noting_sends_once_more_and_loses_nothing(
    ledger: Ledger, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one window in which a message comes twice; every other alert comes once."""
    enqueue(ledger, [_fact("a", title="first"), _fact("b", title="second")])
    channels = open_channels([receiver.url])

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(ledger, "note_alert_delivery", die, raising=True)
        with pytest.raises(Killed):
            deliver(ledger, channels, now=START, repeat_every=DAY)
    deliver(ledger, channels, now=START, repeat_every=DAY)
    assert receiver.titles() == ["first", "first", "second"]


def test_a_call_is_bounded(ledger: Ledger, receiver: Receiver) -> None:
    """One call sends at most its limit, the rest comes with the next."""
    enqueue(ledger, [_fact(f"f{number}", title=f"{number}") for number in range(5)])
    channels = open_channels([receiver.url])
    report = deliver(ledger, channels, now=START, repeat_every=DAY, limit=3)
    assert (report.messages_sent, report.waiting) == (3, 2)
    deliver(ledger, channels, now=START, repeat_every=DAY, limit=3)
    assert receiver.titles() == ["0", "1", "2", "3", "4"]


def test_alerts_that_wait_for_a_broken_channel_do_not_hold_up_later_ones(ledger: Ledger, receiver: Receiver) -> None:
    """However many alerts wait for the broken channel, the working one gets all of them, call by call."""
    with receiving() as broken:
        broken.fail()
        channels = open_channels([broken.url, receiver.url])
        enqueue(ledger, [_fact(f"f{number}", title=f"{number}") for number in range(5)])
        for minute in range(3):
            deliver(ledger, channels, now=START + timedelta(minutes=minute), repeat_every=DAY, limit=2)
    assert receiver.titles() == ["0", "1", "2", "3", "4"]


def test_hostile_text_cannot_add_lines_to_a_title(ledger: Ledger, receiver: Receiver) -> None:
    """Control characters from file names do not reach a title, which becomes a header in mail; long text is cut."""
    hostile = AlertFact("x", "bad\r\nBcc: everyone\x00\u202e", "line\none\x1b[31m " + "y" * 20_000, Severity.WARNING)
    enqueue(ledger, [hostile])
    deliver(ledger, open_channels([receiver.url]), now=START, repeat_every=DAY)
    message = receiver.messages[0]
    assert message["title"] == "bad Bcc: everyone"
    assert message["message"].startswith("line\none[31m yyy")
    assert len(message["message"]) <= 8_000


def test_no_secret_is_shown(ledger: Ledger, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Neither logs, nor names, nor reports hold what a URL holds, also one that cannot be used."""
    caplog.set_level(logging.DEBUG)
    secret_url = receiver.url.replace("json://", "json://user:hunter2@").replace("/?", "/token-9f3a/?")
    channels = open_channels([secret_url])
    receiver.fail(500)
    enqueue(ledger, [_fact()])
    report = deliver(ledger, channels, now=START, repeat_every=DAY)
    open_channels([receiver.url, "slack://hunter2-token-9f3a"])
    shown = " ".join([caplog.text, repr(channels), repr(report)])
    assert "hunter2" not in shown
    assert "token-9f3a" not in shown
    assert "entry 2: found a URL of scheme 'slack' that cannot be used" in shown


@pytest.mark.parametrize("wrong", ["slack://nothing", "no-url-at-all", "", "bogus://127.0.0.1"])
def test_a_url_that_cannot_be_used_does_not_silence_the_others(ledger: Ledger, receiver: Receiver, wrong: str) -> None:
    """With a slip in one URL the other channel gets every alert once, and each report names the one that does not work."""
    channels = open_channels([wrong, receiver.url])
    enqueue(ledger, [_fact()])
    for minute in range(2):
        report = deliver(ledger, channels, now=START + timedelta(minutes=minute), repeat_every=DAY)
    assert receiver.titles() == ["A check failed"]
    assert report.failed_channels == (channels[0].name,)
    assert report.waiting == 1


def test_one_url_twice_is_one_channel(receiver: Receiver) -> None:
    """The same URL given twice does not double messages."""
    channels = open_channels([receiver.url, receiver.url])
    assert len(channels) == 1
    assert isinstance(channels[0], Channel)
    assert channels[0].name.startswith("json-")
