"""Progress and outputs of a running notebook, for a terminal or a log.

Outputs go to stdout as they come; tracebacks, warnings and progress to stderr. On a terminal the
progress is one line that stays current. Neither a closed reader nor a full disk stops the notebook.
"""

import os
import re
import time

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ERASE = "\r\x1b[K"


class Display:
    """Writes to the streams `out` and `err`. Without `progress`, only outputs and errors."""

    def __init__(self, out, err, progress=True):
        self._out, self._err = out, err
        self._progress = progress
        self._live = progress and err.isatty()
        self._line = ""  # what the terminal shows last
        self._state = ""
        self._since = 0.0
        self._middle = False  # the last output did not end its line

    @property
    def live(self):
        """Whether `tick` keeps a line current."""
        return self._live

    def cell(self, number, total, again=False):
        """Shows that a cell starts."""
        self._state = f"cell {number} of {total}" + (" (again)" if again else "")
        self._since = time.monotonic()
        if self._live:
            self.tick()
        elif self._progress:
            self.note(self._state)

    def tick(self):
        """Redraws the line, with the time that the cell has taken."""
        if not self._live or self._middle or not self._state:
            return
        seconds = int(time.monotonic() - self._since)
        self._line = f"{self._state} · {seconds // 60}:{seconds % 60:02}"
        self._write(self._err, f"{_ERASE}{self._line}")

    def end(self):
        """Removes the line, and gives up text that cannot be written."""
        self._state = ""
        self._erase()
        for stream in (self._out, self._err):
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)

    def note(self, text):
        """Writes one line of Tandem's own."""
        self._erase()
        glued = self._middle and (self._out is self._err or self._err.isatty())
        self._write(self._err, ("\n" if glued else "") + f"tandem: {text}\n")
        self._middle = False
        self.tick()

    def summary(self, text):
        """Writes how the run ended, where progress is wanted."""
        if self._progress:
            self.note(text)

    def stdout(self, text):
        """Writes text to stdout, as it is."""
        self._text(self._out, text)

    def stderr(self, text):
        """Writes text to stderr, as it is."""
        self._text(self._err, text)

    def message(self, message):
        """Shows an output message of a kernel."""
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self._text(self._err if content["name"] == "stderr" else self._out, content["text"])
        elif kind in ("execute_result", "display_data"):
            self._data(content["data"])
        elif kind == "error":
            text = "\n".join(content["traceback"]) or f"{content['ename']}: {content['evalue']}"
            self.stderr((text if self._err.isatty() else _ANSI.sub("", text)) + "\n")

    def _data(self, data):
        pictures = [kind for kind in data if kind.startswith("image/")]
        if pictures:
            self.stdout(f"[a picture, {pictures[0]}: see the output notebook]\n")
        elif "text/plain" in data:
            self.stdout(data["text/plain"] + "\n")

    def _text(self, stream, text):
        if not text:
            return
        self._erase()
        self._write(stream, text)
        self._middle = not text.endswith("\n")
        self.tick()

    def _erase(self):
        if self._line:
            self._write(self._err, _ERASE)
            self._line = ""

    def _write(self, stream, text):
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
        except (OSError, ValueError):
            pass  # the notebook goes on; its outputs are saved in the output file


def _discard(stream):
    """Sends the stream's text nowhere, so that the interpreter can end without an error."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # not a file, or closed
