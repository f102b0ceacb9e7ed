"""The command line over a real ledger and store: what it shows, what it changes, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipelines.cli.application import app
from resources.config import load_config
from resources.errors import ErrorKind, Verdict
from resources.ledger import InputRejection, Ledger, RunRow
from resources.opening import open_project_ledger, open_project_store
from resources.units import AttemptFailure, Completion, PartitionPlan, PlannedUnit

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
[window]
start = 2024-06-01
end = 2024-06-03
[grid]
tms = "WebMercatorQuad"
zoom = 10
area = "-105.9,40.1,-105.4,40.6"
[[products]]
name = "true_colour"
bands = ["red", "green", "blue"]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tilewright.toml"
    path.write_text(CONFIGURATION)
    (tmp_path / "scenes").mkdir()
    monkeypatch.setenv("TILEWRIGHT_CONFIG", str(path))
    return path


@pytest.fixture
def ledger(config: Path) -> Ledger:
    """Two windows: one complete, one with a unit pending, one failed and one quarantined."""
    ledger = open_project_ledger(load_config(config))
    for window, tiles in (("2024-06-01", ["10-1-1"]), ("2024-06-02", ["10-1-2", "10-1-3", "10-1-4"])):
        units = tuple(unit(window, tile) for tile in tiles)
        ledger.write_plan("tiles", [PartitionPlan("tiles", f"{window}|z10", window, units, "z10")])
    ledger.begin_run(
        RunRow("run-one", "tiles", ("2024-06-01|z10",), os.getpid(), socket.gethostname(), "boot", datetime.now(UTC))
    )
    keys = [unit("2024-06-01", "10-1-1").key, unit("2024-06-02", "10-1-3").key, unit("2024-06-02", "10-1-4").key]
    numbers = ledger.start_attempts("run-one", keys)
    ledger.complete("run-one", [Completion(keys[0], numbers[keys[0]], unit("2024-06-01", "10-1-1").output_uri, "d" * 64, 5)])
    ledger.fail(
        "run-one",
        [
            AttemptFailure(keys[1], numbers[keys[1]], Verdict.RETRY, ErrorKind.TIMEOUT, "the source did not answer"),
            AttemptFailure(keys[2], numbers[keys[2]], Verdict.QUARANTINE, ErrorKind.MISSING_BAND, "no band [red]\x1b[2J"),
        ],
    )
    return ledger


def unit(window: str, tile: str) -> PlannedUnit:
    key = f"{window}{tile}".encode().hex().ljust(64, "0")
    return PlannedUnit(key, "true_colour", window, f"tiles/true_colour/{window}/{tile}.{key[:16]}.tif", tile=tile)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.exit_code, done.output


def facts(*arguments: str) -> object:
    return json.loads(run(*arguments, "--json")[1])


def test_status_shows_each_window_and_says_what_is_incomplete(ledger: Ledger) -> None:
    """Complete, incomplete and quarantined are told apart, and the exit code is 3 while anything is not complete."""
    code, output = run("status")
    assert code == 3
    assert "missing_band" in output
    found = facts("status")
    standings = {item["window"]: item for item in found["windows"]}
    assert standings["2024-06-01"]["standing"] == "complete"
    assert standings["2024-06-02"]["standing"] == "incomplete"
    assert {name: standings["2024-06-02"][name] for name in ("pending", "failed", "quarantined")} == {
        "pending": 1,
        "failed": 1,
        "quarantined": 1,
    }
    assert run("status", "--window", "2024-06-01")[0] == 0


def test_a_killed_run_is_told_from_one_that_runs(ledger: Ledger) -> None:
    """Neither has ended; one gives signs of life."""
    long_ago = datetime(2024, 6, 2, 3, 4, 5, tzinfo=UTC)
    ledger.begin_run(RunRow("run-two", "tiles", ("2024-06-02|z10",), 1, "host", "boot", long_ago))
    output = " ".join(run("status")[1].split())
    assert re.search(r"run-one\s.*?\srunning\b", output)
    assert "silent since 2024-06-02 03:04:05Z" in output


def test_status_of_a_new_project_is_incomplete(config: Path) -> None:
    """Nothing planned is not the same as all complete."""
    code, output = run("status")
    assert code == 3
    assert "tilewright run" in output


def test_units_are_listed_by_filter(ledger: Ledger) -> None:
    """State, window and product narrow the list; JSON holds every fact."""
    assert len(facts("units")) == 4
    assert [item["tile"] for item in facts("units", "--state", "failed", "--window", "2024-06-02")] == ["10-1-3"]
    assert facts("units", "--product", "true_colour", "--window", "2024-06-01", "--state", "failed") == []
    assert run("units", "--state", "broken")[0] == 2
    assert "Only the first 2" in run("units", "--limit", "2")[1]


def test_a_unit_tells_its_history(ledger: Ledger) -> None:
    """Attempts, outcome and reason of one unit are read by the beginning of its key."""
    key = unit("2024-06-02", "10-1-3").key
    found = facts("unit", key)
    assert found["unit"]["state"] == "FAILED"
    assert [(item["what"], item["outcome"], item["reason"]) for item in found["history"]] == [
        ("attempt", "FAILED", "the source did not answer")
    ]
    assert run("unit", "ffff")[0] == 1
    assert run("unit", key[:2])[0] == 2


def test_foreign_text_is_neither_markup_nor_control(ledger: Ledger) -> None:
    """A reason with brackets and an escape sequence is shown as it is, without reaching the terminal."""
    output = run("quarantine", "list")[1]
    assert "no band [red]\\x1b[2J" in output
    assert "\x1b" not in output


def test_quarantine_is_listed_shown_replayed_and_dismissed(ledger: Ledger) -> None:
    """A dead letter leaves the list by replay, which makes its unit PENDING; who replayed is kept."""
    code, _ = run("quarantine", "list")
    assert code == 3
    (letter,) = facts("quarantine", "list")
    assert facts("quarantine", "show", str(letter["id"]))["dead_letter"]["audit_hash"] == letter["audit_hash"]
    assert "would replay" in run("quarantine", "replay", "--all", "--dry-run")[1]
    assert len(facts("quarantine", "list")) == 1
    would = facts("quarantine", "replay", "--all", "--dry-run")
    assert ([item["id"] for item in would["dead_letters"]], would["replayed"]) == ([letter["id"]], 0)
    assert run("quarantine", "replay", str(letter["id"]), "--who", "ada")[0] == 0
    assert run("quarantine", "list")[0] == 0
    found = facts("unit", unit("2024-06-02", "10-1-4").key)
    assert (found["unit"]["state"], found["unit"]["round"]) == ("PENDING", letter["round"] + 1)
    assert [item["who"] for item in found["history"] if item["what"] == "replayed"] == ["ada"]


def test_dismissal_needs_a_reason(ledger: Ledger) -> None:
    """Who and why are kept with the dead letter; without why nothing happens."""
    (letter,) = facts("quarantine", "list")
    assert run("quarantine", "dismiss", str(letter["id"]))[0] == 2
    assert run("quarantine", "dismiss", str(letter["id"]), "--why", "  ")[0] == 2
    assert facts("quarantine", "dismiss", str(letter["id"]), "--why", "never delivered", "--who", "ada")["dismissed"] == 1
    (closed,) = facts("quarantine", "list", "--closed")
    assert (closed["status"], closed["who"], closed["why"]) == ("DISMISSED", "ada", "never delivered")
    assert run("quarantine", "dismiss", "9999", "--why", "x")[0] == 1


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["1", "--window", "2024-06-02"]], ids=["nothing", "two", "both"])
def test_replay_wants_numbers_or_a_filter(ledger: Ledger, arguments: list[str]) -> None:
    """Neither, or both, is wrong usage: nobody replays everything by leaving a word out."""
    assert run("quarantine", "replay", *arguments)[0] == 2


def test_replay_by_filter_takes_inputs_too(ledger: Ledger) -> None:
    """A rejected scene's dead letter is replayed by its kind, and its rejection is lifted."""
    ledger.reject_inputs([InputRejection("a" * 64, "scene one", ErrorKind.CORRUPT_INPUT, "half a file")])
    assert run("quarantine", "replay", "--kind", "corrupt_input")[0] == 0
    assert ledger.rejected_inputs() == {}
    assert [letter.kind for letter in ledger.dead_letters()] == [ErrorKind.MISSING_BAND]


