"""The arguments of the running notebook, in the manner of `sys.argv`."""

import json
import os

VARIABLE = "TANDEM_ARGV"

# argv[0] is the path of the notebook, or empty where no `tandem notebook` command runs it.
argv = json.loads(os.environ.get(VARIABLE, '[""]'))
