"""The decision of the failed-partition sensor: what is asked for, what is healed, what is left alone and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.failed_partitions import Bounds, Decision, EndedRun, RequestState, Shown, decide, request_rows
from resources.ledger import DuePartition, RequestRow

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOWS = ("w1", "w2")
TILES = tuple(f"t{i}" for i in range(6))
ORDER = {f"{window}|{tile}": place for place, (window, tile) in enumerate((w, t) for w in WINDOWS for t in TILES)}
BOUNDS = Bounds(requests_per_tick=20, partitions_per_run=4, heals_per_tick=3, fruitless_max=3)


def work(name: str, **changes: Any) -> DuePartition:
    """A partition with one pending unit."""
    window, _, tile = name.partition("|")
    row = DuePartition(
        partition=name,
        window=window,
        tile=tile,
        pending=1,
        pending_later=0,
        running=0,
        failed_due=0,
        failed_later=0,
        next_due=None,
        attempt_sum=0,
        planned_at=NOW - timedelta(days=1),
    )
    return replace(row, **changes)


def later(name: str, **changes: Any) -> DuePartition:
    """A partition whose only unit waits."""
    return work(name, pending=0, failed_later=1, next_due=NOW + timedelta(minutes=5), **changes)


def request(name: str, **changes: Any) -> RequestRow:
    """A request whose run was launched an hour ago, when one unit was left and nothing had been tried."""
    row = RequestRow(name, 7, "key", NOW - timedelta(hours=1), "run-7", RequestState.LAUNCHED, unsettled=1, attempts=0)
    return replace(row, **changes)


def judged(*due: DuePartition, requests: Mapping[str, RequestRow] | None = None, **changes: Any) -> Decision:
    """The decision over these partitions."""
    facts: dict[str, Any] = {
        "due": due,
        "settled": (),
        "shown": Shown(),
        "requests": requests or {},
        "order": ORDER,
        "problems": (),
        "now": NOW,
        "bounds": BOUNDS,
    }
    return decide(**facts | changes)


def asked(decision: Decision) -> list[str]:
    """Partitions asked for."""
    return [name for ask in decision.asks for name in ask.partitions]


def test_neighbours_are_asked_for_in_one_range() -> None:
    """Due neighbours of one window become one run, and a gap begins another."""
    found = judged(work("w1|t0"), work("w1|t1"), work("w1|t3"))
    assert [ask.partitions for ask in found.asks] == [("w1|t0", "w1|t1"), ("w1|t3",)]


def test_ranges_end_at_the_window() -> None:
    """The last tile of a window and the first of the next are no neighbours: a range of both would mean all tiles of both."""
    found = judged(work("w1|t5"), work("w2|t0"))
    assert [ask.partitions for ask in found.asks] == [("w1|t5",), ("w2|t0",)]
    assert [ask.window for ask in found.asks] == ["w1", "w2"]


def test_long_ranges_are_cut() -> None:
    """No run gets more partitions than the bound."""
    found = judged(*(work(f"w1|t{i}") for i in range(6)))
    assert [len(ask.partitions) for ask in found.asks] == [4, 2]


def test_requests_are_bounded_and_the_rest_is_said() -> None:
    """A tick asks for as many runs as the bound, and says how much waits."""
    found = judged(work("w1|t0"), work("w1|t2"), work("w1|t4"), bounds=replace(BOUNDS, requests_per_tick=2))
    assert asked(found) == ["w1|t0", "w1|t2"]
    assert any("1 more partitions are due" in note for note in found.notes)


def test_longest_unasked_goes_first() -> None:
    """Under the bound, what was never asked for precedes what was, and the older request precedes the newer: none starves."""
    requests = {
        "w1|t0": request("w1|t0", requested_at=NOW - timedelta(hours=1), unsettled=5),
        "w1|t2": request("w1|t2", requested_at=NOW - timedelta(hours=3), unsettled=5),
    }
    found = judged(work("w1|t0"), work("w1|t2"), work("w1|t4"), requests=requests, bounds=replace(BOUNDS, requests_per_tick=2))
    assert asked(found) == ["w1|t4", "w1|t2"]


def test_a_unit_that_waits_is_left_and_said() -> None:
    """A failed unit whose time has not come asks for no run; the note says when it comes."""
    found = judged(later("w1|t0"))
    assert found.asks == ()
    assert any("not due yet, the first at 2026-03-01T12:05" in note for note in found.notes)


def test_due_and_waiting_in_one_partition_is_due() -> None:
    """A partition with a due unit is asked for though another of its units waits: the run leaves that one alone."""
    assert asked(judged(later("w1|t0", failed_due=1))) == ["w1|t0"]


def test_a_never_run_pending_partition_is_due() -> None:
    """What was planned and never run is asked for."""
    assert asked(judged(work("w2|t3"))) == ["w2|t3"]


def test_living_work_is_left_alone() -> None:
    """A partition that a living run or a lease holder works on is not asked for."""
    found = judged(work("w1|t0"), work("w1|t1"), shown=Shown(living={"w1|t0": "run abc"}))
    assert asked(found) == ["w1|t1"]


def test_units_left_running_by_a_dead_run_are_due() -> None:
    """RUNNING units without a living run can only be taken over by another run."""
    assert asked(judged(work("w1|t0", pending=0, running=2))) == ["w1|t0"]


def test_green_in_dagster_and_due_in_the_ledger_is_asked_for() -> None:
    """The ledger says what is due, whatever Dagster shows."""
    assert asked(judged(work("w1|t0"), shown=Shown(materialized={"w1|t0"}))) == ["w1|t0"]


def test_partitions_that_do_not_exist_are_named_not_asked_for() -> None:
    """A partition that is in the ledger and not in the grid or calendar is said, never requested or healed."""
    found = judged(work("w9|t0"), settled={"w9|t1"})
    assert (found.asks, found.heals) == ((), ())
    assert any("not in the grid" in note for note in found.notes)


def test_unfit_surroundings_stop_requests_and_heals() -> None:
    """While the probe complains nothing is asked for and nothing is shown as done; the note says why."""
    found = judged(work("w1|t0"), settled={"w1|t1"}, problems=["/mnt: the store is not there"])
    assert (found.asks, found.heals) == ((), ())
    assert "/mnt: the store is not there" in found.notes[0]


class TestRequests:
    """What happens to a request after it was made."""

    def test_an_open_request_is_not_repeated(self) -> None:
        """A request whose run is not there yet waits."""
        fresh = request("w1|t0", state=RequestState.REQUESTED, run_id=None, requested_at=NOW - timedelta(seconds=30))
        assert asked(judged(work("w1|t0"), requests={"w1|t0": fresh})) == []

    def test_a_dropped_request_is_made_again(self) -> None:
        """A request that has no run after the time-out is made again."""
        dropped = request("w1|t0", state=RequestState.REQUESTED, run_id=None, requested_at=NOW - timedelta(seconds=601))
        assert asked(judged(work("w1|t0"), requests={"w1|t0": dropped})) == ["w1|t0"]

    def test_a_launched_request_is_remembered_as_such(self) -> None:
        """A request whose run exists is LAUNCHED, whoever looks at it next."""
        fresh = request("w1|t0", state=RequestState.REQUESTED, run_id=None, requested_at=NOW - timedelta(seconds=30))
        shown = Shown(launched={7: "run-7"}, living={"w1|t0": "run-7"})
        found = judged(work("w1|t0"), requests={"w1|t0": fresh}, shown=shown)
        assert [(row.state, row.run_id) for row in found.changes] == [(RequestState.LAUNCHED, "run-7")]

    def test_a_run_that_got_somewhere_is_followed_at_once(self) -> None:
        """When its last run settled a unit or charged an attempt, a partition with due units is asked for without a pause."""
        just_now = NOW - timedelta(seconds=1)
        for before in (request("w1|t0", unsettled=2, requested_at=just_now), request("w1|t0", attempts=3, requested_at=just_now)):
            assert asked(judged(work("w1|t0"), requests={"w1|t0": before})) == ["w1|t0"]

    def test_a_run_that_got_nowhere_is_followed_after_a_pause(self) -> None:
        """A run that neither settled nor charged anything, a stopped one for instance, is repeated later and later."""
        for fruitless, pause_s in ((0, 120), (1, 240)):
            soon = request("w1|t0", fruitless=fruitless, requested_at=NOW - timedelta(seconds=pause_s - 1))
            assert asked(judged(work("w1|t0"), requests={"w1|t0": soon})) == []
            late = replace(soon, requested_at=NOW - timedelta(seconds=pause_s))
            found = judged(work("w1|t0"), requests={"w1|t0": late})
            assert asked(found) == ["w1|t0"]
            assert found.asks[0].fruitless == {"w1|t0": fruitless + 1}

    def test_runs_that_get_nowhere_end(self) -> None:
        """After as many fruitless runs as the bound a partition is asked for no more, and named as stuck."""
        tired = request("w1|t0", fruitless=2, requested_at=NOW - timedelta(hours=12))
        found = judged(work("w1|t0"), requests={"w1|t0": tired})
        assert (found.asks, found.stuck) == ((), ("w1|t0",))

    def test_an_unwell_source_is_asked_for_ever_more_rarely_and_never_given_up(self) -> None:
        """What a run gave back because its source was unwell is asked for at the longest pause, however often that was so."""
        tired = request("w1|t0", fruitless=40, requested_at=NOW - timedelta(hours=5, minutes=59))
        soon = judged(work("w1|t0", put_off=1), requests={"w1|t0": tired})
        assert (soon.asks, soon.stuck) == ((), ())
        found = judged(work("w1|t0", put_off=1), requests={"w1|t0": replace(tired, requested_at=NOW - timedelta(hours=6))})
        assert (asked(found), found.stuck) == (["w1|t0"], ())

    def test_a_new_plan_frees_what_was_stuck(self) -> None:
        """Something newly planned is due however many runs got nowhere before."""
        tired = request("w1|t0", fruitless=2, requested_at=NOW - timedelta(hours=1))
        assert asked(judged(work("w1|t0", planned_at=NOW), requests={"w1|t0": tired})) == ["w1|t0"]

    def test_the_attempt_is_the_highest_a_unit_gets(self) -> None:
        """A run's tag says which attempt it is for the unit that was tried most."""
        found = judged(work("w1|t0", attempt_max=2), work("w1|t1"))
        assert [ask.attempt for ask in found.asks] == [3]

    def test_what_is_remembered_of_a_request(self) -> None:
        """A request keeps what was to be done when it was made, by which its run is judged."""
        found = judged(work("w1|t0", attempts_counted=4))
        rows = request_rows(found.asks[0], number=9, run_key="k", due={"w1|t0": work("w1|t0", attempts_counted=4)}, now=NOW)
        assert rows == [RequestRow("w1|t0", 9, "k", NOW, None, RequestState.REQUESTED, unsettled=1, attempts=4)]


