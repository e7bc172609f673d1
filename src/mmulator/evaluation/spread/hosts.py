"""A Dask cluster of other machines. Dask is loaded only where a caller has a client, or asks for one.

Work is cut into calls of a function, each of which depends on its arguments alone. So when a worker dies, the scheduler runs
its
calls again; if the arguments that all calls share died with it, they are sent again here.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mmulator import __version__
from mmulator.base.errors import LaunchError, MmulatorError, installs

if TYPE_CHECKING:
    from distributed import Client, Future

INSTALL = installs("cluster")
PATIENCE = 10.0  # seconds until a cluster is said to have no workers, or no scheduler
AGAIN = 3  # how often the shared arguments are sent again
ROUND = 0.2  # seconds between two looks of a thread that waits
_stopped: deque[str] = deque(maxlen=4096)  # keys of calls that are to stop; in the processes of workers


# clients ------------------------------------------------------------------------------------------------------------
def client_of(value: Any, what: str = "workers") -> Client:
    """The value as a usable client. Raises LaunchError."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(value, distributed.Client):
        raise LaunchError(
            f"{what} is of type {type(value).__name__}, not a distributed.Client",
            hint=f'{INSTALL}, and: from distributed import Client; Client("tcp://scheduler:8786")',
        )
    if value.asynchronous:
        raise LaunchError(f"{what} is an asynchronous client", hint="make it without asynchronous=True")
    if value.status != "running":
        raise LaunchError(f"{what} is a client that is {value.status}, not running")
    return value


