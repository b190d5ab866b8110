"""Predicting and learning the rows of a stream of text, so that a killed run resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.datasets.linecolumns import LineOptions
from streamgda.datasets.linerows import LineRows, Rows
from streamgda.datasets.lines import Block, LineReader, Position
from streamgda.datasets.predictions import Predictions
from streamgda.datasets.textlabels import TextLabels, as_classes
from streamgda.engine.fingerprints import REMEDY, refuse_others
from streamgda.errors import CheckpointError, InvalidParameterError, SourceError
from streamgda.estimators.base import MomentClassifier
from streamgda.estimators.checkpoint import Checkpoint
from streamgda.estimators.online import OnlineClassifier
from streamgda.estimators.online_drift import OnlineDrift
from streamgda.estimators.validation import names_in
from streamgda.moments import ClassMoments
from streamgda.storage.checks import check_whole


@dataclass
class Counts:
    """Numbers of rows of a stream.

    Attributes
    ----------
    rows : int
        All rows, also those that could not be read.
    bad : int
        Rows that could not be read.
    learnt : int
        Rows with a label.
    scored : int
        Rows with a label and a prediction.
    right : int
        Rows whose prediction is their label.
    """

    rows: int = 0
    bad: int = 0
    learnt: int = 0
    scored: int = 0
    right: int = 0


@dataclass(frozen=True)
class OnlineOptions:
    """Options of a run over a stream.

    Attributes
    ----------
    source : str
        Path of a file; ``"-"`` for standard input.
    lines : LineOptions
    output : Path, optional
        File for the predictions; standard output by default.
    follow : bool
        Wait for more rows at the end of the file.
    strict : bool
        Stop with `SourceError` at the first line that cannot be read.
    proba : bool
        Write a probability for each class that is known at the start.
    classes : sequence of str, optional
        All labels that may occur; they are classes before their first row.
    half_life, batch_rows
        See `OnlineClassifier`.
    drift_window : int
        See `OnlineDrift`, which is not in the checkpoint.
    """

    source: str
    lines: LineOptions
    output: Path | None = None
    follow: bool = False
    strict: bool = False
    proba: bool = False
    classes: tuple[str, ...] | None = None
    half_life: float | None = None
    batch_rows: int = 1000
    drift_window: int = 0

    def described(self) -> dict[str, str]:
        """Return what a run that resumes must have in common, as texts."""
        every = asdict(self.lines) | asdict(self)
        free = ("lines", "follow", "strict", "drift_window")
        return {name: str(value) for name, value in every.items() if name not in free}


@dataclass
class _Begin:
    """The place at which a run begins: the start of a stream, or that of a checkpoint.

    Attributes
    ----------
    position : Position
    output : int
        Size of the output.
    columns : list, optional
        Classes whose probabilities are written.
    counts : Counts
    """

    position: Position = field(default_factory=Position)
    output: int = 0
    columns: list[Any] | None = None
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def of(cls, offset: Any, description: Mapping[str, str], where: str) -> _Begin:
        """Return the place that a checkpoint holds.

        Raises
        ------
        CheckpointError
            If the checkpoint is that of another run, or of other work.
        """
        try:
            refuse_others(offset["stream"], description, where)
            return cls(
                Position(*(check_whole("position", n, 0) for n in offset["position"])),
                check_whole("output", offset["output"], 0),
                offset["columns"],
                Counts(**{k: check_whole(k, n, 0) for k, n in offset["counts"].items()}),
            )
        except CheckpointError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{where} is not the checkpoint of such a stream: {error!r}. {REMEDY}"
            ) from None


class OnlineRun:
    """A run over a stream: each row is predicted, and then learnt if it has a label.

    A checkpoint holds what was learnt from the rows before a position, and the size of the output
    at that position. So a run that resumes there neither loses nor repeats a row.

    Parameters
    ----------
    estimator : MomentClassifier
        Fitted or not. It learns, unless there is one in the checkpoint.
    options : OnlineOptions
    checkpoint : Checkpoint, optional
        It may be that of a run that was killed, which resumes.
    about : dict of str
        More for the checkpoint that a run that resumes must have in common.
    on_bad : callable
        Called with a text for each line that cannot be read: its place and the reason.
    stopped : callable
        Returns True when the run should end.

    Attributes
    ----------
    counts : Counts
        Of all rows so far, also before the checkpoint.
    learner : OnlineClassifier
    drift : OnlineDrift
    lines : LineReader
        Defined once the run has begun.

    Raises
    ------
    CheckpointError
        If the checkpoint is that of another run.
    InvalidParameterError
        If nothing can be learnt from a stream with such an estimator.
    """

    lines: LineReader
    _parser: LineRows
    _output: Predictions

    def __init__(
        self,
        estimator: MomentClassifier,
        options: OnlineOptions,
        checkpoint: Checkpoint | None = None,
        about: Mapping[str, str] | None = None,
        *,
        on_bad: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._options, self._checkpoint = options, checkpoint
        self._description = {**options.described(), **(about or {})}
        self._on_bad, self._stopped = on_bad, stopped
        self._begin = _Begin()
        if checkpoint is not None and checkpoint.offset is not None:
            self._begin = _Begin.of(checkpoint.offset, self._description, str(checkpoint))
            if isinstance(checkpoint.state, MomentClassifier):
                estimator = checkpoint.state
        self.counts = self._begin.counts
        self._labels, classes = _labels_of(estimator, options.classes)
        self.learner = OnlineClassifier(
            estimator,
            half_life=options.half_life,
            batch_rows=options.batch_rows,
            classes=classes,
            rows=self.counts.rows,
        )
        self.drift = OnlineDrift(estimator, options.drift_window)
        if options.proba and self._begin.columns is None:
            if self._labels.classes is None:
                raise InvalidParameterError(
                    "proba needs a column for each class: give the classes, or a fitted estimator"
                )
            self._begin.columns = self._labels.classes.tolist()

    def steps(self) -> Iterator[None]:
        """Run to the end of the stream; yield between blocks of lines, and while it is idle.

        Raises
        ------
        SourceError, InvalidDataError, CheckpointError
            If the stream lacks columns, or is not the one that was read before.
        """
        options, begin, whole = self._options, self._begin, self._checkpoint is not None
        estimator = self.learner.estimator
        width = getattr(estimator, "n_features_in_", None)
        reading = LineReader.opened(
            options.source, self._stopped, follow=options.follow, whole=whole
        )
        with reading as self.lines:
            first = self.lines.first()
            if self._stopped():
                return
            lines = replace(options.lines, names=names_in(estimator), n_features=width)
            self._parser = lines.reader(first, self.lines.name, self._labels)
            if self._parser.named:
                self.learner.names = self._parser.names
            self.lines.skip(begin.position)
            if self._stopped():
                return
            self._block, self._line = Block(b"", begin.position), 0
            with Predictions.opened(options.output, begin.output, begin.columns) as self._output:
                if not begin.position.size:
                    self.save()
                    self._output.start()
                for block in self.lines.blocks():
                    if block is not None:
                        self._take(block)
                        self._output.file.flush()
                    yield
                self.finish()

    def finish(self) -> None:
        """Learn all rows that were predicted, and save the checkpoint."""
        self.learner.learn()
        self.save()

    def save(self) -> None:
        """Save the checkpoint, if there is one; all rows so far must have been learnt."""
        if self._checkpoint is None:
            return
        offset = {
            "stream": dict(self._description),
            "position": astuple(self._block.after(self._line)),
            "counts": asdict(self.counts),
            "output": self._output.size(),
            "columns": self._begin.columns,
        }
        estimator = self.learner.estimator
        learnt = hasattr(estimator, "moments_")
        self._checkpoint.save(estimator if learnt else ClassMoments(), offset)

    def _take(self, block: Block) -> None:
        """Predict and learn the rows of a block of lines."""
        rows, start = self._parser.rows(block), 0
        self._block, self._line = block, 0
        n_rows = min(rows.bad) if rows.bad and self._options.strict else len(rows.labels)
        while start < n_rows:
            if self._stopped():
                return
            stop = min(start + self.learner.left, n_rows)
            ended = self._take_part(rows, start, stop)
            self._line, start = int(rows.lines[stop - 1]), stop
            if ended and self._checkpoint is not None and self._checkpoint.due:
                self.save()
        if n_rows < len(rows.labels):
            self.finish()
            raise SourceError(self._place(rows, n_rows))
        self._line = len(block.ends)

    def _place(self, rows: Rows, row: int) -> str:
        """Return the place of a line that cannot be read, and the reason."""
        line = self._block.start.lines + int(rows.lines[row])
        return f"{self.lines.name}, line {line}: {rows.bad[row]}"

    def _take_part(self, rows: Rows, start: int, stop: int) -> bool:
        """Predict rows that end a block of the learner or are within it, and add them to it."""
        X, labels, counts = rows.X[start:stop], rows.labels[start:stop], self.counts
        bad = [row for row in range(start, stop) if row in rows.bad] if rows.bad else []
        for row in bad:
            self._on_bad(self._place(rows, row))
        good = np.delete(np.arange(stop - start), np.array(bad, np.intp) - start)
        found = self._output.write(self.learner, X, good)
        self.drift.update(X[good], [labels[n] for n in good])
        labelled = [n for n, label in enumerate(labels) if label is not None]
        scored = [pair for pair in zip(found, labels, strict=True) if None not in pair]
        counts.rows += stop - start
        counts.bad += len(bad)
        counts.learnt += len(labelled)
        counts.scored += len(scored)
        counts.right += sum(prediction == label for prediction, label in scored)
        if len(labelled) < len(X):
            X, labels = X[labelled], [labels[n] for n in labelled]
        return self.learner.add(X, labels, stop - start)


def _labels_of(
    estimator: MomentClassifier, classes: Sequence[str] | None
) -> tuple[TextLabels, np.ndarray | None]:
    """Return the reader of labels, and the classes that are declared."""
    declared = None if classes is None else as_classes(classes)
    known = estimator.classes_ if hasattr(estimator, "moments_") else declared
    given = any(getattr(estimator, name, None) is not None for name in ("priors", "class_prior"))
    labels = TextLabels(known, closed=given)
    try:
        return labels, None if classes is None else np.array([*map(labels.read, classes)])
    except ValueError as error:
        raise InvalidParameterError(f"classes={list(classes or ())}: {error}") from None
