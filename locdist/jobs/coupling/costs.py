"""What the tasks of `couple` and `apply` need, predicted from counts."""

from locdist.plan.cost import MEASURED, Estimate

EDGE, ROUND, USUAL = 400, 2e-8, 200  # bytes of an edge; seconds of a number in a round; rounds, assumed
SPOKEN = 32  # bytes of what a node says of a shared row
HELD = 3  # copies of models that are read


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


def relax_cost(rows: int, width: int, edges: int, shared: int, nodes: int, groups: int) -> Estimate:
    """A task of a round of FedRelax: of one of the groups, which has so many rows.

    memory = base + 2 rows 8 (3 w + 8) + edges 400 + shared (8 w + 32 said), w features; `said` of twice a
    group's share of all nodes, and of the neighbors of these
    """
    said = min(2 * -(-nodes // groups), nodes) + min(4 * -(-edges // groups), nodes)
    memory = MEASURED.base + 2 * rows * 8 * (3 * width + 8) + edges * EDGE
    memory += shared * (8 * width + SPOKEN * said)
    formula = (
        f"base {MEASURED.base:,} + 2 x {rows:,} rows x 8 x (3 x {width} + 8) + {edges:,} edges x {EDGE} "
        f"+ {shared:,} shared rows x (8 x {width} + {SPOKEN} x {said:,} nodes and neighbors)"
    )
    seconds = MEASURED.task + rows * MEASURED.row
    return Estimate(memory, 0, seconds, formula, rows * 8 * (width + 2), said * shared * 8)


def fold_cost(rows: int, held: int, width: int) -> Estimate:
    """The task of a chart that is fitted on so many rows, and judged by those held out.

    memory = base + 2 rows 8 (3 w + 8) + held 8 (w + 6), w features; what the estimator needs is not known
    """
    memory = MEASURED.base + 2 * rows * 8 * (3 * width + 8) + held * 8 * (width + 6)
    formula = (
        f"base {MEASURED.base:,} + 2 x {rows:,} rows x 8 x (3 x {width} + 8) "
        f"+ {held:,} held out x 8 x ({width} + 6)"
    )
    seconds = MEASURED.task + (rows + held) * MEASURED.row
    return Estimate(memory, 0, seconds, formula, (rows + held) * 8 * (width + 2), rows * 8 * (width + 2))


def apply_cost(rows: int, width: int, kept: int, held: int) -> Estimate:
    """A task over queries, a block at a time; all models are in memory, of FedRelax all rows that these are
    fitted on again.

    memory = base + 3 held + rows (16 m + 2 kept + 64), m parameters, `held` bytes of models, `kept` bytes of
    columns that go along
    """
    m = width + 1
    memory = MEASURED.base + HELD * held + rows * (16 * m + 2 * kept + 64)
    formula = (
        f"base {MEASURED.base:,} + {HELD} x {held:,} of models "
        f"+ {rows:,} rows x (16 x {m} + 2 x {kept} kept + 64)"
    )
    seconds = MEASURED.task + 2 * rows * MEASURED.row
    return Estimate(memory, 0, seconds, formula, rows * (8 * m + kept), rows * (16 + kept))
