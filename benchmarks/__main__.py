"""`python -m benchmarks` is `sensorveil papers`."""

import sys

from sensorveil.cli.main import main

if __name__ == "__main__":
    sys.argv[:1] = ["sensorveil", "papers"]
    main()