def test_verify_names_a_missing_output_and_repair_returns_it(ledger: Ledger, config: Path) -> None:
    """A record without its output is found, and with --repair its unit is PENDING again."""
    open_project_store(load_config(config), ledger)
    code, output = run("verify")
    assert code == 3
    assert "output_missing" in output
    assert facts("verify", "--repair")["returned_to_pending"] == 1
    assert facts("unit", unit("2024-06-01", "10-1-1").key)["unit"]["state"] == "PENDING"
    assert run("verify")[0] == 0


@pytest.mark.parametrize("command", ["verify", "plan"])
def test_a_window_that_is_none_is_wrong_usage(ledger: Ledger, config: Path, command: str) -> None:
    """A slip in a window's name must not read as "all is well"."""
    open_project_store(load_config(config), ledger)
    code, output = run(command, "--window", "2031-01-01")
    assert code == 2
    assert "--window" in output


@pytest.mark.parametrize(
    ("command", "option", "value", "allowed"),
    [
        *(
            (name, "--window", "2024-06-31", "YYYY-MM-DD, one each day")
            for name in ("status", "units", "plan", "quarantine list")
        ),
        ("run", "--window", "June", "YYYY-MM-DD, one each day from 2024-06-01 and before 2024-06-03"),
        ("units", "--asset", "nonsense", "scene_manifest, tiles, tile_catalogue"),
        *((name, "--product", "ndvi", "true_colour") for name in ("units", "quarantine list", "quarantine replay")),
        ("quarantine list", "--kind", "nonsense", "corrupt_input"),
        ("quarantine replay", "--window", "2024", "YYYY-MM-DD"),
        ("keys", "", "nonsense", "products"),
    ],
)
def test_a_filter_that_fits_nothing_is_wrong_usage(
    ledger: Ledger, config: Path, command: str, option: str, value: str, allowed: str
) -> None:
    """An empty list, or "no dead letters", must not come of a slip of the pen; what is allowed is said."""
    open_project_store(load_config(config), ledger)
    code, output = run(*command.split(), *filter(None, [option, value]))
    assert code == 2
    assert value in output
    assert allowed in output


