"""Work that another run has started, resumed with the same slabs after a check of the rows."""

from __future__ import annotations

from streamgda.engine.fingerprints import REMEDY, SeenSlabs
from streamgda.engine.journal import RowJournal
from streamgda.engine.outputs import Output
from streamgda.errors import CheckpointError
from streamgda.rows.sources import RowSource, Slabs


def resume(
    work: RowJournal | Output, plan: Slabs, rows: RowSource, *companions: RowSource
) -> Slabs:
    """Return the slabs of the run that is resumed, or those planned if there is none.

    Parameters
    ----------
    work : RowJournal or Output
        Gets the fingerprints of the rows, to which those of further slabs are added.
    plan : Slabs
    rows, *companions : RowSource

    Raises
    ------
    CheckpointError
        If the rows are not those of that run, or what it has kept is damaged.
    """
    if work.kept is not None:
        slab_rows = work.kept.get("slab_rows")
        most = rows.n_rows * getattr(work, "n_passes", 1)
        if not isinstance(slab_rows, int) or slab_rows < 1 or not 0 <= work.done <= most:
            raise CheckpointError(
                f"{work} is damaged: {work.done} rows in slabs of {slab_rows}. {REMEDY}"
            )
        plan = plan.resumed(slab_rows)
    work.seen = SeenSlabs(rows, companions, plan.n_rows)
    if work.kept is not None:
        work.seen.check(work.kept, min(work.done, rows.n_rows), str(work))
    return plan
