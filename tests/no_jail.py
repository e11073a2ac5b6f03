"""What a test does without the jail that it needs: it skips where bubblewrap or namespaces are missing, and else fails."""

import os
import re
from collections.abc import Iterable
from typing import NoReturn

import pytest

MISSING = re.compile(
    r"bubblewrap is not installed|no system-call filter(?!: libseccomp refuses)|isolation needs Linux|this kernel cannot"
    r"|bwrap: .*(?:not permitted|[Pp]ermission|namespace|not supported)"
)
"""Matches reasons why bubblewrap, its namespaces or the filter are missing on a machine."""


def no_jail(reasons: Iterable[str]) -> NoReturn:
    """Skips the test, or fails it if a profile was rejected although nothing is missing: then the jail is broken.

    In continuous integration it always fails.
    """
    reasons = list(reasons)
    broken = [reason for reason in reasons if not MISSING.match(reason)]
    (pytest.fail if broken or os.environ.get("CI") else pytest.skip)(f"no jail: {'; '.join(broken or reasons)}")
    raise AssertionError
