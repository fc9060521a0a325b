#!/usr/bin/env python3
"""Which folder may include which others, and what keeps src/core pure.

The table says for every folder which other folders its files may include; everything it does not
name is forbidden. A folder may always include itself. A file belongs to the longest row that its
path starts with.

Large folders have an order of sub-folders, too: a file may include its own and those before it.
"""
import re
import subprocess
import sys

LAYERS = {
    # Headers for programs: they need nothing of ours.
    "include": [],
    "src/base": [],
    "src/core": ["src/base"],
    "src/usage": ["src/base"],
    "src/cdi": ["src/base"],
    "src/plan": ["src/base"],
    "src/wire": ["src/base"],
    # What a daemon has recorded: its records hold what core was told.
    "src/history": ["src/base", "src/core", "src/wire"],
    "src/service": ["src/base", "src/core", "src/history", "src/wire"],
    "src/client": ["src/base", "src/wire"],
    # The same code as in the daemon and in programs, in virtual time.
    "src/sim": ["src/base", "src/core", "src/wire", "src/service", "src/client", "src/plan"],
    "src/cuda": ["src/base"],
    "softgpu": ["src/base", "src/cuda", "softgpu/ptx"],
    "softgpu/ptx": ["src/base"],
    # include: the interface that it offers to programs.
    "src/shim": ["src/base", "src/client", "src/wire", "src/cuda", "include"],
    # cuda: the probe, a short-lived process, asks the driver what the card is.
    "src/daemon": [
        "src/base", "src/cdi", "src/core", "src/history", "src/usage", "src/wire", "src/service",
        "src/cuda",
    ],
    # core: the names of classes and policies, to check and to complete. cuda: a child process asks
    # whether the driver works.
    "src/cli": [
        "src/base", "src/cdi", "src/core", "src/cuda", "src/history", "src/plan", "src/usage",
        "src/wire",
    ],
    # A program of its own beside tandem: what its commands know, over HTTP.
    "src/serve": [
        "src/base", "src/cli", "src/core", "src/history", "src/plan", "src/usage", "src/wire",
    ],
    # Plugins of cluster engines: they ask the node's daemon by `tandem lease`.
    "integrations": ["src/base", "src/core"],
    "examples": ["src/base", "src/cuda", "include"],
    "bench": ["src", "softgpu", "integrations"],
    "tests": ["src", "softgpu"],
}

# The sub-folders of a folder, from the lowest up. Each C++ file lies in one of them.
ORDER = {
    "softgpu": ["ptx", "card", "engine", "memory", "driver", "api", "nvml"],
    "src/shim": [
        "os", "driver", "gate", "link", "swap", "memory", "program", "api", "hooks", "testing",
    ],
}  # fmt: skip
# What tests share: it may include all of its folder, and each test may include it.
SHARED_BY_TESTS = "testing"

# src/core takes events and the time, and returns actions: no clock, thread, socket, file or
# randomness of its own.
IMPURE_HEADERS = re.compile(
    r"<(thread|mutex|shared_mutex|condition_variable|atomic|future|semaphore|barrier|latch|"
    r"stop_token|chrono|ctime|time\.h|random|cstdio|stdio\.h|iostream|fstream|filesystem|"
    r"unistd\.h|fcntl\.h|pthread\.h|poll\.h|signal\.h|(sys|netinet|linux|arpa)/[^>]*)>"
    r'|"src/base/(mutex|unique_fd)\.h"'
)
IMPURE_CALLS = re.compile(r"\b(MonotonicNow|clock_gettime|getenv|rand)\s*\(")
# A test may draw random events, as long as it prints its seed and takes it back.
TEST_FILE = re.compile(r"_test\.(cc|h)$")
FINE_IN_TESTS = re.compile(r"<(random|iostream|cstdio)>|\bgetenv\s*\(")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?P<target>"(?P<path>[^"]+)"|<[^>]+>)')


def layer_of(path):
    rows = [row for row in LAYERS if path.startswith(row + "/")]
    return max(rows, key=len, default=None)


def may_include(layer, target):
    """Whether a file of `layer` may include the repository's file `target`."""
    owner = layer_of(target)
    return owner == layer or any((owner + "/").startswith(row + "/") for row in LAYERS[layer])


def place_of(path):
    """The folder with an order that the path is in, and the name of its sub-folder; or None."""
    for folder in ORDER:
        if path.startswith(folder + "/"):
            name, slash, _ = path.removeprefix(folder + "/").partition("/")
            return folder, name if slash else ""
    return None


def is_before_or_same(path, target):
    """Whether the order of sub-folders, if both are in one, lets `path` include `target`."""
    own, other = place_of(path), place_of(target)
    if own is None or other is None or own[0] != other[0]:
        return True
    order = ORDER[own[0]]
    if TEST_FILE.search(path) and other[1] == SHARED_BY_TESTS:
        return True
    known = own[1] in order and other[1] in order
    return not known or order.index(other[1]) <= order.index(own[1])


def impure(pattern, path, text):
    fine = TEST_FILE.search(path) and FINE_IN_TESTS.search(text)
    return pattern.search(text) and not fine


def include_violations(path, line):
    match = INCLUDE.match(line)
    if not match:
        return
    layer = layer_of(path)
    target = match["path"]
    if target is not None:
        # An example stands alone, like a program outside this repository.
        own = layer == "examples" and "/" not in target
        if layer_of(target) is None and not own:
            yield f'includes "{target}": name the repository\'s files from its root'
        elif layer_of(target) is not None and not may_include(layer, target):
            allowed = ", ".join(LAYERS[layer]) or "nothing"
            yield f'includes "{target}", but {layer} may include only {allowed} and itself'
        elif not is_before_or_same(path, target):
            folder, name = place_of(path)
            lower = ", ".join(ORDER[folder][: ORDER[folder].index(name)]) or "nothing"
            yield f'includes "{target}", but {name} may include of {folder} only {lower} and itself'
    if layer == "src/core" and impure(IMPURE_HEADERS, path, match["target"]):
        yield f"includes {match['target']}, but src/core is pure"


def violations(path):
    layer = layer_of(path)
    if layer is None:
        yield 0, "is in no folder of the layering table in tools/check_layers.py"
        return
    place = place_of(path)
    if place is not None and place[1] not in ORDER[place[0]]:
        yield 0, f"is in no sub-folder of {place[0]} that tools/check_layers.py knows"
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            for what in include_violations(path, line):
                yield number, what
            code = line.split("//", 1)[0]
            if layer == "src/core" and impure(IMPURE_CALLS, path, code):
                yield number, "asks for the time or the environment, but src/core is pure"


def main():
    listed = subprocess.run(
        ["git", "ls-files", "*.h", "*.cc", "*.def"], check=True, capture_output=True, text=True
    )
    found = 0
    for path in listed.stdout.splitlines():
        for number, what in violations(path):
            print(f"{path}:{number}: {what}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
