import os

if __name__ != "gifair_ray.actors":
    raise ImportError(f"import this package as gifair_ray.actors, not as {__name__}")

# Read by Ray when it is imported. What it prints of a lost worker, on standard output, is of no
# use to whoever asked for results: the crew replaces the worker, or says what is wrong.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|worker.* failed")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
