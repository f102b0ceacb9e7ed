"""Errors, grouped by what the handler should do.

Every failure the project raises on purpose is one of these; foreign exceptions are mapped onto them in `resources.verdicts`
and nowhere else. `kind` is stable: ledger rows, alerts and tests rely on it, messages are for people and may change.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Stable names of what went wrong."""

    # transient: a later try may succeed with nothing changed
    TIMEOUT = "timeout"
    SOURCE_UNAVAILABLE = "source_unavailable"
    LOCK_CONTENTION = "lock_contention"
    INPUT_CHANGED = "input_changed"
    WORKER_LOST = "worker_lost"
    STORAGE_IO = "storage_io"
    # the unit or its input is at fault: trying again gives the same answer
    CORRUPT_INPUT = "corrupt_input"
    UNREADABLE = "unreadable"
    NOT_A_RASTER = "not_a_raster"
    EMPTY_FILE = "empty_file"
    NOT_FOUND = "not_found"
    FORBIDDEN_DRIVER = "forbidden_driver"
    NO_CRS = "no_crs"
    UNSUPPORTED_CRS = "unsupported_crs"
    MIXED_CRS = "mixed_crs"
    NO_GEOTRANSFORM = "no_geotransform"
    GCPS_ONLY = "gcps_only"
    NODATA_OUT_OF_RANGE = "nodata_out_of_range"
    UNSUPPORTED_DTYPE = "unsupported_dtype"
    MISSING_BAND = "missing_band"
    TOO_LARGE = "too_large"
    UNSUPPORTED_COLOUR = "unsupported_colour"
    OUTSIDE_AREA = "outside_area"
    DAMAGED_IN_TRANSFER = "damaged_in_transfer"
    MASTER_CHANGED = "master_changed"
    NOT_A_PDF = "not_a_pdf"
    ENCRYPTED = "encrypted"
    ZERO_PAGES = "zero_pages"
    NO_TEXT = "no_text"
    MISSING_FIELD = "missing_field"
    INVALID_FIELD = "invalid_field"
    VALUE_OUT_OF_RANGE = "value_out_of_range"
    UNKNOWN_SITE = "unknown_site"
    SITE_MISMATCH = "site_mismatch"
    PERIOD_MISMATCH = "period_mismatch"
    DUPLICATE_SCENE = "duplicate_scene"
    NO_ACQUISITION_TIME = "no_acquisition_time"
    REJECTED_SCENE = "rejected_scene"
    INVALID_OUTPUT = "invalid_output"
    MEMORY_EXCEEDED = "memory_exceeded"
    CONTRACT_VIOLATED = "contract_violated"
    UNCLASSIFIED = "unclassified"
    # the surroundings are at fault: a person must act
    DISK_FULL = "disk_full"
    STORE_MISSING = "store_missing"
    STORE_UNWRITABLE = "store_unwritable"
    SOURCE_MISSING = "source_missing"
    CREDENTIALS_REFUSED = "credentials_refused"
    UNTRUSTED_HOST = "untrusted_host"
    LEDGER_UNREACHABLE = "ledger_unreachable"
    BAD_CONFIGURATION = "bad_configuration"
    BROKEN_INSTALLATION = "broken_installation"
    # outputs and ledger disagree
    OUTPUT_MISSING = "output_missing"
    OUTPUT_DIFFERS = "output_differs"
    OUTPUT_UNRECORDED = "output_unrecorded"
    DUPLICATE_KEY = "duplicate_key"
    OUTCOME_UNKNOWN = "outcome_unknown"


class Verdict(StrEnum):
    """What happens next to a failed unit (docs/failure.md)."""

    RETRY = "RETRY"
    QUARANTINE = "QUARANTINE"
    STOP = "STOP"


class TilewrightError(Exception):
    """Base of all deliberate failures. Survives pickling, so that a worker's error arrives whole."""

    default_kind: ErrorKind = ErrorKind.UNCLASSIFIED

    def __init__(self, message: str, *, kind: ErrorKind | None = None, unit_key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.unit_key = unit_key

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[TilewrightError], message: str, state: dict[str, object]) -> TilewrightError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class TransientError(TilewrightError):
    """RETRY: the same call may succeed later with nothing changed. `retry_after_s`: not before that, as the service asked."""

    default_kind = ErrorKind.SOURCE_UNAVAILABLE

    def __init__(
        self, message: str, *, kind: ErrorKind | None = None, unit_key: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, kind=kind, unit_key=unit_key)
        self.retry_after_s = retry_after_s


class UnitRejected(TilewrightError):
    """QUARANTINE: this unit cannot succeed until its input or configuration changes."""


class InputRejected(UnitRejected):
    """QUARANTINE that belongs to one input, not to the unit that met it first: one dead letter for the input."""

    default_kind = ErrorKind.CORRUPT_INPUT

    def __init__(self, message: str, *, input_digest: str, kind: ErrorKind | None = None, unit_key: str | None = None) -> None:
        super().__init__(message, kind=kind, unit_key=unit_key)
        self.input_digest = input_digest


class EnvironmentUnfit(TilewrightError):
    """STOP: not the unit's fault; the run ends early and says what a person must do."""

    default_kind = ErrorKind.STORE_MISSING


class IntegrityError(TilewrightError):
    """Outputs and ledger disagree: touch nothing, surface in reconciliation."""

    default_kind = ErrorKind.OUTPUT_DIFFERS


class OutcomeUnknown(TilewrightError):
    """A write whose reply was lost: read back by unit key, never clean up."""

    default_kind = ErrorKind.OUTCOME_UNKNOWN


class ConfigurationError(EnvironmentUnfit):
    """The configuration cannot be used: names the key, what was found and what is allowed."""

    default_kind = ErrorKind.BAD_CONFIGURATION
