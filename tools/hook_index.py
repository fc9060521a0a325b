#!/usr/bin/env python3
"""The index of the shim's hooks in docs/hooks.md, made from driver_api.def and src/shim/hooks.

  hook_index.py           writes it
  hook_index.py --check   says whether it is up to date
"""
import pathlib
import re
import sys

from driver_rows import TABLE, read_rows

DOCUMENT = pathlib.Path("docs/hooks.md")
HOOKS = pathlib.Path("src/shim/hooks")
NVML = HOOKS / "nvml_hooked.def"
GENERATED = {"GATE": "gated_hooks.cc", "HOLD": "gated_hooks.cc", "REFUSE": "refused_hooks.cc"}
OWN_HOOK = re.compile(r"^CUresult (?P<symbol>cu\w+)\(", re.MULTILINE)
NVML_ROW = re.compile(r"^NVML_\w+\((?P<symbol>\w+), ", re.MULTILINE)

HEAD = f"""# The hooks of the shim

<!-- Made by tools/hook_index.py from src/cuda/driver_api.def and src/shim/hooks. -->

`libtandem.so` answers these functions in the driver's place. The class is that of the function's row in
[`driver_api.def`](../{TABLE}):

- `OWN`: the hook is written by hand.
- `GATE(stream)`: the call submits work to a stream; `nullptr` is the default stream. The generated hook
  waits at the gate and calls the driver.
- `HOLD`: the call uses device memory and is done when it returns. The generated hook waits at the gate
  and calls the driver.
- `REFUSE`: the generated hook returns `CUDA_ERROR_NOT_SUPPORTED`, and logs the reason once.
- `NVML`: a function of `libnvidia-ml.so.1`, from [`nvml_hooked.def`](../{NVML}).

[`hook_table.cc`](../{HOOKS}/hook_table.cc) replaces the function that a look-up finds by its hook.
A function of class `PASS` has no hook, and is not listed.

| function | class | file |
|---|---|---|
"""


def own_hooks():
    """Where each hook that is written by hand is defined."""
    files = {}
    for path in sorted(HOOKS.glob("*_hooks.cc")):
        for hook in OWN_HOOK.finditer(path.read_text(encoding="utf-8")):
            files[hook["symbol"]] = path.name
    return files


def index():
    """Yields (symbol, class, file) for each hook, in the order of names; file None: not found."""
    own = own_hooks()
    for row in read_rows():
        if row.hooked:
            for symbol in row.symbols:
                kind = row.shim.partition("(")[0]
                yield symbol, row.shim, own.get(symbol) if kind == "OWN" else GENERATED[kind]
    for row in NVML_ROW.finditer(NVML.read_text(encoding="utf-8")):
        yield row["symbol"], "NVML", "nvml_hooks.cc"


def link(file):
    return f"[`{file}`](../{HOOKS}/{file})"


def main():
    rows = sorted(index())
    missing = [symbol for symbol, _, file in rows if file is None]
    for symbol in missing:
        print(f"{HOOKS}: no file defines {symbol}, whose row in {TABLE} says OWN")
    if missing:
        return 1
    wanted = HEAD + "".join(f"| `{symbol}` | {kind} | {link(file)} |\n" for symbol, kind, file in rows)
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != wanted:
        print(f"{DOCUMENT}: is not what the hooks are; run tools/hook_index.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
