"""What the tasks of `couple` and `apply` need, predicted from counts."""

from locdist.plan.cost import MEASURED, Estimate

EDGE, ROUND, USUAL = 400, 2e-8, 200  # bytes of an edge; seconds of a number in a round; rounds, assumed


def gather_cost(rows: int, width: int) -> Estimate:
    """A task over rows: they are in memory, with the sums of as many nodes.

    memory = base + rows 8 (4 m + 16 + m^2), m parameters
    """
    m = width + 1
    memory = MEASURED.base + rows * 8 * (4 * m + 16 + m * m)
    formula = f"base {MEASURED.base:,} + {rows:,} rows x 8 x (4 x {m} + 16 + {m}^2)"
    seconds = MEASURED.task + rows * (MEASURED.row + m * m / MEASURED.sums)
    return Estimate(memory, 0, seconds, formula, rows * 8 * (m + 2), rows * 8 * (m * m + m + 2))


def couple_cost(nodes: int, width: int, edges: int) -> Estimate:
    """The task of all rounds.

    memory = base + nodes 8 (6 m^2 + 20 m) + edges (400 + 40 m), m parameters
    """
    m = width + 1
    memory = MEASURED.base + nodes * 8 * (6 * m * m + 20 * m) + edges * (EDGE + 40 * m)
    formula = (
        f"base {MEASURED.base:,} + {nodes:,} nodes x 8 x (6 x {m}^2 + 20 x {m}) "
        f"+ {edges:,} edges x ({EDGE} + 40 x {m})"
    )
    seconds = MEASURED.task + USUAL * ROUND * (nodes * m * m + edges * m)
    return Estimate(memory, 0, seconds, formula, nodes * 8 * m * m, nodes * 16 * m)


def apply_cost(rows: int, width: int, kept: int) -> Estimate:
    """A task over queries, a block at a time.

    memory = base + rows (16 m + 2 kept + 64), m parameters, `kept` bytes of columns that go along
    """
    m = width + 1
    memory = MEASURED.base + rows * (16 * m + 2 * kept + 64)
    formula = f"base {MEASURED.base:,} + {rows:,} rows x (16 x {m} + 2 x {kept} kept + 64)"
    seconds = MEASURED.task + 2 * rows * MEASURED.row
    return Estimate(memory, 0, seconds, formula, rows * (8 * m + kept), rows * (16 + kept))