class TestCancelled:
    """A run that a person cancelled."""

    def ended(self, *names: str, is_cancelled: bool = True, minutes_ago: float = 1) -> EndedRun:
        return EndedRun("run-8", NOW - timedelta(minutes=minutes_ago), is_cancelled, frozenset(names))

    def test_it_is_left_alone(self) -> None:
        """Partitions of a cancelled run are not asked for, and that is kept for the ticks to come."""
        found = judged(work("w1|t0"), work("w1|t1"), shown=Shown(ended=[self.ended("w1|t0")]))
        assert asked(found) == ["w1|t1"]
        kept = {row.partition: row for row in found.changes}
        assert kept["w1|t0"].state == RequestState.CANCELLED
        again = judged(work("w1|t0"), requests=kept, now=NOW + timedelta(days=30))
        assert again.asks == ()
        assert any("cancelled" in note for note in again.notes)

    def test_a_new_plan_ends_it(self) -> None:
        """A plan written after the cancellation makes the partition due again."""
        kept = {"w1|t0": request("w1|t0", state=RequestState.CANCELLED)}
        assert asked(judged(work("w1|t0", planned_at=NOW), requests=kept)) == ["w1|t0"]

    def test_more_to_do_ends_it(self) -> None:
        """A replayed dead letter or an output found missing makes the partition due again."""
        kept = {"w1|t0": request("w1|t0", state=RequestState.CANCELLED)}
        assert asked(judged(work("w1|t0", pending=2), requests=kept)) == ["w1|t0"]

    def test_what_was_finished_since_counts_as_less(self) -> None:
        """When a cancelled partition settled and something in it comes back, that is new, though fewer than were left then."""
        kept = {"w1|t0": request("w1|t0", state=RequestState.CANCELLED, unsettled=5)}
        settled = {row.partition: row for row in judged(requests=kept, settled={"w1|t0"}).changes}
        assert settled["w1|t0"].unsettled == 0
        assert asked(judged(work("w1|t0"), requests=settled)) == ["w1|t0"]

    def test_launching_again_ends_it(self) -> None:
        """Once somebody launched the partition again and that run ended, the sensor follows it up as any other."""
        kept = {"w1|t0": request("w1|t0", state=RequestState.CANCELLED, unsettled=3)}
        shown = Shown(ended=[self.ended("w1|t0", is_cancelled=False)])
        assert asked(judged(work("w1|t0"), requests=kept, shown=shown)) == ["w1|t0"]

    def test_an_old_cancellation_does_not_undo_a_newer_request(self) -> None:
        """Reading old runs once more, after a sensor's cursor was reset, changes nothing that happened since."""
        fresh = request("w1|t0", unsettled=2, requested_at=NOW - timedelta(minutes=5))
        shown = Shown(ended=[self.ended("w1|t0", minutes_ago=60)])
        found = judged(work("w1|t0"), requests={"w1|t0": fresh}, shown=shown)
        assert asked(found) == ["w1|t0"]

    def test_it_is_noted_also_while_the_probe_fails(self) -> None:
        """What a person did is remembered though nothing is asked for at the moment."""
        found = judged(work("w1|t0"), shown=Shown(ended=[self.ended("w1|t0")]), problems=["full"])
        assert [row.state for row in found.changes] == [RequestState.CANCELLED]