def test_a_window_of_the_past_is_still_found(ledger: Ledger, config: Path) -> None:
    """What the ledger holds is shown, also where the configuration begins later now; a window of it without a plan is said so."""
    config.write_text(CONFIGURATION.replace("start = 2024-06-01", "start = 2024-06-02").replace("end = 2024-06-03", ""))
    assert [item["tile"] for item in facts("units", "--window", "2024-06-01")] == ["10-1-1"]
    assert "Window 2024-06-03 has no plan yet" in run("status", "--window", "2024-06-03")[1]


def test_sweep_says_before_it_removes(ledger: Ledger, config: Path) -> None:
    """A dry run removes nothing; the sweep removes what an ended run left long ago."""
    store = open_project_store(load_config(config), ledger)
    staged = store.staging_path("tiles/true_colour/2024-06-01/a.tif", run_id="gone")
    staged.write_bytes(b"half")
    os.utime(staged, (time.time() - 10 * 86_400,) * 2)
    assert "would remove" in run("sweep", "--dry-run")[1]
    assert staged.exists()
    assert facts("sweep")["bytes"] == 4
    assert not staged.exists()


def test_sweep_says_what_it_leaves_and_why(ledger: Ledger, config: Path) -> None:
    """Staged files that are young are counted beside the bound that keeps them; outputs set aside are named. In earnest too."""
    store = open_project_store(load_config(config), ledger)
    for name in ("a.tif", "b.tif"):
        store.staging_path(f"tiles/true_colour/2024-06-01/{name}", run_id="gone").write_bytes(b"half")
    final = store.path("tiles/true_colour/2024-06-01/c.tif")
    final.write_bytes(b"another's")
    aside = str(store.set_aside("tiles/true_colour/2024-06-01/c.tif").relative_to(store.root))
    for words in (["--dry-run"], []):
        code, output = run("sweep", *words)
        assert (code, "kept: 2 staged files younger than retention.staging_hours (24 h)" in output) == (0, True), output
        assert "set aside: 1, outputs that did not verify" in output
        assert aside in output
        found = facts("sweep", *words)
        assert (found["removed"], found["kept_staged"], found["set_aside"]) == ([], {"alive": 0, "young": 2}, [aside])


