"""Figures of graphs, each from one command:

    python -m tests.speed.graphs cora FOLDER        accuracy on the fixed split; the folder of planetoid files
    python -m tests.speed.graphs spread             1 M x 16: graph and 50 sweeps
    python -m tests.speed.graphs lle --rows 50000   seconds and reconstruction error, on a surface
    --rows, --width, -k, --sweeps change the sizes; --peer 20000 asks scikit-learn, up to so many rows
    --dimensions 3 makes a solid of the surface, --noise changes that of each column

Cora is the citation graph as it was published with Yang, Cohen, Salakhutdinov, *Revisiting Semi-Supervised
Learning with Graph Embeddings*, ICML 2016: 140 labels, 1,000 test nodes.
"""

import argparse
import pickle
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import locdist as ld
from locdist.jobs.embedding import embedded
from locdist.methods.labels import LABEL_METHODS

CLASSES = 10
REACH = {"cora": 0.68, "spread": 300.0}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=["cora", "spread", "lle"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("-k", type=int, default=15)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--peer", type=int, default=0)
    parser.add_argument("--dimensions", type=int, choices=[2, 3], default=2)
    parser.add_argument("--noise", type=float, default=0.01)
    given = parser.parse_args()
    {"cora": cora, "spread": spread, "lle": lle}[given.figure](given)
    return 0


def cora(given: argparse.Namespace) -> None:
    """Accuracy of every method on the test nodes."""
    folder: Path = given.folder

    def part(name: str) -> Any:
        return pickle.loads((folder / f"ind.cora.{name}").read_bytes(), encoding="latin1")

    test = np.loadtxt(folder / "ind.cora.test.index", dtype=int)
    truth = np.concatenate([part("ally"), part("ty")]).argmax(1)
    truth[test] = part("ty").argmax(1)
    links = np.array(
        [(node, near) for node, others in part("graph").items() for near in others if near != node]
    )
    links = np.unique(np.concatenate([links, links[:, ::-1]]), axis=0)
    graph = ld.Graph.of_pairs(*links.T, nodes=len(truth))
    known = np.full(len(truth), -1)
    known[: len(part("y"))] = truth[: len(part("y"))]
    print(
        f"{len(truth):,} nodes, {len(links) // 2:,} links, {(known >= 0).sum()} labels, {len(test):,} tested"
    )
    chosen = {name: make() for name, make in LABEL_METHODS.items()}
    chosen["label-spreading, alpha 0.9"] = ld.label_spreading(0.9)
    for name, method in chosen.items():
        found = method(graph, known)
        labels = found.values.nan_to_num(-1).argmax(1).numpy()
        right = (labels == truth) & ~found.values.isnan().any(1).numpy()
        empty = int(found.values.isnan().any(1)[test].sum())
        print(f"  {name:<28}{right[test].mean():.3f}   ({empty} that no label reaches count as wrong)")
    print(f"  reach: {REACH['cora']:.3f} by label-propagation")


def points(rows: int, width: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Rows of a few hundred clusters, and a class for each cluster."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, width)).astype(np.float32) * 2
    home = rng.integers(0, 200, rows)
    return centers[home] + rng.standard_normal((rows, width), np.float32) * 0.7, home % CLASSES


def roll(rows: int, width: int, dimensions: int, noise: float) -> npt.NDArray[np.float64]:
    """A Swiss roll, 94 long and 21 wide (and 21 deep), turned in `width` columns, each with noise.

    Its neighbors make one connected graph; clusters that are apart would have no common coordinates, and an
    error of 0.
    """
    rng = np.random.default_rng(0)
    along = 1.5 * np.pi * (1 + 2 * rng.random(rows))
    across = 21 * rng.random((rows, dimensions - 1))
    place = np.column_stack([along * np.cos(along), along * np.sin(along), across])
    turn = np.linalg.qr(rng.normal(size=(width, place.shape[1])))[0]
    turned: npt.NDArray[np.float64] = place @ turn.T + noise * rng.normal(size=(rows, width))
    return turned


def spread(given: argparse.Namespace) -> None:
    """The graph and its sweeps, files to files."""
    keys, classes = points(given.rows, given.width)
    known = np.random.default_rng(1).random(given.rows) < 0.001
    names = np.array([f"class {number}" for number in range(CLASSES)])[classes]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(keys.reshape(-1)), given.width)
    with tempfile.TemporaryDirectory(prefix="locdist-bench-") as place:
        folder = Path(place)
        table = pa.table({"key": vectors, "label": pa.array(names, mask=~known)})
        (folder / "rows").mkdir()
        for part in range(8):
            size = -(-given.rows // 8)
            pq.write_table(table.slice(part * size, size), folder / f"rows/{part}.parquet")
        start, spent = time.perf_counter(), time.process_time()
        support = ld.dataset(folder / "rows", key="key")
        made = ld.graph(support, folder / "graph", k=given.k, kernel="gaussian", symmetrize="union")
        graphed, half = time.perf_counter(), time.process_time() - spent
        method = ld.label_propagation(tolerance=0.0, sweeps=given.sweeps)
        told = ld.label(method, folder / "graph", folder / "rows", folder / "out", target="label")
        end, spent = time.perf_counter(), time.process_time() - spent
        found = pa.concat_tables(pq.read_table(file) for file in sorted((folder / "out").glob("*.parquet")))
        right = np.mean(np.array(found["label"].to_pylist()) == names)
    print(f"{made}\n{told}\nright: {right:.4f}")
    print(
        f"graph {graphed - start:.1f} s ({half:.1f} s of cores), {given.sweeps} sweeps {end - graphed:.1f} s"
    )
    print(f"in all {end - start:.1f} s, {spent:.1f} s of cores")
    print(f"reach: {REACH['spread']:.0f} s for 1,000,000 x 16")
    _peers(given)


def _peers(given: argparse.Namespace) -> None:
    """Scikit-learn's dense kernel, whose matrix is n x n."""
    from sklearn.semi_supervised import LabelPropagation

    rows = 2500
    while rows <= given.peer:
        keys, classes = points(rows, given.width)
        known = np.where(np.random.default_rng(1).random(rows) < 0.02, classes, -1)
        start = time.perf_counter()
        LabelPropagation(kernel="rbf", gamma=0.5, max_iter=given.sweeps, tol=0.0).fit(keys, known)
        seconds, size = time.perf_counter() - start, 8 * rows**2 >> 20
        print(f"scikit-learn, dense kernel, {rows:,} rows: {seconds:.1f} s, {size:,} MiB")
        rows *= 2


def lle(given: argparse.Namespace) -> None:
    """Seconds and reconstruction error, in memory."""
    from sklearn.manifold import LocallyLinearEmbedding

    rows = roll(given.rows, given.width, given.dimensions, given.noise)
    start, spent = time.perf_counter(), time.process_time()
    index, method = ld.Exact(rows), ld.lle(given.k)
    made = ld.graph(index, **method.links)
    graphed = time.perf_counter() - start
    coordinates, axes, components = embedded(method, made, index)
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    print(f"{given.rows:,} x {given.width}, {components} component(s), settled: {axes.settled}")
    print(
        f"ours {seconds:.1f} s (graph {graphed:.1f} s; {spent:.1f} s of cores), error {sum(axes.values):.6g}"
    )
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if given.peer:
        rows = rows[: given.peer]
        start, spent = time.perf_counter(), time.process_time()
        peer = LocallyLinearEmbedding(n_neighbors=given.k, eigen_solver="arpack", random_state=0).fit(rows)
        other, spent = time.perf_counter() - start, time.process_time() - spent
        cosines = np.linalg.svd(coordinates.numpy()[: len(rows)].T @ peer.embedding_)[1]
        print(f"scikit-learn {other:.1f} s ({spent:.1f} s of cores), error {peer.reconstruction_error_:.6g}")
        print(f"ours is {other / seconds:.1f} x as fast; 1 - cosine of the axes {1 - cosines.min():.0e}")


if __name__ == "__main__":
    raise SystemExit(main())
