"""The first line of a worker's standard input: its connection, with the key."""

import contextlib
import json


def send(process, connection):
    """Writes `connection`, a dict, to the standard input of `process`, a `subprocess.Popen`.

    A process that has ended gets nothing. It says why on its standard error.
    """
    try:
        process.stdin.write(json.dumps(connection).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        # The line stays in the buffer, and each later close would raise again.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
