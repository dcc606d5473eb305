"""The local executor: this machine, without a server.

Its workers are threads of this process by default: FAISS, torch and Arrow release the interpreter while they
compute, and threads share the opened index. Spawned processes are for tasks that hold the interpreter, or
that may bring their process down.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from locdist.execute import machine
from locdist.execute.contract import check_workers
from locdist.execute.executor import Calls, Executor
from locdist.execute.seats import ProcessSeat, Seat, ThreadSeat
from locdist.execute.threads import process_limited
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Resources, Stage, Task

PULSE = 0.5  # seconds after which `map` says that nothing has ended
Inbox = queue.SimpleQueue[tuple[Task, Attempt] | None]
Outbox = queue.SimpleQueue[Finished]


@dataclass(frozen=True)
class Local(Executor):
    """Threads or processes of this machine.

    Parameters
    ----------
    workers : int, optional
        Cores to use, >= 1; by default those that this process may use (affinity and container limits). A
        stage whose tasks ask for more than one core, or for memory, gets fewer tasks at a time.
    processes : bool
        Spawned processes instead of threads. They import the script that started the run, as
        `multiprocessing` does.
    """

    workers: int | None = None
    processes: bool = False
    _seats: dict[int, list[ProcessSeat]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_workers(self.workers)

    def capacity(self) -> tuple[Resources, ...]:
        """Cores, devices and memory of this machine, or of the container that we are in."""
        return (machine.resources(self.workers),)

    def slots(self, resources: Resources) -> int:
        """Tasks at a time: as many as the cores, the memory and the devices allow, at least one."""
        cores = replace(machine.resources(), cpus=self.workers or machine.cpus())
        return max(1, cores.over(replace(resources, cpus=max(1.0, resources.cpus))))

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        threads = stage.resources.threads
        seats = self._prepared(min(self.slots(stage.resources), len(stage.tasks)), threads)
        inbox: Inbox = queue.SimpleQueue()
        outbox: Outbox = queue.SimpleQueue()
        with nullcontext() if self.processes else process_limited(threads):
            for number, seat in enumerate(seats):
                seat.take(stage.function)
                work = (seat, machine.device(number, stage.resources.gpus), inbox, outbox)
                threading.Thread(target=_work, args=work, daemon=True, name="locdist-seat").start()
            try:
                yield from _feed(calls, len(seats), inbox, outbox)
            except BaseException:  # closed, interrupted or stalled with tasks in flight
                self.close()
                raise
            finally:
                for _ in seats:
                    inbox.put(None)

    def close(self) -> None:
        """End the worker processes."""
        for seats in self._seats.values():
            for seat in seats:
                seat.close()
        self._seats.clear()

    def _prepared(self, count: int, threads: int) -> Sequence[Seat]:
        """Seats that are ready; processes are kept from stage to stage, because importing torch takes
        seconds.
        """
        if not self.processes:
            return [ThreadSeat(threads) for _ in range(count)]
        seats = self._seats.setdefault(threads, [])
        seats.extend(ProcessSeat(threads) for _ in range(count - len(seats)))
        for seat in seats[:count]:
            seat.launch()
        for seat in seats[:count]:
            seat.prepare()
        return seats[:count]


def _feed(calls: Calls, seats: int, inbox: Inbox, outbox: Outbox) -> Iterator[Finished | None]:
    """Keep as many calls in flight as there are seats."""
    in_flight = 0
    while True:
        while in_flight < seats and (call := next(calls, None)) is not None:
            inbox.put(call)
            in_flight += 1
        if in_flight == 0:
            return
        try:
            finished = outbox.get(timeout=PULSE)
        except queue.Empty:
            yield None
            continue
        in_flight -= 1
        yield finished


def _work(seat: Seat, device: str, inbox: Inbox, outbox: Outbox) -> None:
    """What the thread of a seat does until it is sent home."""
    seat.enter()
    while (call := inbox.get()) is not None:
        task, attempt = call
        outbox.put(seat.call(task, replace(attempt, device=device)))
