"""Measurements against what users pick instead. bench/run.sh NAME runs one: it installs and builds what that needs first."""
