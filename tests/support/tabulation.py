"""Tables of counts made cell by cell, the oracle of what is counted in pieces, and distances of two tables of codes."""

import numpy as np

from synth_core.evaluation import CodedTable
from synth_core.evaluation.cells import distances


def tabulate(codes, domain, clique):
    """Count the rows of every cell, one axis for each attribute of the clique, in its order."""
    table = np.zeros(domain.shape(clique), dtype=np.int64)
    np.add.at(table, tuple(codes[:, domain.position(attribute)] for attribute in clique), 1)
    return table


def marginal_distances(left, right, domain, clique):
    """Distances of two tables of codes on one marginal."""
    tables = [CodedTable.of(codes, domain) for codes in (left, right)]
    return distances(*(next(table.cells([clique])) for table in tables), rows=(len(left), len(right)))
