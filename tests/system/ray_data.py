"""A Ray dataset through `locdist.ray`, in a process of its own, on a cluster of two CPUs that ends with it:

python -m tests.system.ray_data FOLDER

FOLDER has "queries" and "index"; the answers go to a folder beside them for each case.
"""

import sys
from pathlib import Path

import ray
import ray.data

import locdist as ld

METHOD = "local-linear"


EXPLAINED = {"keep": "town", "extras": ["spread"], "explain": 2}


def main(folder: Path) -> None:
    """Read, answer, write."""
    small = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    ray.init("local", log_to_driver=False, **small)
    ray.data.DataContext.get_current().enable_progress_bars = False
    queries, index = ray.data.read_parquet(str(folder / "queries")), str(folder / "index")
    cases = {
        "predict": ld.ray.predict(queries, METHOD, index, **EXPLAINED),
        "numpy": queries.map_batches(ld.ray.Predictor(METHOD, index, **EXPLAINED), batch_size=7),
        "actors": queries.map_batches(
            ld.ray.Predictor,
            fn_constructor_kwargs={"method": METHOD, "index": index, "keep": "town"},
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=1),
        ),
    }
    for case, answers in cases.items():
        answers.write_parquet(str(folder / case))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
