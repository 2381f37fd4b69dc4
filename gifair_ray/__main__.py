"""`python -m gifair_ray` is `gifair`."""

import sys

from gifair_ray.cli import main

sys.exit(main())
