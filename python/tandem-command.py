"""What the `tandem` command runs for its commands that are written in Python."""

import sys

from tandem.__main__ import main

sys.exit(main())
