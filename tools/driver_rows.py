"""The rows of driver_api.def, for the tools that read them."""
import dataclasses
import pathlib
import re

TABLE = pathlib.Path("src/cuda/driver_api.def")
CALL = re.compile(
    r"CU(?:_PT)?\((?P<symbol>\w+), (?:(?P<suffix>_pt[sd][sz]), )?(?P<base>\w+), (?P<since>\d+), "
    r"(?P<shim>PASS|OWN|HOLD|GATE\(\w+\)), (?P<soft>YES|NO|LOADER), \(.*\), \(.*\)\)"
)
NAME = re.compile(
    r"CU_(?P<shim>PASS|REFUSE)\((?P<symbol>\w+), (?P<base>\w+), (?P<since>\d+), "
    r'"(?P<why>[^"]+)"\)'
)


@dataclasses.dataclass
class Row:
    symbol: str
    base: str
    since: int
    shim: str  # PASS, REFUSE, OWN, HOLD or GATE(stream)
    soft: str = "NO"
    suffix: str = ""  # of the variant for per-thread default streams, where there is one
    why: str = ""  # of a row without a prototype

    @property
    def symbols(self):
        """The row's functions: one, or two where there is a variant."""
        return [self.symbol] + ([self.symbol + self.suffix] if self.suffix else [])

    @property
    def hooked(self):
        return self.shim != "PASS"


def read_row(line):
    """The row that a line is; None for other lines."""
    read = CALL.fullmatch(line) or NAME.fullmatch(line)
    if read is None:
        if re.match(r"CU(_[A-Z]+)?\(", line):
            raise SystemExit(f"{TABLE}: does not read as a row: {line}")
        return None
    row = Row(**{name: text or "" for name, text in read.groupdict().items()})
    row.since = int(row.since)
    return row


def read_rows():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [row for row in map(read_row, lines) if row]
