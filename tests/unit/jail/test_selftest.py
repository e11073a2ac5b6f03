"""The jail's self-test can fail: profiles with a hole are rejected, and the hole is named."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading

import psutil
import pytest
from no_jail import no_jail
from waiting import PATIENCE_S

from arena.errors import MachineError
from arena.machine.facts import require_jail
from sandbox.jail import choice, profiles, selftest
from sandbox.jail.choice import choose, why_not
from sandbox.jail.profiles import NONE, Profile, Wrapped
from sandbox.jail.seccomp import NoFilter, build_filter
from sandbox.jail.selftest import FORBIDDEN
from sandbox.protocol.verdict import ExitCode


@pytest.fixture
def program():
    if shutil.which("bwrap") is None:
        no_jail(["bubblewrap is not installed"])
    try:
        return build_filter()
    except NoFilter as error:
        no_jail([str(error)])


@pytest.fixture
def chosen(program):
    jail = choose()
    if jail.name not in ("full", "root"):
        no_jail(jail.rejected.values())
    return jail.profile


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("bubblewrap is not installed", pytest.skip.Exception),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", pytest.skip.Exception),
        ("bwrap: Unknown option --unshare-nets", pytest.fail.Exception),
        ("from inside, a kernel reaches_network", pytest.fail.Exception),
        ("without has_tmp", pytest.fail.Exception),
        ("no system-call filter: libseccomp refuses a rule", pytest.fail.Exception),
        ("the self-test ended with status 1", pytest.fail.Exception),
    ],
)
def test_a_broken_jail_is_no_reason_to_skip(reason, outcome, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(outcome):
        no_jail([reason])


def test_no_profile_of_this_machine_is_broken(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    if reasons := choose().rejected.values():
        no_jail(reasons)


class Holed(Profile):
    """A profile whose command line was changed."""

    without: tuple[str, ...] = ()
    filtered = True
    readonly = True

    def wrap(self, *arguments, **options) -> Wrapped:
        wrapped = super().wrap(*arguments, **options)
        argv = [word for word in wrapped.argv if word not in self.without]
        if not self.readonly:
            argv = [word.replace("--ro-bind", "--bind") for word in argv]
        if not self.filtered:
            at = argv.index("--seccomp")
            del argv[at : at + 2]
        return Wrapped(argv, wrapped.env, wrapped.fds)


def holed(profile: Profile, *without: str, **changed: bool) -> Profile:
    kind = type("Holed", (Holed,), {"without": without, **changed})
    return kind(profile.name, profile.loses)


def test_missing_jail_is_rejected_with_its_leaks(program):
    leaks = set(why_not(NONE, program).removeprefix("from inside, a kernel ").split(", "))
    elsewhere = "writes_system writes_program writes_sysctl opens_vsock sends_datagrams has_secret_memory is_root"
    elsewhere += " makes_user_namespace continues_by_a_message has_stray_descriptors"
    assert {*FORBIDDEN} - leaks <= {*elsewhere.split()}
    allowed = subprocess.run(["unshare", "--user", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    assert ("is_root" in leaks, "makes_user_namespace" in leaks) == (os.geteuid() == 0, allowed)
    assert ("writes_sysctl" in leaks) == os.access("/proc/sys/kernel/hostname", os.W_OK)


def test_a_shared_network_is_rejected(chosen, program):
    assert "reaches_network" in why_not(holed(chosen, "--unshare-net"), program)


def test_a_missing_system_call_filter_is_rejected(chosen, program):
    reason = why_not(holed(chosen, filtered=False), program)
    for way in ("a_timer", "data", "an_end", "a_group", "a_terminal"):
        assert f"continues_by_{way}" in reason


def test_a_writable_program_is_rejected(chosen, program, monkeypatch, tmp_path):
    shown = [*profiles.program_paths(), tmp_path]
    monkeypatch.setattr(profiles, "program_paths", lambda: shown)
    monkeypatch.setattr(choice.selftest, "__file__", shutil.copy(choice.selftest.__file__, tmp_path))
    for folder in (tmp_path, *tmp_path.parents[:2]):  # as root, a world has a uid of its own
        folder.chmod(0o777)
    assert "writes_program" in why_not(holed(chosen, readonly=False), program)


def test_an_inherited_descriptor_is_rejected(chosen, program):
    class Leaking(Profile):
        def wrap(self, *arguments, **options) -> Wrapped:
            wrapped = Profile.wrap(self, *arguments, **options)
            return Wrapped(wrapped.argv, wrapped.env, (*wrapped.fds, stray))

    stray = os.open("/dev/null", os.O_RDONLY)
    reason = why_not(Leaking(chosen.name), program)  # why_not closes `stray`
    assert "has_stray_descriptors" in reason


@pytest.mark.parametrize(
    ("namespace", "command", "found"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_referee_is_known_by_namespace_or_command(namespace, command, found):
    with choice._bait() as facts:
        facts["command"] = facts["command"] if command else "another"
        facts["namespaces"]["pid"] = facts["namespaces"]["pid"] if namespace else "pid:[1]"
        assert selftest._files(facts)["reads_environment"]()  # of another process
        attempts = selftest._processes(facts)
        for name in ("reads_referee", "signals_referee", "limits_referee", "moves_referee"):
            assert attempts[name]() is found


def test_each_way_of_an_attempt_works_without_jail():
    """One that works is a hole, so that each has to notice its own."""
    read, write = os.pipe()
    with choice._bait() as facts:
        if not os.fork():
            ways = []
            selftest._one_works = lambda *found: ways.extend(map(selftest._works, found))
            for name in ("sets_timers", "reaches_network", "sends_datagrams_to_a_path"):
                selftest.attempts(facts)[name]()
            os.write(write, repr([*ways, selftest._message()]).encode())
            os._exit(0)
        os.wait()
    os.close(write)
    with open(read) as pipe:
        has_ipv6, has_messages = map(os.path.exists, ("/proc/net/if_inet6", "/proc/sys/fs/mqueue"))
        assert pipe.read() == repr([True] * 6 + [has_ipv6] + [True] * 3 + [has_messages])


def test_without_bubblewrap_there_is_no_jail(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    choose.cache_clear()
    try:
        jail = choose()
    finally:
        choose.cache_clear()
    assert jail.name == "none"
    assert "bubblewrap" in " ".join(jail.rejected.values())
    for name, unsafe in (("full", False), ("root", False), ("nested", False), (jail.name, True)):
        require_jail(name, unsafe=unsafe)
    with pytest.raises(MachineError, match="without a jail") as refused:  # a kernel that a model has written
        require_jail(jail.name, unsafe=False)
    assert (refused.value.exit_code, "--unsafe" in refused.value.advice) == (ExitCode.ENVIRONMENT, True)


class Stuck(Profile):
    """A profile whose command starts another one and waits for it."""

    def wrap(self, *arguments, **options) -> Wrapped:
        wrapped = super().wrap(*arguments, **options)
        return Wrapped(["/bin/sh", "-c", "sleep 1000 & wait"], wrapped.env, ())


@pytest.mark.parametrize("interrupted", [False, True])
def test_endless_self_test_leaves_nothing(program, monkeypatch, interrupted):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(choice, "TEST_SECONDS", 60.0 if interrupted else 1.0)
    before = set(psutil.Process().children(recursive=True))
    found: set[psutil.Process] = set()
    over = threading.Event()

    def sleeps(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.name() == "sleep"
        return False

    def look() -> None:
        while not any(map(sleeps, found)) and not over.wait(0.01):
            found.update(set(psutil.Process().children(recursive=True)) - before)
        if interrupted:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)

    looking = threading.Thread(target=look)
    handler = signal.signal(signal.SIGUSR2, stop)
    looking.start()
    try:
        with pytest.raises(KeyboardInterrupt) if interrupted else contextlib.nullcontext():
            assert why_not(Stuck("root"), program) == "the self-test timed out after 1 s"
    finally:
        over.set()
        looking.join()
        signal.signal(signal.SIGUSR2, handler)
    _, alive = psutil.wait_procs(found, timeout=PATIENCE_S)
    assert not [process for process in alive if process.name() in ("sh", "sleep")]
