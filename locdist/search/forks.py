"""What a forked child may still do.

A child that is forked after OpenMP has run hangs in its first parallel region, because the team of threads
that the parent kept is not there. locdist never forks, but its users do (a pool of multiprocessing, torch's
DataLoader, web servers that load before they fork). In their children every library uses one thread, which
needs no team.
"""

import os

import faiss
import torch


def _alone() -> None:
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_alone)  # once, when this module is imported
