import os
import sys

# The folder itself is the program: `python3 deploy/autoscaler`.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from autoscaler import loop  # noqa: E402

sys.exit(loop.main())
