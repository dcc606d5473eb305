"""The peers: FAISS searching the very lists of our index, and scikit-learn's neighbors."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import faiss
import numpy as np
import numpy.typing as npt
import torch
from sklearn.neighbors import KNeighborsRegressor

from locdist.search.generation import Generation
from tests.speed.inputs import Inputs, Matrix, read
from tests.speed.timing import timed

TRIED = 200  # queries that choose scikit-learn's algorithm
ALGORITHMS = ("brute", "kd_tree")  # a ball tree takes 25 times as long as a k-d tree on these data
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Faiss:
    """FAISS's own search with our centroids, codes and nprobe, all in memory, queries sorted by home list.

    Sorting is not in its time, finding the home lists is: FAISS does that in `search`.
    """

    index: faiss.IndexIVF
    queries: Matrix
    k: int
    nprobe: int
    threads: int

    @staticmethod
    def of(generation: Generation, keys: Matrix, k: int, nprobe: int, threads: int) -> "Faiss":
        lists = generation._files.lists
        asked = generation._search_space(torch.from_numpy(keys))
        homes = lists.assign(asked, 1)[1][:, 0]
        queries = np.ascontiguousarray(asked[np.argsort(homes, kind="stable")])
        return Faiss(in_memory(lists._index), queries, k, nprobe, threads)

    def search(self) -> npt.NDArray[np.int64]:
        """One call with all queries."""
        faiss.omp_set_num_threads(self.threads)
        return self._ids(self.queries)

    def slices(self) -> npt.NDArray[np.int64]:
        """One contiguous slice of the queries for each thread."""
        with ThreadPoolExecutor(self.threads, initializer=faiss.omp_set_num_threads, initargs=(1,)) as pool:
            return np.concatenate(list(pool.map(self._ids, np.array_split(self.queries, self.threads))))

    def _ids(self, queries: Matrix) -> npt.NDArray[np.int64]:
        parameters = faiss.SearchParametersIVF(nprobe=self.nprobe)
        return self.index.search(queries, self.k, params=parameters)[1]


def in_memory(mapped: faiss.IndexIVF) -> faiss.IndexIVF:
    """The same index with its lists in memory, and with ids: positions over all lists, as in a generation.

    The centroids are borrowed: an opened generation stays open in its process.
    """
    theirs, first = mapped.invlists, 0
    lists = faiss.ArrayInvertedLists(theirs.nlist, theirs.code_size)
    for number in range(theirs.nlist):
        rows = theirs.list_size(number)
        ids = np.arange(first, first + rows)
        lists.add_entries(number, rows, faiss.swig_ptr(ids), theirs.get_codes(number))
        first += rows
    index = faiss.IndexIVFScalarQuantizer(
        mapped.quantizer, mapped.d, mapped.nlist, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2, False
    )
    index.is_trained, index.ntotal = True, first
    index.replace_invlists(lists, True)
    lists.this.disown()  # the index deletes them
    return index


@dataclass
class Sklearn:
    """`KNeighborsRegressor` with the algorithm that answers a few hundred queries soonest."""

    model: KNeighborsRegressor
    queries: Matrix
    tried: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(inputs: Inputs, queries: Matrix, threads: int) -> "Sklearn":
        """Fit each algorithm, which is not in its time, and keep the best."""
        keys, targets = read(inputs.support)
        few, tried, best = queries[:TRIED], {}, None
        for algorithm in ALGORITHMS:
            model = KNeighborsRegressor(inputs.sizes.k, algorithm=algorithm, n_jobs=threads).fit(
                keys, targets
            )
            tried[algorithm] = timed(lambda model=model: model.predict(few)).wall
            best = model if tried[algorithm] == min(tried.values()) else best
        return Sklearn(best, queries[: inputs.sizes.peer_queries], tried)

    def predict(self) -> Numbers:
        return np.asarray(self.model.predict(self.queries))


def tricube(distances: Numbers) -> Numbers:
    """The weights of `local_mean` for scikit-learn: [q, k] true distances, sorted."""
    return (1 - (distances / (1.0000001 * distances[:, -1:])) ** 3) ** 3


def agreement(one: Numbers, other: Numbers) -> float:
    """Share of predictions [q] that are equal to a relative 1e-6: those whose neighbors were all found."""
    return float(np.isclose(one, other, rtol=1e-6, atol=1e-9).mean())