class TestHealing:
    """Settled in the ledger, and shown otherwise."""

    def test_red_and_missing_are_healed_red_first(self) -> None:
        """Settled partitions that are red or missing are healed without a run, as many as the bound, red ones first."""
        shown = Shown(materialized={"w1|t0", "w1|t5"}, failed={"w1|t5"})
        found = judged(settled={"w1|t0", "w1|t1", "w1|t2", "w1|t3", "w1|t5"}, shown=shown)
        assert found.heals == ("w1|t5", "w1|t1", "w1|t2")
        assert found.asks == ()

    @pytest.mark.parametrize("shown", [Shown(in_progress={"w1|t0"}), Shown(living={"w1|t0": "a run"})])
    def test_what_is_worked_on_is_not_healed(self, shown: Shown) -> None:
        """A run that works on a partition says itself how it ended."""
        assert judged(settled={"w1|t0"}, shown=shown).heals == ()


NAMES = st.sampled_from(sorted(ORDER))
MINUTES = st.integers(0, 3000).map(lambda minutes: NOW - timedelta(minutes=minutes))


@st.composite
def due_rows(draw: st.DrawFn) -> list[DuePartition]:
    """Partitions with work in any mixture, at least one unit each."""
    rows = []
    for name in sorted(draw(st.sets(NAMES))):
        counts = draw(st.tuples(*(st.integers(0, 2) for _ in range(5))).filter(any))
        fields = dict(zip(("pending", "pending_later", "running", "failed_due", "failed_later"), counts, strict=True))
        rows.append(work(name, **fields, attempts_counted=draw(st.integers(0, 3)), planned_at=draw(MINUTES)))
    return rows


