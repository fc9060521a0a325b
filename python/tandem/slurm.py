"""How a place in Slurm is named: `slurm:PARTITION,gpu-mem=8G,time=1:00:00`.

It has a partition and long options of srun or sbatch; all may be left out.
"""

import re
from typing import List

from .errors import InvalidUse

_PLACE = re.compile(r"slurm(?:[:,](.*))?")
_OPTION = re.compile(r"[a-z][a-z-]*=\S+")


def is_place(where: str) -> bool:
    """Whether `where` names a place in Slurm."""
    return _PLACE.fullmatch(where) is not None


def options_of(where: str) -> List[str]:
    """Returns the options for a place in Slurm, REQUIRES: is_place. Raises InvalidUse."""
    options = []
    for word in (_PLACE.fullmatch(where)[1] or "").split(","):
        if _OPTION.fullmatch(word):
            options.append(f"--{word}")
        elif re.fullmatch(r"[\w.-]+", word) and not word.startswith("-"):
            options.append(f"--partition={word}")
        elif word:
            raise InvalidUse(
                f'{where}: "{word}" is neither a partition nor an option such as gpu-mem=8G.'
            )
    return options
