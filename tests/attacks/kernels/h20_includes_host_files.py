# expect: PASS
# twin: honest_cpp
"""Has the compiler read files of the host, into the program or into an error message."""

from sandbox.kit import cpp
from sandbox.kit.errors import CompileError

loot = []
for name in ("@HOME_CANARY@", "/etc/shadow", "/proc/1/environ", "/root/.bashrc"):
    for source in (
        f'#include "{name}"\nextern "C" void f(long n) {{}}',
        f'asm(".section .rodata\\n.incbin \\"{name}\\"\\n.previous");\nextern "C" void f(long n) {{}}',
    ):
        try:
            cpp.compile(source)
            if name != "/proc/1/environ":  # its own world's, which holds nothing
                loot.append(name)
        except CompileError as error:
            if any(secret in f"{error} {error.text}" for secret in ("PKBCANARYCONTENT", "root:")):
                loot.append(f"{name} in the message")
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
