"""The command lines of the jail, word by word: what a world or an agent program gets of the machine, and its limits."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.jail import profiles, seccomp
from sandbox.jail.profiles import FULL, NESTED, NONE, ROOT, Caps, Profile

PIECES = {
    "apart": "--die-with-parent --new-session --hostname arena --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try",
    "system": "--ro-bind-try /usr /usr --ro-bind-try /opt /opt --symlink usr/lib /R/lib --ro-bind /R/bin /R/bin "
    "--perms 0755 --dir /etc --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache "
    "--ro-bind-try /etc/alternatives /etc/alternatives --ro-bind-try /etc/localtime /etc/localtime",
    "names": "--perms 0644 --file 50 /etc/passwd --perms 0644 --file 51 /etc/group",
    "hosts": "--perms 0644 --file 50 /etc/hosts --perms 0644 --file 51 /etc/passwd --perms 0644 --file 52 /etc/group",
    "own_proc": "--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev",
    "all_proc": "--ro-bind /proc /proc --dev /dev",
    "gpu": "--ro-bind /sys /sys --dev-bind-try /dev/nvidia0 /dev/nvidia0",
    "mounts": "--perms 1777 --size 2147483648 --tmpfs /dev/shm --perms 1777 --size 2147483648 --tmpfs /tmp",
    "small": "--perms 1777 --size 67108865 --tmpfs /dev/shm --perms 1777 --size 67108865 --tmpfs /tmp",
    "program": "--perms 0755 --dir /srv --perms 0755 --dir /srv/p --ro-bind /srv/p/sandbox /srv/p/sandbox "
    "--ro-bind /opt/data/x /opt/data/x --ro-bind /srv/p/y /srv/p/y",
    "python": "--perms 0755 --dir /py --ro-bind /py/3 /py/3 --perms 0755 --dir /py/3 --perms 0755 --dir /py/3/bin "
    "--ro-bind /py/3/bin/python /py/3/bin/python --perms 0755 --tmpfs /usr/lib --remount-ro /usr/lib",
    "closed": "--remount-ro /dev --remount-ro / --chdir /tmp",
    "limits": "prlimit --nproc=1024:1024 --nofile=4096:4096 --core=0:0",
    "few": "prlimit --nproc=67:67 --nofile=4096:4096 --core=0:0",
    "drop": "setpriv --reuid=7 --regid=7 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs",
}
FIRST = "first_program"
CASES: list[tuple[Profile, int, bool, dict[str, Any], str]] = [
    (NONE, 0, True, {}, ""),
    (
        FULL,
        1000,
        False,
        {"filter_fd": 9},
        "apart --unshare-pid --unshare-user --disable-userns system names own_proc mounts program closed --seccomp 9 -- limits",
    ),
    (
        ROOT,
        0,
        True,
        {"devices": ("/dev/nvidia0",)},
        "apart --unshare-pid system names own_proc gpu mounts program closed -- drop limits",
    ),
    (
        ROOT,
        0,
        True,
        {"caps": Caps(1, 3, 1, 1.0), "readable": (), "hidden": (Path("/usr/lib"), Path("/etc"))},
        "apart --unshare-pid system hosts own_proc small python closed -- drop few",
    ),
    (NESTED, 0, True, {}, f"apart system names all_proc mounts program closed -- drop limits {FIRST}"),
    (NESTED, 0, False, {}, "apart system names all_proc mounts program closed -- drop limits"),
    (NESTED, 1000, False, {}, f"apart --unshare-user system names all_proc mounts program closed -- limits {FIRST}"),
]


@pytest.mark.parametrize(("profile", "uid", "scopes", "given", "words"), CASES, ids=map(str, range(len(CASES))))
def test_jail_has_what_its_profile_says(profile, uid, scopes, given, words, tmp_path, monkeypatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").symlink_to("usr/lib")
    files, numbers = [], itertools.count(50)
    monkeypatch.setattr(profiles, "LINKS", [str(tmp_path / name) for name in ("bin0", "lib", "bin")])
    monkeypatch.setattr(profiles, "program_paths", lambda: [Path("/srv/p/sandbox")])
    monkeypatch.setattr(profiles, "agent_interpreter", lambda: Path("/py/3/bin/python"))
    monkeypatch.setattr(sys, "base_prefix", "/py/3")
    monkeypatch.setattr(profiles, "_first_program", lambda: [FIRST])
    monkeypatch.setattr(profiles, "_uid", lambda caps: uid or 7)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: 100)
    monkeypatch.setattr(seccomp, "is_available", lambda: scopes)
    monkeypatch.setattr(seccomp, "memory_file", lambda text: files.append(text.decode()) or next(numbers))
    monkeypatch.setattr(profiles.shutil, "which", lambda name: name)
    for name in ("NCCL_DEBUG", "CUDA_HOME", "SECRET_KEY"):
        monkeypatch.setenv(name, "outside")
    given = {"readable": (Path("/opt/data/x"), Path("/srv/p/y"))} | given
    wrapped = profile.wrap(["kernel", "world"], tmp_path, {"MARK": "1"}, **given)
    assert {name for name, value in wrapped.env.items() if value == "outside"} == {"NCCL_DEBUG", "CUDA_HOME"}
    if profile is NONE:
        assert (wrapped.argv, wrapped.fds, wrapped.env["HOME"]) == (["kernel", "world"], (), str(tmp_path))
        return
    expected = " ".join(PIECES.get(word, word) for word in words.split(" "))
    assert " ".join(wrapped.argv).replace(str(tmp_path), "/R") == f"bwrap {expected} kernel world"
    gid = 100 if uid else 7
    names = [f"arena:x:{uid or 7}:{gid}::/tmp:/bin/sh\n", f"arena:x:{gid}:\n"]
    assert files == [*(["127.0.0.1 localhost arena\n::1 localhost\n"] if "caps" in given else []), *names]
    assert wrapped.fds == (*range(50, 50 + len(files)), *([9] if "filter_fd" in given else []))
    assert (wrapped.env["HOME"], wrapped.env["TMPDIR"], wrapped.env["MARK"]) == ("/tmp", "/tmp", "1")


def test_each_world_of_root_has_a_free_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_uids", itertools.count(profiles.UIDS + 3))
    monkeypatch.setattr(profiles.processes, "user_ids", lambda: {profiles.FIRST_UID + 3})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert profiles._uid(None) == profiles.FIRST_UID + 4
    assert profiles._uid(Caps(1, 1, 1, 1.0)) == profiles.FIRST_AGENT_UID + 5
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert profiles._uid(None) == 1000
