"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# Machines are shared and slow at times: no test may fail because of that. The same examples every time, so that a
# failure can be run again.
settings.register_profile("here", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")