def test_nothing_holds_a_lease_when_nothing_runs(ledger: Ledger) -> None:
    """A holder that is gone is not listed, though its row is still there."""
    ids = ledger.partition_ids("tiles", ["2024-06-01|z10"])
    ledger.note_holder(list(ids.values()), run_id="run-one", pid=1, host="elsewhere")
    assert facts("leases", "list") == []
    assert run("leases", "break", "run-one", "--yes")[0] == 1


HOLDER = """
import os, socket, sys, time
from resources.config import load_config
from resources.opening import open_leases, open_project_ledger
config = load_config()
ledger = open_project_ledger(config)
ids = ledger.partition_ids("tiles", ["2024-06-01|z10"])
with open_leases(config, ledger).hold(ids) as lease:
    ledger.note_holder(list(ids.values()), run_id="run-one", pid=os.getpid(), host=socket.gethostname())
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_hung_run_is_listed_and_broken(ledger: Ledger, config: Path) -> None:
    """The holder's process is shown, ended on request, and its lease is free at once."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        (held,) = facts("leases", "list")
        assert (held["run_id"], held["pid"], held["partitions"]) == ("run-one", holder.pid, ["2024-06-01|z10"])
        assert run("leases", "break", "run", "--yes", "--grace", "5")[0] == 0
        assert holder.wait(timeout=30) != 0
        assert facts("leases", "list") == []
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


def in_a_process(folder: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_cannot_run_is_one_message(tmp_path: Path) -> None:
    """A missing configuration ends with code 1 and one line on standard error, without a traceback."""
    code, output, errors = in_a_process(tmp_path, "--config", "nowhere.toml", "status")
    assert (code, output) == (1, "")
    assert "nowhere.toml: no such configuration file" in errors
    assert "Traceback" not in errors


def test_a_state_folder_that_cannot_be_made_is_one_message(config: Path) -> None:
    """What the system refuses is said in its words, with the file's name, without a traceback."""
    code, output, errors = in_a_process(config.parent, "status", TILEWRIGHT_STATE=str(config / "state"))
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert str(config / "state") in line


def test_help_needs_no_heavy_library() -> None:
    """--help and --version import neither dagster nor the raster and table libraries, so they answer at once."""
    heavy = "dagster sqlalchemy rasterio geopandas numpy pydantic matplotlib pyarrow"
    code = f"import sys; import pipelines.cli.application; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


COMMANDS = """doctor, plan, status, units, unit, quarantine list, quarantine show, quarantine replay, quarantine dismiss,
leases list, leases break, verify, sweep, rebuild-ledger, dev, run, keys"""


@pytest.mark.parametrize("command", re.split(r",\s+", COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    """--help of each command says what it does and what its exit codes mean."""
    code, output = run(*command.split(), "--help")
    assert code == 0
    assert "Exit codes" in output


def test_no_word_of_a_help_is_lost() -> None:
    """Help is printed as markup, which takes words in brackets for styles: each word that is written is shown."""
    commands = {(): get_command(app)}
    for _ in range(2):
        commands |= {(*path, name): sub for path, one in commands.items() for name, sub in getattr(one, "commands", {}).items()}
    assert len(commands) > len(COMMANDS.split(","))
    for path, command in commands.items():
        shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "400"}).output.split()
        texts = [command.help, command.epilog, *(getattr(parameter, "help", None) for parameter in command.params)]
        assert {word for text in texts for word in (text or "").split()} <= set(shown), path
