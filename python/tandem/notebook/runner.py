"""Runs the cells of a notebook from top to bottom, saving after each one.

A stop is SIGINT, SIGTERM or SIGHUP. The first interrupts the running cell; the second ends the
kernel. The notebook is saved in either case.
"""

import asyncio
import json
import signal
from dataclasses import dataclass
from queue import Empty
from typing import Optional

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete, DeadKernelError
from nbformat.v4 import new_output

from . import document, kernel, resume, settings
from .argv import VARIABLE as ARGV
from .errors import SaveFailed

GRACE_S = 10.0  # between an interrupt and the end of the kernel
DRAIN_S, PAUSE_S = 2.0, 0.2  # for the last outputs of a kernel that ended
START_S = 600  # for a kernel to answer, on a busy machine
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Outcome:
    """How a run ended. `state`: done, failed or stopped; `status`: of the command."""

    state: str
    status: int
    error: Optional[str] = None


class _CellFailed(Exception):
    pass


def run(prepared, display, on_progress=lambda **changes: None, stops=STOPS, patient=lambda: False):
    """Runs a prepared notebook. Returns its Outcome.

    `on_progress` is called with what changed: `cell` (the number of the running one), `finished`
    (the number of finished cells) and `kernel_pid`. `stops`: the signals that stop it. `patient`
    is asked at a stop: whether the cell may take longer than GRACE_S to end, until a second signal.
    """
    return asyncio.run(_Runner(prepared, display, on_progress, patient).main(stops))


class _Client(NotebookClient):
    """An nbclient that shows each message of the kernel."""

    on_message = None

    def process_message(self, msg, cell, cell_index):
        """Handles a message of the running cell."""
        self.on_message(msg)
        return super().process_message(msg, cell, cell_index)


