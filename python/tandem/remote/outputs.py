"""Shows the outputs of a worker's cell as outputs of the local one, and asks the user for input."""

import getpass
import sys


class Outputs:
    """Receives the messages of a cell's iopub and hands each to the local shell.

    Under ipykernel everything arrives in the front end as from a local cell: pictures, updated
    displays, progress bars and widgets. In a terminal, text does.
    """

    def __init__(self, shell):
        self._shell = shell
        self._kernel = getattr(shell, "kernel", None)

    def __call__(self, message):
        kind, content = message["header"]["msg_type"], message["content"]
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(content, message)

    def _stream(self, content, _):
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
        stream.flush()

    def _display_data(self, content, _, update=False):
        self._flush()
        self._shell.display_pub.publish(
            content["data"],
            content.get("metadata"),
            transient=content.get("transient", {}),
            update=update,
        )

    def _update_display_data(self, content, message):
        self._display_data(content, message, update=True)

    def _clear_output(self, content, _):
        self._flush()
        self._shell.display_pub.clear_output(content.get("wait", False))

    def _execute_result(self, content, message):
        if self._kernel is None:
            text = content["data"].get("text/plain", "")
            print(f"Out[{self._shell.execution_count}]: {text}")
            return
        shown = {**content, "execution_count": self._shell.execution_count}
        self._forward("execute_result", shown, message)

    def _comm_open(self, content, message):
        if self._kernel is not None:
            self._forward(message["header"]["msg_type"], content, message)

    _comm_msg = _comm_close = _comm_open

    def _forward(self, kind, content, message):
        self._flush()
        self._kernel.session.send(
            self._kernel.iopub_socket,
            kind,
            content,
            metadata=message.get("metadata"),
            parent=self._shell.parent_header,
            buffers=message.get("buffers"),
        )

    @staticmethod
    def _flush():
        sys.stdout.flush()
        sys.stderr.flush()

    @staticmethod
    def ask(content):
        """Returns what the user answers to a prompt of the worker's cell."""
        prompt = content.get("prompt", "")
        return getpass.getpass(prompt) if content.get("password") else input(prompt)
