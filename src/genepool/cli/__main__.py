"""python -m genepool.cli."""

import sys

from genepool.cli import main

sys.exit(main())