def connect(address: str) -> Client:
    """A client of the cluster whose scheduler is at an address. Raises MmulatorError."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MmulatorError(f"Dask is not installed: {error}", hint=INSTALL) from None
    client = Client.__new__(Client)
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def begin() -> None:
        try:
            client.__init__(address, timeout=PATIENCE, set_as_default=False)
            ended.put(None)
        except Exception as error:  # another kind of server answers: a length of EiB, an unknown word
            ended.put(error)

    threading.Thread(target=begin, daemon=True).start()  # the client itself would wait for ever for a silent server
    try:
        wrong = ended.get(timeout=2 * PATIENCE)
    except queue.Empty:
        wrong = TimeoutError(f"what is there said nothing for {2 * PATIENCE:g} s")
    if wrong is None:
        return client
    client.status = "closed"  # or it would try to close what it never had, for twice as long
    reason = "what answers there is something else"
    if isinstance(wrong, (OSError, ValueError)):
        reason = next(iter(str(wrong).splitlines()), "") or type(wrong).__name__
    raise MmulatorError(
        f"there is no Dask scheduler at {address}: {reason}", hint="`dask scheduler` prints its address: tcp://HOST:8786"
    )


@contextmanager
def cluster_at(address: str | None) -> Iterator[Client | None]:
    """Context with a client of the cluster at an address, closed in the end; None for no address."""
    if address is None:
        yield None
        return
    client = connect(address)
    try:
        yield client
    finally:
        client.close()


def threads_of(client: Client) -> int:
    """Number of threads of all workers. Raises LaunchError where there are no workers."""
    if not client.nthreads():
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            hint = f"`dask worker {client.scheduler.address}` starts one" if client.scheduler else None
            raise LaunchError(f"the Dask cluster has no workers, and none came within {PATIENCE:g} s", hint=hint) from None
    return sum(client.nthreads().values())


# on a worker --------------------------------------------------------------------------------------------------------
def stop(keys: Sequence[str]) -> None:
    """Mark calls: their next question `stopped` is answered with True."""
    _stopped.extend(keys)


def stopped(key: str) -> bool:
    """Whether the call with this key is to end."""
    return key in _stopped


def tell(name: str, message: Any) -> None:
    """Send a message (numbers, texts, bytes, lists of them) to the process that waits for the calls of that name."""
    from distributed import get_worker

    get_worker().log_event(name, message)


# calls --------------------------------------------------------------------------------------------------------------
class Calls:
    """Calls function(common, key, *arguments) on the workers of a cluster.

    name: of the calls, for `tell`.
    told: function that receives the workers' messages.
    """

    def __init__(
        self, client: Client, name: str, function: Callable[..., Any], common: Any, arguments: Sequence[tuple[Any, ...]],
        told: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        self.client, self.name, self.function, self.common, self.arguments = client, name, function, common, arguments
        self.told, self.address = told, client.scheduler.address if client.scheduler else "?"
        self.futures: dict[int, Future] = {}
        self.news: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self.data: Future | None = None
        self.sent = self.submitted = 0
        self.late: float | None = None  # when to raise TimeoutError

    def results(self) -> Generator[tuple[int, Any], None, None]:
        """(number, result) of each call as it ends. Closing the generator early stops the others.

        Raises MmulatorError for a call that its workers did not survive, whatever a call raises, and TimeoutError behind
        `late`.
        """
        if self.told is not None:
            self.client.subscribe_topic(self.name, lambda event: self.news.put((None, event[1])))
        try:
            self._send(range(len(self.arguments)))
            while self.futures:
                number, what = self._next()
                if number is None:
                    if self.told is not None:
                        self.told(what)
                    continue
                future: Any = self.futures.get(number)
                if future is not what:
                    continue  # result of a call that was sent again, or that is not waited for
                if future.status == "finished":
                    try:
                        result = future.result()
                    except Exception as error:
                        if not self._is_lost(error):
                            raise
                    else:
                        del self.futures[number]
                        yield number, result
                        continue
                elif future.status == "error":
                    self._failed(future.exception())
                self._send([n for n, f in self.futures.items() if f is future or f.status in ("cancelled", "lost")])
        except MmulatorError:
            raise
        except Exception as error:  # Dask's own errors, of which there are many
            if isinstance(error, TimeoutError) or not self._is_gone():
                raise
            raise self._gone() from None
        finally:
            self.halt(list(self.futures))
            self.data = None
            if self.told is not None and not self._is_gone():
                self.client.unsubscribe_topic(self.name)

    def _is_gone(self) -> bool:
        """Whether the client has lost its scheduler, or looks for it."""
        status: str = self.client.status
        return status != "running"

    def _gone(self) -> MmulatorError:
        return MmulatorError(
            f"the scheduler of the Dask cluster at {self.address} is gone", hint="its log says why; start it again, and then this"
        )

    def _next(self) -> tuple[Any, Any]:
        while True:
            self._in_time()
            try:
                return self.news.get(timeout=ROUND)
            except queue.Empty:
                if self.client.status == "closed":
                    raise self._gone() from None

    def _in_time(self) -> None:
        if self.late is not None and time.monotonic() > self.late:
            raise TimeoutError

    def _send(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        self.sent += 1
        if self.sent > AGAIN:
            raise MmulatorError(
                f"the Dask cluster lost all workers that had the data, {AGAIN} times",
                hint="the log of a worker says why: perhaps the work takes more memory than they have",
            )
        while self.client.status == "connecting":  # the client lost its scheduler, and looks for it
            self._in_time()
            time.sleep(ROUND)
        if self._is_gone():
            raise self._gone()
        try:
            threads_of(self.client)
            self.data = self.client.scatter(self.common, broadcast=True, hash=False)
        except OSError:
            time.sleep(ROUND)  # until the client knows why
            if not self._is_gone():
                raise
            self._send(numbers)
            return
        except Exception as error:
            if type(error) is not Exception:  # Dask's message about a worker that cannot read what it was sent
                raise
            raise MmulatorError(
                f"the workers of the Dask cluster cannot read what they are sent: {error}",
                hint="install mmulator, of this version, where they run",
            ) from None
        for n in numbers:
            self._submit(n)

    def _submit(self, number: int) -> None:
        self.submitted += 1
        key = f"{self.name}-{number}-{self.submitted}"
        future = self.client.submit(self.function, self.data, key, *self.arguments[number], key=key, pure=False)
        self.futures[number] = future
        future.add_done_callback(lambda future: self.news.put((number, future)))

    def aside(self, number: int) -> None:
        """Stop a call, and put it behind those that wait."""
        self.halt([number])
        self._submit(number)

    def _is_lost(self, error: BaseException) -> bool:
        from concurrent.futures import CancelledError

        return isinstance(error, CancelledError)

    def _failed(self, error: BaseException) -> None:
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            raise MmulatorError(
                f"a part of the work ended {error.allowed_failures + 1} workers of the Dask cluster, the last at "
                f"{getattr(error.last_worker, 'address', error.last_worker)}", hint="the log of that worker says why",
            )  # fmt: skip
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("mmulator"):
            raise MmulatorError(
                f"the workers of the Dask cluster have no {error.name}", hint="install mmulator, of this version, where they run"
            )
        raise error

    def halt(self, numbers: Sequence[int]) -> None:
        """Cancel calls; calls that run stop at their next question."""
        futures = [self.futures.pop(n) for n in numbers if n in self.futures]
        if not futures or self._is_gone():
            return
        try:
            self.client.run(stop, [future.key for future in futures], on_error="ignore")
            self.client.cancel(futures, force=True)
        except Exception:  # the cluster is gone: nothing is left to stop
            return


def check_version(version: str) -> None:
    """Check, on a worker, that its mmulator is of the caller's version."""
    if version != __version__:
        raise MmulatorError(f"a worker of the Dask cluster has mmulator {__version__}, and this process {version}")
