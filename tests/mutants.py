"""Breaks one line for each invariant, in a copy of the project, and proves that a named test notices: `make mutants`.

A test that cannot fail proves nothing. Each mutant says which invariant it breaks (docs/invariants.md), where, and which test
must fail; a mutant that survives, or whose line is no longer there, fails the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SKIPPED = shutil.ignore_patterns(".git", ".venv", "var", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", ".tilewright")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One line broken on purpose: `old` stands once in `file` and becomes `new`; then `test` must fail."""

    invariant: int
    breaks: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = (
    Mutant(
        1,
        "bytes are not made durable before their name",
        "resources/trees.py",
        "        os.fsync(descriptor)\n        return os.fstat(descriptor).st_size",
        "        return os.fstat(descriptor).st_size",
        "tests/crash/test_power_cut.py",
    ),
    Mutant(
        1,
        "names are not made durable before their record",
        "resources/store.py",
        "        for folder in sorted({self.path(uri).parent for uri in uris}):\n            sync_folder(folder)",
        "        del uris",
        "tests/crash/test_power_cut.py",
    ),
    Mutant(
        1,
        "the pages of a directory are not made durable before its name",
        "resources/trees.py",
        "            size += _sync_file(Path(folder, name))",
        "            size += Path(folder, name).lstat().st_size",
        "tests/crash/test_power_cut.py::test_completed_units_survive_a_power_cut[directory]",
    ),
    Mutant(
        1,
        "a directory is removed page by page under its final name",
        "resources/store.py",
        "            os.rename(final, gone)\n            remove_content(gone)",
        "            remove_content(final)",
        "tests/integration/test_engine_outputs.py::test_removal_of_a_directory_is_one_act",
    ),
    Mutant(
        2,
        "recorded before promoted",
        "resources/promotion.py",
        '        reach("promote.ready", self.run_id)\n',
        "        self.ledger.complete(\n"
        "            self.run_id,\n"
        "            [Completion(u.unit.key, n, u.unit.output_uri, r.digest, r.size_bytes) for u, n, (_, r) in staged],\n"
        "        )\n"
        '        reach("promote.ready", self.run_id)\n',
        "tests/crash/test_kill_points.py::test_main_process_killed[sqlite-promote.ready-file-1]",
    ),
    Mutant(
        3,
        "complete units are done again",
        "resources/engine.py",
        "            stale = self._stale(complete, listings)",
        "            stale = {row.key for row in complete}",
        "tests/integration/test_incremental.py::test_second_pass_computes_nothing",
    ),
    Mutant(
        3,
        "an output without its record is not adopted",
        "resources/engine.py",
        "if unit.unit.output_uri in unrecorded and not unit.replaces and self.promoter.adopt(unit):",
        "if False and self.promoter.adopt(unit):",
        "tests/integration/test_engine_failures.py::test_output_without_record_is_adopted",
    ),
    Mutant(
        4,
        "the scenes' digests are not in the key",
        "assets/planning.py",
        '{name: {"digest": band.digest, "index": band.index} for name, band in sorted(scene.bands.items())}',
        '{name: {"index": band.index} for name, band in sorted(scene.bands.items())}',
        "tests/integration/test_incremental.py::test_replaced_scene_is_redone",
    ),
    Mutant(
        3,
        "a version token that was seen before is not known again",
        "assets/inspections/planning.py",
        "    if observed is not None and (by == observed.token or",
        "    if observed is not None and (by == () or",
        "tests/integration/test_inspections.py::test_an_address_under_two_sites_is_read_once_for_each",
    ),
    Mutant(
        4,
        "the rules of extraction are not in a report's revision",
        "assets/inspections/planning.py",
        '"version": EXTRACTION_VERSION, "rules": rules})',
        '"version": EXTRACTION_VERSION})',
        "tests/integration/test_inspections.py::test_changed_rules_do_every_report_again",
    ),
    Mutant(
        5,
        "an alert's fingerprint is not unique",
        "resources/ledger/migrations/versions/r0001_first_tables.py",
        '        sa.UniqueConstraint("fingerprint", name=op.f("uq_alerts_fingerprint")),\n',
        "",
        "tests/unit/test_ledger_memory.py::test_the_database_itself_refuses_a_fact_twice",
    ),
    Mutant(
        5,
        "an event is written outside the transaction of its completion",
        "resources/promotion.py",
        '        reach("record.open", self.run_id)\n',
        "        from resources.ledger.row_outputs import OfferedRow\n\n"
        "        rows = [OfferedRow(done.unit_key, 'w1', row) for done in completions for row in done.rows]\n"
        "        with self.ledger.writing() as connection:\n"
        "            self.ledger.write_rows(connection, rows, now=self.ledger.clock())\n"
        '        reach("record.open", self.run_id)\n',
        "tests/crash/test_kill_points.py::test_main_process_killed[sqlite-record.open-event-1]",
    ),
    Mutant(
        5,
        "a row is inserted bare",
        "resources/ledger/row_outputs.py",
        "            self.insert_new(connection, OUTPUT_TABLES[name], values)",
        "            connection.execute(OUTPUT_TABLES[name].insert(), values)",
        "tests/unit/test_ledger_rows.py::test_the_first_event_stays",
    ),
    Mutant(
        6,
        "one unit's failure ends the worker's whole row",
        "resources/staging.py",
        "    except Exception as error:\n        failure = classify(error)",
        "    except OSError as error:\n        failure = classify(error)",
        "tests/integration/test_engine_failures.py::test_one_failure_never_stops_another",
    ),
    Mutant(
        7,
        "a unit that died with others at work is charged",
        "resources/failures.py",
        "        if ended.fate is not Fate.RETURNED and not ended.alone:",
        "        if False:",
        "tests/integration/test_engine_failures.py::test_who_dies_with_others_at_work_is_not_charged_and_is_tried_alone",
    ),
    Mutant(
        8,
        "what is unknown is retried",
        "resources/verdicts.py",
        "    return Failure(Verdict.QUARANTINE, ErrorKind.UNCLASSIFIED, _describe(error))",
        "    return Failure(Verdict.RETRY, ErrorKind.UNCLASSIFIED, _describe(error))",
        "tests/integration/test_engine_failures.py::test_unknown_failure_is_tried_once",
    ),
    Mutant(
        9,
        "a retry asks for partitions that are not due",
        "pipelines/failed_partitions.py",
        "if order[name] == order[before] + 1 and",
        "if order[name] <= order[before] + 2 and",
        "tests/unit/test_failed_partitions.py",
    ),
    Mutant(
        10,
        "promote overwrites",
        "resources/store.py",
        "            _rename_without_replace(staged, final)\n        except FileExistsError:\n            return False",
        "            os.replace(staged, final)\n        except FileExistsError:\n            return False",
        "tests/crash/test_two_writers.py::test_late_writer_changes_nothing[sqlite-promote.ready-file]",
    ),
    Mutant(
        10,
        "a late writer's record is taken",
        "resources/ledger/attempts.py",
        "            is_runnable = units.c.state.in_(_RUNNABLE)",
        "            is_runnable = units.c.state.is_not(None)",
        "tests/unit/test_ledger_attempts.py::test_each_unit_is_won_once",
    ),
    Mutant(
        11,
        "the run-end check does not see a missing output",
        "resources/reconciliation.py",
        "        if size is None:\n            found.append(",
        "        if size is None and False:\n            found.append(",
        "tests/integration/test_dagster_ticks.py::test_the_check_job_names_a_planted_discrepancy",
    ),
    Mutant(
        11,
        "the run-end check does not see a key that is not unique",
        "resources/reconciliation.py",
        "        if row.units != row.planned",
        "        if False",
        "tests/crash/test_two_writers.py::test_key_that_is_not_unique_is_named",
    ),
    Mutant(
        12,
        "a run with unsettled partitions returns normally",
        "resources/io_managers.py",
        "        if len(settled) == len(report.partitions) == len(obj.batch.partitions) and report.stopped_by is None:",
        "        if True:",
        "tests/integration/test_dagster_ticks.py::test_only_the_failed_partition_is_run_again_and_only_its_incomplete_unit",
    ),
    Mutant(
        13,
        "an alert is noted as delivered before it is sent",
        "resources/alerts.py",
        "            elif channel.name not in failed and channel.send(row.title, row.body, row.severity):",
        "            elif channel.name not in failed and (channel.send(row.title, row.body, row.severity) or True):",
        "tests/unit/test_alerts.py::test_alerts_are_kept_while_the_channel_is_down",
    ),
    Mutant(
        14,
        "a record that another takes the place of is forgotten",
        "resources/ledger/row_outputs.py",
        "        _move_to_history(connection, table, table.c.output_uri.in_(differing), why=_REPLACED, now=now)",
        "        connection.execute(delete(table).where(table.c.output_uri.in_(differing)))",
        "tests/unit/test_ledger_rows.py::test_a_record_is_upserted_with_its_history",
    ),
    Mutant(
        14,
        "an output that does not verify is deleted",
        "resources/store.py",
        "        os.rename(final, aside)",
        "        os.unlink(final)",
        "tests/integration/test_engine_failures.py::test_tampered_output_is_kept_aside_and_done_again",
    ),
)


def kill(mutant: Mutant, folder: Path) -> str:
    """Break the line in a copy and run the test: empty when it failed as it must, else what is wrong."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, ignore=_SKIPPED)
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"the line stands {text.count(mutant.old)} times in {mutant.file}; name it again"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.test],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 1 and " failed" in done.stdout:
        return ""
    return f"survived: pytest exited with {done.returncode}\n{done.stdout[-1500:]}"


def main(wanted: set[int]) -> int:
    """Kill every mutant, or those of some invariants; 1 when one survives."""
    wrong = 0
    for mutant in MUTANTS:
        if wanted and mutant.invariant not in wanted:
            continue
        with tempfile.TemporaryDirectory() as name:
            problem = kill(mutant, Path(name))
        wrong += bool(problem)
        print(
            f"invariant {mutant.invariant:2}  {'SURVIVED' if problem else 'killed  '}  {mutant.breaks}  [{mutant.file}]",
            flush=True,
        )
        if problem:
            print(problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main({int(number) for number in sys.argv[1:]}))
