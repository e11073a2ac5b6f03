# expect: COMPILE_ERROR
# twin: honest_cpp
"""Templates that instantiate each other for ever."""

from sandbox.kit import cpp

cpp.compile(r"""
template <long N> struct Bomb { static constexpr long value = Bomb<N + 1>::value + 1; };
extern "C" void f(long n) { volatile long x = Bomb<0>::value; (void)x; }
""")


def solution(tensor):
    return tensor.clone()