REQUESTS = st.dictionaries(
    NAMES,
    st.builds(
        RequestRow,
        partition=st.just(""),
        number=st.integers(1, 5),
        run_key=st.just("k"),
        requested_at=MINUTES,
        run_id=st.none(),
        state=st.sampled_from(sorted(RequestState)),
        unsettled=st.integers(0, 4),
        attempts=st.integers(0, 3),
        fruitless=st.integers(0, 4),
    ),
).map(lambda rows: {name: replace(row, partition=name) for name, row in rows.items()})
ENDED = st.lists(st.builds(EndedRun, st.just("r"), MINUTES, st.booleans(), st.frozensets(NAMES)), max_size=3)
SHOWN = st.builds(
    Shown,
    materialized=st.sets(NAMES),
    failed=st.sets(NAMES),
    in_progress=st.sets(NAMES),
    living=st.dictionaries(NAMES, st.just("someone")),
    launched=st.dictionaries(st.integers(1, 5), st.just("r")),
    ended=ENDED,
)


@settings(max_examples=200, deadline=None)
@given(
    rows=due_rows(),
    requests=REQUESTS,
    shown=SHOWN,
    bounds=st.builds(
        Bounds,
        requests_per_tick=st.integers(1, 3),
        partitions_per_run=st.integers(1, 4),
        heals_per_tick=st.integers(1, 3),
        fruitless_max=st.integers(1, 4),
    ),
    is_fit=st.booleans(),
)
def test_whatever_is_the_case_only_due_partitions_are_asked_for(
    rows: list[DuePartition], requests: dict[str, RequestRow], shown: Shown, bounds: Bounds, is_fit: bool
) -> None:
    """Asks hold due partitions only, each once, in whole ranges of one window, within the bounds; heals only settled ones."""
    settled = set(ORDER) - {row.partition for row in rows}
    found = judged(*rows, requests=requests, shown=shown, settled=settled, bounds=bounds, problems=() if is_fit else ("unfit",))
    by_name = {row.partition: row for row in rows}
    names = asked(found)
    assert len(names) == len(set(names))
    for name in names:
        row = by_name[name]
        assert row.pending + row.failed_due + row.running > 0
        assert name not in shown.living
        assert is_fit
    for ask in found.asks:
        places = [ORDER[name] for name in ask.partitions]
        assert places == list(range(places[0], places[0] + len(places)))
        assert {name.split("|")[0] for name in ask.partitions} == {ask.window}
        assert len(ask.partitions) <= bounds.partitions_per_run
        for name, times in ask.fruitless.items():
            assert times < bounds.fruitless_max or requests[name].state == RequestState.REQUESTED
    assert len(found.asks) <= bounds.requests_per_tick
    assert len(found.heals) <= bounds.heals_per_tick
    assert set(found.heals) <= settled
    assert not set(found.heals) & (set(shown.living) | set(shown.in_progress))
    assert not set(found.stuck) & set(names)