class _Runner:
    def __init__(self, prepared, display, on_progress, patient):
        self._settings = prepared.settings
        self._notebook = prepared.notebook
        self._plan = prepared.plan
        self._display = display
        self._on_progress = on_progress
        self._patient = patient
        self._steps = document.steps(prepared.notebook)
        self._places = {id(cell): place for place, cell in enumerate(prepared.notebook.cells)}
        self._kernel = kernel.Kernel(prepared)
        self._client = _Client(
            self._notebook,
            km=self._kernel.manager,
            allow_errors=True,  # the reply says whether a cell failed
            startup_timeout=START_S,
            timeout=None,
        )
        self._client.on_message = self._on_message
        self._client.on_cell_executed = self._on_reply
        self._finished = prepared.plan.finished
        self._started = False  # before that, the output file stays as it was
        self._cell = 0  # the number of the running cell
        self._reply = {}
        self._request = None  # the id that its messages name
        self._began = False  # the kernel has begun the running cell
        self._interrupt_wanted = False
        self._timed_out = False
        self._stop = None  # the signal
        self._unsaved = None  # why the last save failed
        self._failures = []

    # ---- the run

    async def main(self, stops):
        """Runs all cells. Returns the Outcome."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        for number in stops:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # as nohup wants it
            self._loop.add_signal_handler(number, self._on_stop, number)
        ticker = self._loop.create_task(self._tick()) if self._display.live else None
        self._loop.add_reader(self._kernel.said.reader, self._on_said)
        try:
            if self._finished < len(self._steps):
                await self._run_all()
            return self._finish()
        except _CellFailed:
            return self._finish()
        except asyncio.CancelledError:
            if self._stop is None:
                raise
            self._task_uncancel()
            return self._finish()
        finally:
            if ticker:
                ticker.cancel()
            await self._close()

    async def _run_all(self):
        await self._start()
        self._save("running")
        for number, cell in enumerate(self._steps, 1):
            if number in self._plan.skipped:
                continue
            await self._step(number, cell)
            if self._stop is not None:
                return

    async def _start(self):
        self._on_progress(cell=0, finished=self._finished)
        chosen = self._settings
        environment = kernel.environment(
            leave_run=chosen.launch.unshared,
            **{
                ARGV: json.dumps([chosen.notebook, *chosen.args]),
                settings.RUNNING: settings.running_variable(chosen.notebook),
            },
        )
        try:
            await self._kernel.start(self._client, environment, chosen.folder)
            reply = await self._client.async_wait_for_reply(self._client.kc.kernel_info())
            self._notebook.metadata["language_info"] = reply["content"]["language_info"]
        except asyncio.CancelledError:
            raise
        except Exception as error:  # of nbclient, jupyter_client, the system
            self._show_last_words()
            reason = self._kernel.describe_end() if self._kernel.pid else str(error)
            self._fail(f"the kernel did not start: {reason}")
        self._started = True
        self._on_progress(kernel_pid=self._kernel.pid)

    async def _step(self, number, cell):
        again = number <= self._plan.finished
        self._cell, self._reply = number, {}
        self._began = self._interrupt_wanted = self._timed_out = False
        self._display.cell(number, len(self._steps), again)
        self._on_progress(cell=number, finished=self._finished)
        limit = self._settings.timeout_s
        timer = self._loop.call_later(limit, self._on_timeout) if limit else None
        try:
            await self._client.async_execute_cell(cell, self._places[id(cell)], number)
        except DeadKernelError:
            await self._drain(cell)
            self._on_death(cell)
        finally:
            if timer:
                timer.cancel()
        self._number(cell, number)
        if self._stop is None:
            self._judge(number, cell)
        if self._stop is None or self._reply.get("status") == "ok":
            self._finished = max(self._finished, number)
        self._cell = 0
        self._save("running")
        self._on_progress(finished=self._finished)

    def _judge(self, number, cell):
        """Raises _CellFailed where the cell failed and that is not allowed."""
        expected = "raises-exception" in document.tags(cell)
        if not self._timed_out and (self._reply.get("status") == "ok" or expected):
            return
        if self._timed_out:
            reason = f"it ran longer than {self._settings.timeout_s:g} s (--timeout)"
        else:
            reason = f"{self._reply.get('ename')}: {self._reply.get('evalue')}"
        error = f"cell {number} of {len(self._steps)} failed: {reason}"
        if not self._settings.allow_errors:
            self._finished = number - 1
            self._fail(error)
        self._failures.append(error)
        self._display.note(error)

    async def _drain(self, cell):
        """Takes the outputs that a kernel sent before its end."""
        end = self._loop.time() + DRAIN_S
        while (left := end - self._loop.time()) > 0:
            try:
                message = await self._client.kc.iopub_channel.get_msg(timeout=min(left, PAUSE_S))
                if message["parent_header"].get("msg_id") == self._request:
                    self._client.process_message(message, cell, self._places[id(cell)])
            except (Empty, CellExecutionComplete):
                return

    def _on_death(self, cell):
        if self._stop is not None:
            return
        self._show_last_words()
        self._finished = self._cell - 1
        if self._timed_out:
            limit = self._settings.timeout_s
            reason = f"it ran longer than {limit:g} s (--timeout) and did not react to an interrupt"
            error = f"cell {self._cell} of {len(self._steps)} failed: {reason}"
        else:
            end = self._kernel.describe_end()
            error = f"the kernel ended in cell {self._cell} of {len(self._steps)}: {end}"
        cell.outputs.append(new_output("error", ename="Ended", evalue=error, traceback=[error]))
        self._fail(error)

    def _fail(self, error):
        self._cell = 0
        self._failures.append(error)
        self._display.note(error)
        raise _CellFailed

    def _finish(self):
        """Saves the end. Returns the Outcome."""
        total, output = len(self._steps), self._settings.output
        if self._stop is not None and self._finished < total:
            at = f"stopped by {self._stop.name} with {self._finished} of {total} cells finished"
            outcome = Outcome("stopped", 128 + self._stop, at)
        elif self._failures:
            outcome = Outcome("failed", 1, self._failures[0])
        else:
            outcome = Outcome("done", 0)
        if self._started:
            self._save(outcome.state)
        self._display.end()
        if self._unsaved:
            self._display.note(f"{self._unsaved}; the last outputs are lost")
            state = "failed" if outcome.state == "done" else outcome.state
            return Outcome(state, outcome.status or 1, outcome.error or self._unsaved)
        what = outcome.error if outcome.state == "stopped" else outcome.state
        if self._started:
            self._display.summary(f"{what}; saved in {output}")
        return outcome

    def _save(self, state):
        """Saves the notebook. A failure is said, and the next cell's save tries again."""
        resume.note_progress(
            self._notebook, state, self._finished, self._settings.parameters, self._settings.args
        )
        self._client.set_widgets_metadata()
        try:
            document.save(self._notebook, self._settings.output)
            self._unsaved = None
        except SaveFailed as error:
            if self._unsaved is None:
                self._display.note(f"{error}; the file keeps its earlier content")
            self._unsaved = str(error)

    @staticmethod
    def _number(cell, number):
        """Numbers a cell and its results; a resumed kernel counts otherwise."""
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number

    # ---- events

    def _on_message(self, message):
        self._request = message["parent_header"].get("msg_id")
        if message["msg_type"] == "execute_input":
            self._began = True
            if self._interrupt_wanted:
                self._interrupt()
        elif self._cell > self._plan.finished or message["msg_type"] == "error":
            self._display.message(message)

    def _on_reply(self, execute_reply, **_):
        self._reply = execute_reply["content"]

    def _on_said(self):
        """Shows what the kernel wrote past the notebook. Returns whether there may be more."""
        try:
            text = self._kernel.said.read()
        except BlockingIOError:
            return False
        if text is None:
            self._loop.remove_reader(self._kernel.said.reader)
            return False
        self._display.stderr(text)
        return True

    def _show_last_words(self):
        while self._on_said():
            pass

    def _on_stop(self, number):
        if self._stop is not None:
            self._end_at_once()
            return
        self._stop = signal.Signals(number)
        if not self._cell:
            self._task.cancel()
            return
        again = "; a second Ctrl-C ends it at once" if number == signal.SIGINT else ""
        self._display.note(f"{self._stop.name}: interrupting cell {self._cell}{again}")
        self._interrupt()
        if number != signal.SIGINT and not self._patient():
            self._loop.call_later(GRACE_S, self._end_at_once)

    def _on_timeout(self):
        self._timed_out = True
        self._interrupt()
        cell = self._cell
        self._loop.call_later(GRACE_S, lambda: self._cell == cell and self._kernel.kill())

    def _interrupt(self):
        """Interrupts the running cell. An IPython kernel ignores interrupts before it begins."""
        self._interrupt_wanted = not self._began
        if self._began:
            self._interrupting = self._loop.create_task(self._kernel.interrupt())

    def _end_at_once(self):
        self._kernel.kill()
        self._task.cancel()

    def _task_uncancel(self):
        """Lets the task await again after a cancellation (counted since Python 3.11)."""
        uncancel = getattr(self._task, "uncancel", None)
        while uncancel and self._task.cancelling():
            uncancel()

    async def _tick(self):
        while True:
            await asyncio.sleep(1)
            self._display.tick()

    async def _close(self):
        """Ends the kernel, in bounded time."""
        try:
            await asyncio.wait_for(self._kernel.close(self._client), GRACE_S)
        except (Exception, asyncio.CancelledError):
            self._kernel.kill()
        self._loop.remove_reader(self._kernel.said.reader)
        self._kernel.said.close()
