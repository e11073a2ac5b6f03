"""The user inside the jail has a name and cache folders: libraries need both when they are imported or compile."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from no_jail import no_jail
from waiting import PATIENCE_S

from sandbox.jail import profiles
from sandbox.jail.choice import why_not
from sandbox.jail.profiles import FULL, NESTED, ROOT, Profile, python_path
from sandbox.jail.seccomp import NoFilter, build_filter, memory_file

ASKS = """
import getpass, grp, importlib, importlib.util, json, os, pwd
failed = {}
for name in ("numpy", "torch._inductor", "torch._inductor.codecache", "torch.distributed.tensor", "triton", "cupy"):
    if importlib.util.find_spec(name.partition(".")[0]) is not None:
        try:
            importlib.import_module(name)
        except BaseException as error:
            failed[name] = repr(error)
caches = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")]
for cache in caches:
    os.makedirs(cache, exist_ok=True)
from torch._inductor.runtime.cache_dir_utils import cache_dir
print(json.dumps({
    "failed": failed,
    "user": getpass.getuser(),
    "name": pwd.getpwuid(os.getuid()).pw_name,
    "home": pwd.getpwuid(os.getuid()).pw_dir,
    "group": grp.getgrgid(os.getgid()).gr_name,
    "others": len(pwd.getpwall()) - 1,
    "caches": [*caches, cache_dir()],
    "expected": os.environ["HOME"],
}))
"""


def asked(profile: Profile, program: bytes, folder: Path) -> dict:
    argv = [sys.executable, "-c", ASKS]
    with closing(profile.wrap(argv, folder, {"PYTHONPATH": python_path()}, filter_fd=memory_file(program))) as world:
        said = subprocess.run(
            world.argv, **world.inherited, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert said.returncode == 0, said.stderr[-2000:]
    return json.loads(said.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile", [FULL, ROOT, pytest.param(NESTED, marks=pytest.mark.further)], ids=lambda profile: profile.name
)
def test_jailed_user_has_name_and_imports_libraries(profile, tmp_path):
    if (profile is FULL and os.geteuid() == 0) or (profile is ROOT and os.geteuid()):
        pytest.skip("the profile of another user")
    try:
        program = build_filter(profile.name)
    except NoFilter as error:
        no_jail([str(error)])
    if (reason := why_not(profile, program)) is not None:
        no_jail([reason])
    found = asked(profile, program, tmp_path)
    assert found["failed"] == {}
    assert found["user"] == found["name"] == found["group"] == profiles.USER
    assert found["home"] == str(profiles.INSIDE)
    assert found["others"] == 0
    assert all(cache.startswith(found["expected"]) for cache in found["caches"])
