"""Settings of Hypothesis for tests of properties: the same examples in every run, no deadline, nothing on disk."""

from hypothesis import HealthCheck, settings


def examples(most: int, steps: int = 30) -> settings:
    """most: examples of a test.  steps: of each, where a test is a state machine."""
    return settings(
        max_examples=most,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
