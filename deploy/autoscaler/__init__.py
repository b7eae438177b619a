"""Starts workers where machines come from (Slurm, Kubernetes) when work waits, and lets them leave when none does.

rules.py decides, without clock and I/O. observe.py asks the scheduler and its workers, slurm.py and kubernetes.py are the two sources
of machines, loop.py does what was decided and counts. `python3 deploy/autoscaler --help` tells the flags."""
