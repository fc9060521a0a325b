#!/usr/bin/env python3
"""The built shared objects against driver_api.def and nvml_api.def: what they export and need.

  check_symbols.py BUILD_DIRECTORY

libtandem.so lives inside other people's programs: it exports exactly the functions it hooks and
links nothing but libc. The software GPU exports exactly the functions it has, for loaders take a
symbol that is there for one that works. So does its monitoring library.
"""
import pathlib
import re
import subprocess
import sys

from driver_rows import read_rows

NVML_ROW = re.compile(r"^NVML(_TEXT|_WITHOUT)?\((?P<symbol>\w+), \(.*\)\)$", re.M)
NVML_HOOKS = pathlib.Path("src/shim/hooks/nvml_hooked.def")
NVML_HOOK = re.compile(r"^NVML_\w+\((\w+),", re.M)
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
LIBC = re.compile(r"libc\.so\.6|ld-linux.*\.so\.\d")
GLIBC = re.compile(r"GLIBC_2\.(\d+)")
NEWEST_GLIBC = 35  # Ubuntu 22.04, on whose images many of NVIDIA's are built
LINKER = {"dlmopen", "dlopen", "dlsym", "dlvsym"}
INTERFACE = {"tandem_build", "tandem_find_api"}  # include/tandem/tandem.h, `tandem doctor`


def exports(library):
    """The names a shared object defines for others, weak ones of the C++ runtime aside."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    rows = (line.split() for line in listing.splitlines())
    return {name.split("@")[0] for _, kind, name in rows if kind in "TBDR"}


def needed(library):
    dynamic = subprocess.run(
        ["readelf", "-d", library], check=True, capture_output=True, text=True
    ).stdout
    return set(NEEDED.findall(dynamic))


def newest_glibc(library):
    """The N of the newest GLIBC_2.N that the library needs."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True).stdout
    return max(int(minor) for minor in GLIBC.findall(listing))


def differences(library, expected, table="driver_api.def"):
    actual = exports(library)
    for name in sorted(expected - actual):
        yield f"{library}: does not export {name}, which {table} promises"
    for name in sorted(actual - expected):
        yield f"{library}: exports {name}, which {table} does not say"


def symbols(rows):
    return {symbol for row in rows for symbol in row.symbols}


def problems(build, rows, nvml_rows):
    shim = build / "lib/libtandem.so"
    hooked = symbols(row for row in rows if row.hooked) | set(NVML_HOOK.findall(NVML_HOOKS.read_text()))
    yield from differences(shim, hooked | LINKER | INTERFACE)
    for name in sorted(needed(shim)):
        if not LIBC.fullmatch(name):
            yield f"{shim}: needs {name}; it may link nothing but libc"
    soft = build / "lib/tandem/soft/libcuda.so.1"
    for library in (shim, soft):
        if (newest := newest_glibc(library)) > NEWEST_GLIBC:
            yield f"{library}: needs glibc 2.{newest}; images of containers may have 2.{NEWEST_GLIBC} only"
    yield from differences(soft, symbols(row for row in rows if row.soft != "NO"))
    nvml = build / "lib/tandem/soft/libnvidia-ml.so.1"
    yield from differences(nvml, {row["symbol"] for row in nvml_rows}, "nvml_api.def")


def main():
    nvml_table = pathlib.Path("softgpu/nvml/nvml_api.def").read_text(encoding="utf-8")
    nvml_rows = list(NVML_ROW.finditer(nvml_table))
    if len(nvml_rows) != len(re.findall(r"^NVML(?:_TEXT|_WITHOUT)?\(", nvml_table, re.M)):
        print("softgpu/nvml/nvml_api.def: a row does not read as NVML(symbol, (parameters)…)")
        return 1
    found = list(problems(pathlib.Path(sys.argv[1]), read_rows(), nvml_rows))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
