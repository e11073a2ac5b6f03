"""Settings of Hypothesis for tests of properties: the same examples in every run, no deadline, nothing on disk."""

from hypothesis import HealthCheck, settings


def examples(most: int, steps: int = 30) -> settings:
    """most: the number of examples of a test. steps: the steps of each example of a state machine."""
    return settings(
        max_examples=most,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