@settings(max_examples=40, deadline=None)
@given(rows=due_rows(), data=st.data())
def test_nothing_is_forgotten_and_nothing_asked_for_ever(rows: list[DuePartition], data: st.DataObject) -> None:
    """Ticks over runs that get nowhere ask for each due partition, at most as often as the bound, and then name it as stuck.

    Requests may be dropped at any time; a dropped one costs time and nothing else.
    """
    bounds = replace(BOUNDS, requests_per_tick=2, fruitless_max=3)
    requests: dict[str, RequestRow] = {}
    runs: dict[str, int] = {}
    now, number = NOW, 0
    ready = {row.partition for row in rows if row.pending + row.failed_due + row.running}
    by_name = {row.partition: row for row in rows}
    launched: dict[int, str] = {}
    for tick in range(400):
        found = judged(*rows, requests=requests, shown=Shown(launched=launched), now=now, bounds=bounds)
        requests |= {row.partition: row for row in found.changes}
        for ask in found.asks:
            number += 1
            made = request_rows(ask, number=number, run_key=str(number), due=by_name, now=now)
            requests |= {row.partition: row for row in made}
            if tick > 20 or data.draw(st.booleans()):
                launched[number] = f"run-{number}"
                for name in ask.partitions:
                    runs[name] = runs.get(name, 0) + 1
        now += timedelta(minutes=11)
        if set(found.stuck) == ready:
            break
    assert set(found.stuck) == ready
    assert set(runs) == ready
    assert all(times == bounds.fruitless_max for times in runs.values())
