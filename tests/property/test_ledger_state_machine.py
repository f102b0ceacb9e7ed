"""The ledger against a dictionary: any sequence of plans, attempts, failures, take-overs, replays and crashes of two runs.

The model is what docs say a unit does; the ledger must agree with it after every step, on both databases. A crash strikes before
any statement of a call: the ledger must then stand as before the call, or, for a plan, be made right by writing the plan again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import event, select

from resources.errors import ErrorKind, Verdict
from resources.ledger import InputRejection, Ledger, open_ledger_at
from resources.ledger.schema_rows import inspection_records, preservation_events
from resources.row_tables import is_row_uri, row_uri
from resources.units import AttemptOutcome, Completion, PlannedUnit, UnitState
from tests.support.ledgers import (
    ASSET,
    ATTEMPTS_MAX,
    BOOT,
    MovableClock,
    completion,
    empty_tables,
    failure,
    partition_plan,
    planned_unit,
    run_row,
)
from tests.support.rows import event_row, record_row

T = TypeVar("T")
RUNS = ("r1", "r2")
PARTITIONS = {"w|a": (0, 1), "w|b": (2, 3)}
EVENT_TILE = 0  # the output is a row, of each version its own
RECORD_TILE = 1  # the output is a row, and both versions are of one site and period
REPLACED_TILE = 3  # its two versions share one output URI, as a window output does
VERSIONS = ("1", "2")
INPUT = "bad-scene"


def make_unit(tile: int, version: str) -> PlannedUnit:
    uris = {
        EVENT_TILE: row_uri("preservation_events", f"event-{version}"),
        RECORD_TILE: row_uri("inspection_records", "site", "period"),
        REPLACED_TILE: "catalogue.parquet",
    }
    return planned_unit(tile, version=version, inputs=[INPUT], uri=uris.get(tile))


def make_completion(place: tuple[int, str], attempt: int) -> Completion:
    tile, version = place
    rows = {
        EVENT_TILE: (event_row(0, event_id=f"event-{version}"),),
        RECORD_TILE: (record_row("site", "period", source=version),),
    }
    return completion(UNITS[place], attempt, rows=rows.get(tile, ()))


UNITS = {(tile, version): make_unit(tile, version) for tiles in PARTITIONS.values() for tile in tiles for version in VERSIONS}
BY_KEY = {unit.key: place for place, unit in UNITS.items()}
GONE = (UnitState.SUPERSEDED, UnitState.RETIRED)

ENDINGS = ("retry", "retry", "quarantine", "stop", "void", "lost", "lost alone", "input")
STEPS = (
    "reopen",
    "plan",
    "start",
    "start",
    "complete",
    "fail",
    "fail",
    "fail",
    "adopt",
    "take_over",
    "lose_outputs",
    "letters",
    "reject_input",
)


def random_step(random: Random) -> tuple[str, dict[str, Any]]:
    """A call and its arguments. Drawn from a seed: drawn piece by piece, most examples never get to a quarantine."""
    name = random.choice(STEPS)
    places = set(random.sample(sorted(UNITS), random.randint(1, 4)))
    run, partition = random.choice(RUNS), random.choice(sorted(PARTITIONS))
    speech: dict[str, Any] = {"run": run, "places": places, "is_apt": random.random() < 0.8}
    arguments: dict[str, dict[str, Any]] = {
        "plan": {"name": partition, "versions": tuple(random.choice([None, *VERSIONS, *VERSIONS]) for _ in range(2))},
        "start": speech | {"alone": random.random() < 0.5},
        "complete": speech | {"lag": int(random.random() < 0.2)},
        "fail": speech | {"lag": int(random.random() < 0.2), "ending": random.choice(ENDINGS)},
        "adopt": {"places": places},
        "take_over": {"run": run, "name": partition, "boot": random.choice([BOOT, "boot-2"])},
        "lose_outputs": {"places": places},
        "letters": {"is_dismissal": random.random() < 0.4, "odd": random.random() < 0.5},
    }
    return name, arguments.get(name, {})


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Model:
    """What the ledger should say about one unit."""

    state: UnitState = UnitState.PENDING
    before: UnitState | None = None
    attempts: int = 0
    attempt: int = 0
    round: int = 1
    run: str | None = None
    is_alone: bool = False
    is_blocked: bool = False
    suspect: bool = False
    outcomes: list[AttemptOutcome | None] = field(default_factory=list)


class LedgerMachine(RuleBasedStateMachine):
    """Rules act on the ledger and on the model alike."""

    def __init__(self, fresh_url: Callable[[], str]) -> None:
        super().__init__()
        self.url = fresh_url()
        self.clock = MovableClock()
        self.ledger = self.open()
        self.model: dict[tuple[int, str], Model] = {}
        self.planned: dict[str, dict[int, str]] = {name: {} for name in PARTITIONS}
        self.is_rejected = False
        self.input_letter_is_open = False
        self.crash_at: int | None = None
        self.number = 0

    def open(self) -> Ledger:
        ledger = open_ledger_at(self.url, clock=self.clock, attempts_max=ATTEMPTS_MAX)
        if ledger.engine.dialect.name == "sqlite":
            # processes die here, machines do not: syncing would be most of the time
            ledger.engine.dispose()
            event.listen(ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        return ledger

    def teardown(self) -> None:
        self.ledger.close()

    @rule(seed=st.integers(0, 2**32))
    def act(self, seed: int) -> None:
        """One call, which may die before any of its statements."""
        self.number += 1
        random = Random(seed + self.number)
        name, arguments = random_step(random)
        self.crash_at = random.randint(0, 12) if random.random() < 0.3 else None
        getattr(self, name)(**arguments)
        self.crash_at = None

    # --- crashes

    def reopen(self) -> None:
        """The process ends and another one opens the ledger."""
        self.ledger.close()
        self.ledger = self.open()

    @contextmanager
    def dying(self) -> Iterator[None]:
        left = count(self.crash_at or 0, -1)

        def die(*_arguments: Any) -> None:
            if next(left) <= 0:
                raise Crash

        event.listen(self.ledger.engine, "before_cursor_execute", die)
        try:
            yield
        finally:
            event.remove(self.ledger.engine, "before_cursor_execute", die)

    def call(self, act: Callable[[], T]) -> T | None:
        """Do it; None when it crashed, and then a new process opens the ledger."""
        if self.crash_at is None:
            return act()
        try:
            with self.dying():
                return act()
        except Crash:
            self.reopen()
            return None

    # --- plans

    @initialize()
    def begin(self) -> None:
        """Two runs have begun, everything is planned, and one of them works on it."""
        for run in RUNS:
            self.ledger.begin_run(run_row(run, list(PARTITIONS)))
        for name in PARTITIONS:
            self.plan(name, ("1", "1"))
        self.start("r1", set(UNITS), alone=False, is_apt=True)

    def plan(self, name: str, versions: tuple[str | None, str | None]) -> None:
        """A partition gets a new plan: each of its tiles in one version, or not at all."""
        wanted = {tile: version for tile, version in zip(PARTITIONS[name], versions, strict=True) if version is not None}
        plan = partition_plan(name, [UNITS[place] for place in wanted.items()])
        if self.call(lambda: self.ledger.write_plan(ASSET, [plan])) is None:
            self.ledger.write_plan(ASSET, [plan])
        old = self.planned[name]
        self.planned[name] = wanted
        for place in wanted.items():
            self.enter(place)
        for tile, version in old.items():
            if wanted.get(tile) != version:
                self.leave(self.model[tile, version], is_replaced=tile in wanted)

    def enter(self, place: tuple[int, str]) -> None:
        unit = self.model.setdefault(place, Model())
        if unit.state not in GONE:
            return
        assert unit.before is not None
        unit.state = (
            unit.before if unit.before in (UnitState.COMPLETE, UnitState.QUARANTINED, UnitState.DISMISSED) else UnitState.PENDING
        )
        if unit.state is UnitState.QUARANTINED and unit.is_blocked and not self.is_rejected:
            unit.state = UnitState.PENDING
        unit.is_blocked = unit.is_blocked and unit.state is UnitState.QUARANTINED
        unit.before = None

    @staticmethod
    def leave(unit: Model, *, is_replaced: bool) -> None:
        if unit.state is UnitState.RUNNING:
            unit.outcomes[-1] = AttemptOutcome.VOID
        unit.before = unit.state
        unit.state = UnitState.SUPERSEDED if is_replaced else UnitState.RETIRED

    # --- attempts

    def start(self, run: str, places: set[tuple[int, str]], alone: bool, is_apt: bool) -> None:
        """A run starts units; it wins those that are PENDING or FAILED."""
        if is_apt:
            places = {place for wanted in self.planned.values() for place in wanted.items()} or places
        won = self.call(lambda: self.ledger.start_attempts(run, [UNITS[place].key for place in sorted(places)], alone=alone))
        if won is None:
            return
        expected = {}
        for place in places & self.model.keys():
            unit = self.model[place]
            if unit.state in (UnitState.PENDING, UnitState.FAILED):
                unit.attempt += 1
                unit.state, unit.run, unit.is_alone = UnitState.RUNNING, run, alone
                unit.outcomes.append(None)
                expected[UNITS[place].key] = unit.attempt
        assert won == expected

    def speakers(self, run: str, places: set[tuple[int, str]], *, is_apt: bool) -> tuple[str, set[tuple[int, str]]]:
        """Who speaks about what. Apt: some run about what is running in it, so that most words are not in vain."""
        running = {place for place, unit in self.model.items() if unit.state is UnitState.RUNNING}
        if not is_apt or not running:
            return run, places
        chosen = (running & places) or running
        run = self.model[min(chosen)].run or run
        return run, {place for place in chosen if self.model[place].run == run}

    def winners(self, run: str, places: set[tuple[int, str]], lag: int) -> list[tuple[int, str]]:
        """Those of `places` whose attempt of `lag` before the last is the one that is running in that run."""
        return [
            place
            for place in sorted(places & self.model.keys())
            if lag == 0 and self.model[place].state is UnitState.RUNNING and self.model[place].run == run
        ]

    def leavers(self, run: str, places: set[tuple[int, str]], lag: int) -> list[tuple[int, str]]:
        """Those of `places` that left the plan while their last attempt was running in that run."""
        gone = [place for place in sorted(places & self.model.keys()) if self.model[place].state in GONE]
        return [
            place for place in gone if lag == 0 and self.model[place].before is UnitState.RUNNING and self.model[place].run == run
        ]

    def keep(self, place: tuple[int, str]) -> None:
        """An output of a unit that left the plan is its own, unless another unit has one of that name."""
        same = [
            unit for other, unit in self.model.items() if other != place and UNITS[other].output_uri == UNITS[place].output_uri
        ]
        if not any(unit.state is UnitState.COMPLETE for unit in same):
            self.model[place].before, self.model[place].suspect = UnitState.COMPLETE, False
        for unit in same:
            if unit.state in GONE and unit.before is UnitState.COMPLETE:
                unit.before = UnitState.PENDING

    def attempt_of(self, place: tuple[int, str], lag: int) -> int:
        return (self.model[place].attempt if place in self.model else 0) - lag

    def complete(self, run: str, places: set[tuple[int, str]], lag: int, is_apt: bool) -> None:
        """A run says that units are done, perhaps of an attempt that is over: only what is running in it is recorded."""
        run, places = self.speakers(run, places, is_apt=is_apt)
        made = [make_completion(place, self.attempt_of(place, lag)) for place in sorted(places)]
        won = self.call(lambda: self.ledger.complete(run, made))
        if won is None:
            return
        winners = self.winners(run, places, lag)
        assert won == {UNITS[place].key for place in winners}
        leavers = self.leavers(run, places, lag)
        for place in winners:
            self.model[place].outcomes[-1] = AttemptOutcome.SUCCEEDED
            self.record(place)
        for place in leavers:
            self.keep(place)

    def record(self, place: tuple[int, str]) -> None:
        unit = self.model[place]
        unit.state, unit.suspect, unit.is_blocked = UnitState.COMPLETE, False, False
        for other, found in self.model.items():
            same = other != place and UNITS[other].output_uri == UNITS[place].output_uri
            if same and found.state in GONE and found.before is UnitState.COMPLETE:
                found.before = UnitState.PENDING

    def adopt(self, places: set[tuple[int, str]]) -> None:
        """Outputs are found and verified: what is not running or over is complete."""
        won = self.call(lambda: self.ledger.adopt([make_completion(place, 0) for place in sorted(places)]))
        if won is None:
            return
        able = (UnitState.PENDING, UnitState.FAILED, UnitState.QUARANTINED)
        winners = [place for place in sorted(places & self.model.keys()) if self.model[place].state in able]
        assert won == {UNITS[place].key for place in winners}
        for place in winners:
            self.record(place)

    def fail(self, run: str, places: set[tuple[int, str]], lag: int, is_apt: bool, ending: str) -> None:
        """A run says that units failed, in one of the ways there are."""
        run, places = self.speakers(run, places, is_apt=is_apt)
        changes: dict[str, Any] = {
            "retry": {},
            "quarantine": {"verdict": Verdict.QUARANTINE},
            "stop": {"verdict": Verdict.STOP, "kind": ErrorKind.DISK_FULL},
            "void": {"outcome": AttemptOutcome.VOID},
            "lost": {"outcome": AttemptOutcome.LOST, "charged": False},
            "lost alone": {"outcome": AttemptOutcome.LOST},
            "input": {"verdict": Verdict.QUARANTINE, "kind": ErrorKind.CORRUPT_INPUT, "input_digest": INPUT},
        }[ending]
        made = [failure(UNITS[place], self.attempt_of(place, lag), **changes) for place in sorted(places)]
        found = self.call(lambda: self.ledger.fail(run, made))
        if found is None:
            return
        winners = self.winners(run, places, lag)
        for place in winners:
            self.end_badly(self.model[place], ending)
        assert found == {UNITS[place].key: self.model[place].state for place in winners}
        if ending == "input" and winners and not self.is_rejected:
            self.is_rejected = self.input_letter_is_open = True

    def end_badly(self, unit: Model, ending: str) -> None:
        is_counted = ending in ("retry", "quarantine", "lost alone", "input")
        unit.attempts += is_counted
        unit.outcomes[-1] = {
            "stop": AttemptOutcome.VOID,
            "void": AttemptOutcome.VOID,
            "lost": AttemptOutcome.LOST,
            "lost alone": AttemptOutcome.LOST,
        }.get(ending, AttemptOutcome.FAILED)
        if not is_counted:
            unit.state = UnitState.PENDING
        elif ending in ("quarantine", "input") or unit.attempts >= ATTEMPTS_MAX:
            unit.state = UnitState.QUARANTINED
        else:
            unit.state = UnitState.FAILED
        unit.is_blocked = ending == "input"

    def take_over(self, run: str, name: str, boot: str) -> None:
        """A run takes a partition over: what was running there is lost, and charged if it ran alone on this boot."""
        found = self.call(lambda: self.ledger.take_over(run, ASSET, [name], boot_id=boot))
        if found is None:
            return
        members = [self.model[place] for place in self.planned[name].items()]
        running = [unit for unit in members if unit.state is UnitState.RUNNING]
        assert found == len(running)
        for unit in running:
            is_charged = unit.is_alone and boot == BOOT
            unit.attempts += is_charged
            unit.outcomes[-1] = AttemptOutcome.LOST
            unit.state = UnitState.QUARANTINED if is_charged and unit.attempts >= ATTEMPTS_MAX else UnitState.PENDING
            unit.is_blocked = False

    # --- outputs, letters, inputs

    def lose_outputs(self, places: set[tuple[int, str]]) -> None:
        """Outputs are found missing: their units are PENDING with no counted attempts."""
        keys = [UNITS[place].key for place in sorted(places)]
        act = lambda: self.ledger.return_to_pending(keys, reason="gone", kind=ErrorKind.OUTPUT_MISSING)  # noqa: E731
        found = self.call(act)
        if found is None:
            return
        lost = [self.model[place] for place in places & self.model.keys() if self.model[place].state is UnitState.COMPLETE]
        assert found == len(lost)
        for unit in lost:
            unit.state, unit.attempts = UnitState.PENDING, 0

    def letters(self, is_dismissal: bool, odd: bool) -> None:
        """A person replays or dismisses every second open letter."""
        letters = [letter for letter in self.ledger.dead_letters() if letter.id % 2 == odd]
        ids = [letter.id for letter in letters]
        act = (
            (lambda: self.ledger.dismiss(ids, who="ada", why="x"))
            if is_dismissal
            else (lambda: self.ledger.replay(ids, who="ada"))
        )
        if self.call(act) is None:
            return
        keys = {letter.subject_key for letter in letters}
        for place, unit in self.model.items():
            is_meant = INPUT in keys if unit.is_blocked else UNITS[place].key in keys
            if not is_meant:
                continue
            if unit.state is UnitState.QUARANTINED:
                unit.state = UnitState.DISMISSED if is_dismissal else UnitState.PENDING
            elif unit.state in GONE and unit.before is UnitState.QUARANTINED and unit.is_blocked and not is_dismissal:
                unit.before = UnitState.PENDING
            else:
                continue
            if not is_dismissal:
                unit.attempts, unit.round, unit.is_blocked = 0, unit.round + 1, False
        if INPUT in keys:
            self.input_letter_is_open = False
            self.is_rejected = is_dismissal

    def reject_input(self) -> None:
        """The manifest says that the input is unfit, once more or for the first time."""
        bad = InputRejection(INPUT, "scene.tif", ErrorKind.CORRUPT_INPUT, "block 3")
        if self.call(lambda: self.ledger.reject_inputs([bad])) is None:
            return
        if not self.is_rejected:
            self.is_rejected = self.input_letter_is_open = True

    # --- what must hold

    @invariant()
    def units_agree(self) -> None:
        """State, counts, round and history of every unit are what the model says."""
        found = {BY_KEY[row.key]: row for row in self.ledger.units()}
        assert found.keys() == self.model.keys()
        for place, unit in self.model.items():
            row = found[place]
            assert (row.state, row.attempts, row.attempt, row.round) == (unit.state, unit.attempts, unit.attempt, unit.round), (
                place
            )
            if unit.state is UnitState.QUARANTINED:
                assert (row.blocked_by == INPUT) == unit.is_blocked
            tried = [entry.outcome for entry in self.ledger.history(row.key) if entry.what == "attempt"]
            assert tried == unit.outcomes
            assert tried.count(None) == (unit.state is UnitState.RUNNING)

    @invariant()
    def plan_agrees(self) -> None:
        """Partitions hold what was planned, and are settled or due by the states of their units."""
        rows = [(row.partition, BY_KEY[row.key]) for row in self.ledger.planned(ASSET, list(PARTITIONS))]
        assert sorted(rows) == sorted((name, place) for name, wanted in self.planned.items() for place in wanted.items())
        due = {found.partition for found in self.ledger.due_partitions(ASSET, now=self.clock.now)}
        unsettled = (UnitState.PENDING, UnitState.RUNNING, UnitState.FAILED)
        assert due == {
            name for name, wanted in self.planned.items() if any(self.model[place].state in unsettled for place in wanted.items())
        }
        assert self.ledger.settled_partitions(ASSET) == {row.partition for row in self.ledger.partition_rows(ASSET)} - due

    @invariant()
    def letters_agree(self) -> None:
        """Every quarantined unit has one open letter, its own or its input's, and there are no others."""
        opened = [letter.subject_key for letter in self.ledger.dead_letters()]
        quarantined = [place for place, unit in self.model.items() if unit.state is UnitState.QUARANTINED]
        expected = [UNITS[place].key for place in quarantined if not self.model[place].is_blocked]
        assert sorted(opened) == sorted([*expected, *([INPUT] if self.input_letter_is_open else [])])
        assert (INPUT in self.ledger.rejected_inputs()) == self.is_rejected

    @invariant()
    def rows_agree(self) -> None:
        """A unit whose output is a row has it as long as it is recorded, as recorded; no row is of a unit without record."""
        recorded = {row.key: row for row in self.ledger.units()}
        with self.ledger.reading() as connection:
            tables = (preservation_events, inspection_records)
            rows = {uri: key for table in tables for uri, key in connection.execute(select(table.c.output_uri, table.c.unit_key))}
        digests = self.ledger.output_digests(rows)
        for key in rows.values():
            assert recorded[key].output_digest is not None
        for place, unit in self.model.items():
            row = recorded[UNITS[place].key]
            is_done = UnitState.COMPLETE in (unit.state, unit.before)
            if is_row_uri(row.output_uri) and is_done:
                assert (rows[row.output_uri], digests[row.output_uri]) == (row.key, row.output_digest), place

    @invariant()
    def outputs_are_unique(self) -> None:
        """No output URI belongs to two COMPLETE units."""
        uris = [row.output_uri for row in self.ledger.units(state=UnitState.COMPLETE)]
        assert len(uris) == len(set(uris))


def test_any_sequence_agrees_with_the_model(request: pytest.FixtureRequest, ledger_url: str, tmp_path: Path) -> None:
    """Whatever two runs, their crashes, plans and people do in any order, the ledger says what the model says."""
    numbers = count()
    is_sqlite = ledger_url.startswith("sqlite")

    def fresh_url() -> str:
        if not is_sqlite:
            empty_tables(ledger_url)
            return ledger_url
        path = tmp_path / f"{next(numbers)}.sqlite"
        shutil.copyfile(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"

    chosen = settings(
        max_examples=25 if is_sqlite else 6,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(lambda: LedgerMachine(fresh_url), settings=chosen)
