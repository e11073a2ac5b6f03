"""Recorded calls: the launches, copies and library calls of a function, issued again by one C call.

    from sandbox.kit import cuda, symm
    from sandbox.kit.recorded import recorded

    @recorded
    def launches(x, weight, product, result):    # queues work; every tensor that a call may bring anew is an argument
        torch.mm(x, weight, out=product)
        mod.add_all[64, 256](symm.px, product, result, result.numel())

    def solution(x, weight):
        product = symm.out((len(x), weight.shape[1]), x.dtype, "product", ring=2)
        result = torch.empty_like(product)
        launches(x, weight, product, result)     # about 10 us of host time, for any number of launches
        return result

The first call with new shapes runs the function. The second records it: the driver captures its work without running it, and
every address that lies in an argument is noted. Later calls put the addresses of their arguments there. The first time that an
argument moves, the function is captured again, and its work must be what the recording predicts. Otherwise KernelError says
what else changes from call to call.

Rules for the function. It returns nothing, and reads no values of tensors. Tensors that it makes are its workspace, which all
calls share. It takes no buffer of a ring (`symm.out`, `symm.stage`), no epoch (`symm.next_epoch`) and no `symm.barrier`,
because these change from call to call: pass buffers as arguments, and let kernels count their own turns (px_turn in px.cuh).
Lists and tuples of tensors may be arguments. All other arguments (sizes, numbers, teams) belong to the recording: for other
values there is another.

On CPU ranks, and on machines without a C++ compiler, the function runs at every call.
"""

import ctypes
import functools
import gc
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.compilers import build, gcc
from sandbox.kit.errors import KernelError
from sandbox.kit.symmetric_memory import team
from sandbox.memory.gpu import call, driver

KEPT = 64
"""Recordings of a function that are kept, of the latest shapes."""
TRIES = 3
"""Captures of a call that may differ before the call is refused. Its workspace has its final place from the second on."""
INVALID_VALUE = 1
"""The driver's answer where a graph's copy would get memory that is mapped in another way than when it was recorded."""
ALIGNED = 256
"""Libraries choose kernels by the alignment of addresses, up to this number of bytes."""
_WORD = (1 << 64) - 1
_SOURCE = (gcc.INCLUDE / "px_recorded.h").read_text()


def recorded(function: Callable[..., None]) -> "Recorded":
    """The function, whose work is recorded once for given shapes and issued again by one C call: see this module's text.

    Raises KernelError in a call if anything but the addresses of the arguments changes from call to call.
    """
    return Recorded(function)


class Recorded:
    """A function whose calls are recorded, once for each set of shapes and other arguments."""

    def __init__(self, function: Callable[..., None]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._recordings: dict[Any, Recording | None] = {}

    def __call__(self, *arguments: Any) -> None:
        tensors: list[torch.Tensor] = []
        key: list[Any] = []
        _sort(arguments, tensors, key)
        if not tensors or not tensors[0].is_cuda or torch._C._cuda_isCurrentStreamCapturing() or issuer() is None:
            self._run(arguments)
            return
        addresses = [tensor.data_ptr() for tensor in tensors]
        key += [address % ALIGNED for address in addresses]
        name = tuple(key)
        recording = self._recordings.get(name)
        if recording is not None and recording.issue(addresses):
            return
        if name not in self._recordings or (recording and recording.renewals > TRIES):
            self._recordings[name] = recording
            if len(self._recordings) > KEPT:
                del self._recordings[next(iter(self._recordings))]
            self._run(arguments)
            return
        self._recordings[name] = recording = self._recorded(recording, arguments, tensors)
        recording.issue(addresses)

    def _recorded(
        self, recording: "Recording | None", arguments: Sequence[Any], tensors: Sequence[torch.Tensor]
    ) -> "Recording":
        """A recording for these tensors: the one there is if it predicts them, else a new one."""
        differs, renewals = "", -1 if recording is None else recording.renewals
        for _ in range(TRIES):
            captured = capture(lambda: self._run(arguments), tensors)
            if recording is not None and not (differs := recording.compare(captured)):
                return recording
            recording = Recording(captured, renewals + 1)
        raise KernelError(f"{self.function.__name__} cannot be recorded: {differs}")

    def _run(self, arguments: Sequence[Any]) -> None:
        if self.function(*arguments) is not None:
            raise KernelError(f"{self.function.__name__} is recorded and must return nothing: pass what it writes to")


def _sort(arguments: Iterable[Any], tensors: list[torch.Tensor], key: list[Any]) -> None:
    """Appends the tensors of a call, and what a recording of it depends on except for their addresses."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            tensors.append(argument)
            key += (argument.dtype, argument.shape, argument.stride())
        elif isinstance(argument, list | tuple):
            key.append(len(argument))
            _sort(argument, tensors, key)
        else:
            key += (type(argument), argument)


# --- what a call queues ----------------------------------------------------------------------------------------------------

KERNEL, COPY, FILL, EMPTY = 0, 1, 2, 5
"""Types of a graph's nodes."""
_ATTRIBUTES, _PRIORITY = (2, 4, 5, 8, 11, 14), 8
"""Attributes of a launch that are issued again: cooperative, cluster, its scheduling, priority, preferred cluster, carveout."""
_LAUNCH = struct.Struct("<Q7I4xQQQQ")
"""CUDA_KERNEL_NODE_PARAMS_v2: kernel; grid, block, shared bytes; parameters, extra, kern, context."""
_WORDS, _ROWS = {COPY: 25, FILL: 5}, 23
"""8-byte words of CUDA_MEMCPY3D and CUDA_MEMSET_NODE_PARAMS; the copy's Height, which Depth follows."""


@dataclass(frozen=True)
class Node:
    """One launch, copy or fill. words: its parameters, 8 bytes each, some of which are addresses; fixed: everything else."""

    kind: int
    handle: int
    fixed: tuple[Any, ...]
    """Of a launch: CUfunction, else CUkernel, shape, (offset, size) of each parameter or none if packed, bytes, attributes."""
    words: tuple[int, ...]
    name: str
    before: tuple[int, ...]
    """The nodes that it waits for."""

    @property
    def has_rows(self) -> bool:
        """Whether it copies rows that are not adjacent. In a graph their addresses cannot be changed."""
        return self.kind == COPY and max(self.words[_ROWS:]) > 1

    @property
    def is_of_library(self) -> bool:
        """Whether it is a launch of a kernel that the kit has not compiled. The kit sets each byte of the parameters."""
        return self.kind == KERNEL and self.name not in cuda.own_kernels

    @property
    def priority(self) -> int | None:
        """A launch's priority; None for a copy or a fill."""
        if self.kind != KERNEL:
            return None
        found = [value for number, value in self.fixed[5] if number == _PRIORITY]
        return int.from_bytes(found[0][:4], "little", signed=True) if found else 0


@dataclass(frozen=True)
class Captured:
    """A call's work as the driver captured it. ranges: (first, end, argument) of the arguments' memory, own and peers'."""

    graph: Any
    nodes: list[Node]
    addresses: list[int]
    ranges: list[tuple[int, int, int]]

    def argument_of(self, word: int) -> int | None:
        """The argument in whose memory an address lies, the shortest of several."""
        found = [(end - first, argument) for first, end, argument in self.ranges if first <= word < end]
        return min(found)[1] if found else None


@functools.cache
def _place() -> tuple[torch.cuda.Stream, Any, Any]:
    """The stream and the memory pool of captures, and a graph that keeps the pool."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    pool, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(stream):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        torch.zeros(1, device="cuda")
        graph.capture_end()
    return stream, pool, graph


def capture(function: Callable[[], None], tensors: Sequence[torch.Tensor]) -> Captured:
    """Captures the work that a function queues, without running it. Raises KernelError."""
    stream, pool, _ = _place()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    collects = gc.isenabled()
    gc.disable()  # what is collected may call the driver, which would end the capture
    try:
        with torch.cuda.stream(stream):
            # torch.cuda.graph would block on the device, which work behind a closed gate must not.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            team.recording = True
            try:
                function()
            finally:
                team.recording = False
                graph.capture_end()
    except RuntimeError as error:
        raise KernelError(f"cannot be recorded: {str(error).strip().splitlines()[0]}") from error
    finally:
        if collects:
            gc.enable()
    return Captured(graph, _nodes(graph.raw_cuda_graph()), [t.data_ptr() for t in tensors], _ranges(tensors))


def _ranges(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
    heap = symm._world_team._heap if symm._world_team else None
    found = []
    for number, tensor in enumerate(tensors):
        if not tensor.numel():
            continue
        at = tensor.data_ptr()
        elements = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        places = [at]
        if heap and 0 <= (offset := at - heap.addresses[heap.rank]) < heap.bytes:
            places = [address + offset for address in heap.addresses]
        found += [(place, place + elements * tensor.itemsize, number) for place in places]
    return found


def _listed(function: str, of: int, *more: None) -> list[int]:
    """A list of handles that the driver returns in two calls; `more` arrays of 8 bytes an entry follow it."""
    count = ctypes.c_size_t()
    call(function, ctypes.c_void_p(of), None, *more, ctypes.byref(count))
    arrays = [(ctypes.c_uint64 * max(count.value, 1))() for _ in (0, *more)]
    if count.value:
        call(function, ctypes.c_void_p(of), *arrays, ctypes.byref(count))
    return list(arrays[0])[: count.value]


def _nodes(graph: int) -> list[Node]:
    """The nodes of a graph, each behind those that it waits for, as the driver lists captured work."""
    behind: dict[int, tuple[int, ...]] = {}
    """By handle: the node's number, or of an empty node those that it waits for."""
    nodes: list[Node] = []
    for handle in _listed("cuGraphGetNodes", graph):
        before = {number for one in _listed("cuGraphNodeGetDependencies_v2", handle, None) for number in behind[one]}
        kind = ctypes.c_int()
        call("cuGraphNodeGetType", ctypes.c_void_p(handle), ctypes.byref(kind))
        if kind.value == EMPTY:
            behind[handle] = tuple(before)
            continue
        if kind.value == KERNEL:
            fixed, words, name = _launch(handle)
        elif kind.value in _WORDS:
            raw = (ctypes.c_uint64 * _WORDS[kind.value])()
            name = "Memcpy" if kind.value == COPY else "Memset"
            call(f"cuGraph{name}NodeGetParams", ctypes.c_void_p(handle), raw)
            if kind.value == COPY:  # memory types have four bytes
                raw[4], raw[15] = raw[4] & 0xFFFFFFFF, raw[15] & 0xFFFFFFFF
            fixed, words = (), tuple(raw)
        else:
            raise KernelError(
                f"cannot be recorded: it queues a graph node of type {kind.value}, not a launch, copy or fill"
            )
        behind[handle] = (len(nodes),)
        nodes.append(Node(kind.value, handle, fixed, words, name, tuple(sorted(before))))
    return nodes


def _launch(node: int) -> tuple[tuple[Any, ...], tuple[int, ...], str]:
    """`fixed`, `words` and name of a kernel's node."""
    raw = ctypes.create_string_buffer(_LAUNCH.size)
    call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), raw)
    function, *shape, given, extra, kernel, _ = _LAUNCH.unpack(raw.raw[: _LAUNCH.size])
    library: Any = driver()
    handle, kind = ctypes.c_void_p(function or kernel), "Func" if function else "Kernel"
    text = ctypes.c_char_p()
    getattr(library, f"cu{kind}GetName")(ctypes.byref(text), handle)
    name = (text.value or b"a kernel").decode()
    places: list[tuple[int, int]] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    ask = getattr(library, f"cu{kind}GetParamInfo")
    while not extra and not ask(handle, ctypes.c_size_t(len(places)), ctypes.byref(offset), ctypes.byref(size)):
        places.append((offset.value, size.value))
    if extra:  # CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE
        words = (ctypes.c_uint64 * 4).from_address(extra)
        buffer, size_at = sorted(((words[0], words[1]), (words[2], words[3])))
        data = bytearray(ctypes.string_at(buffer[1], ctypes.c_size_t.from_address(size_at[1]).value))
    elif given and not places:
        raise KernelError(f"cannot be recorded: the driver does not tell the parameters of {name}")
    else:
        data = bytearray(max((first + long for first, long in places), default=0))
        pointers = (ctypes.c_void_p * len(places)).from_address(given) if places else ()
        for (first, long), pointer in zip(places, pointers, strict=True):
            data[first : first + long] = ctypes.string_at(pointer, long)
    attributes = []
    for number in _ATTRIBUTES:
        value = ctypes.create_string_buffer(64)
        if not library.cuGraphKernelNodeGetAttribute(ctypes.c_void_p(node), number, value) and any(value.raw):
            attributes.append((number, value.raw))
    fixed = (function, 0 if function else kernel, tuple(shape), tuple(places), len(data), tuple(attributes))
    return fixed, tuple(memoryview(data + bytes(-len(data) % 8)).cast("Q")), name


# --- issuing it again ------------------------------------------------------------------------------------------------------

(_WAIT, _RECORD, _LAUNCHES, _LAUNCHES_PACKED, _COPIES, _COPIES_ROWS, _FILLS, _SETS_LAUNCH, _SETS, _LAUNCHES_GRAPH) = (
    range(10)
)
_STEP, _PATCH, _CALL = struct.Struct("<4Q4I"), struct.Struct("<2Q2I"), struct.Struct("<5Q4I")
"""The structs of px_recorded.h."""
_FILLING = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


@functools.cache
def issuer() -> Any:
    """The C function that makes a recorded call; None without a C++ compiler."""
    if gcc.compiler() is None:
        return None
    name = build.content_key(_SOURCE, gcc.fingerprint(), *gcc.FLAGS) + ".so"
    library = ctypes.CDLL(str(build.once(name, lambda output: gcc.compile_shared(_SOURCE, (), output), shown=False)))
    library.px_issue.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return library.px_issue


class Recording:
    """The work of one call, ready to be issued with other addresses."""

    def __init__(self, captured: Captured, renewals: int = 0) -> None:
        """renewals: how many recordings of the same call an argument's move has ended."""
        self.captured, self.renewals = captured, renewals
        self.patches = {
            (number, at): argument
            for number, node in enumerate(captured.nodes)
            for at, word in enumerate(node.words)
            if (argument := captured.argument_of(word)) is not None
        }
        """By (node, word): the argument in whose memory the word is an address."""
        self.in_turn = any(captured.nodes[number].has_rows for number, _ in self.patches)
        """Whether the driver's calls are issued one after the other, without a graph."""
        self.unset: set[tuple[int, int]] = set()
        """(node, word) of what changes between captures of one call: libraries leave some bytes of parameters unset."""
        count = len(captured.addresses)
        self._now, self._moves = (ctypes.c_uint64 * count)(), (ctypes.c_uint32 * count)()
        self._pack = struct.Struct(f"<{count}Q").pack_into
        self._device = torch.cuda.current_device()
        self._kept: list[Any] = []
        self._build()

    def issue(self, addresses: Sequence[int]) -> bool:
        """Makes the call. Returns False if an argument has moved whose moves have not been compared."""
        self._pack(self._now, 0, *addresses)
        status = self._function(self._at, self._now_at, torch._C._cuda_getCurrentRawStream(self._device))
        if status == INVALID_VALUE and not self.in_turn:
            self.in_turn = True  # nothing is queued yet: copies are changed before the graph is launched
            self._build()
            return self.issue(addresses)
        if status > 0:
            text = ctypes.c_char_p()
            driver().cuGetErrorName(status, ctypes.byref(text))
            raise KernelError(f"a recorded call: {(text.value or b'unknown error').decode()}")
        return not status

    def compare(self, fresh: Captured) -> str:
        """Says what of a later call differs from what this recording predicts; empty if arguments may move as they did."""
        old = self.captured
        if len(old.nodes) != len(fresh.nodes):
            return f"one call has {len(old.nodes)} pieces of work, another {len(fresh.nodes)}"
        patches, unset = dict(self.patches), set(self.unset)
        for number, (mine, other) in enumerate(zip(old.nodes, fresh.nodes, strict=True)):
            if (mine.fixed, mine.before, len(mine.words)) != (other.fixed, other.before, len(other.words)):
                return f"{mine.name} is launched in another way in another call"
            for at, (word, later) in enumerate(zip(mine.words, other.words, strict=True)):
                argument = patches.get((number, at))
                shift = 0 if argument is None else fresh.addresses[argument] - old.addresses[argument]
                if later == (word + shift) & _WORD or (number, at) in unset:
                    continue
                if old.addresses == fresh.addresses and mine.is_of_library:
                    unset.add((number, at))
                elif later != word:
                    return (
                        f"8 bytes at {8 * at} of the parameters of {mine.name} are {word:#x} in one call and {later:#x} in "
                        "another, and no address of an argument"
                    )
                patches.pop((number, at), None)  # it lies in the argument's memory by chance
        for argument, (address, later) in enumerate(zip(old.addresses, fresh.addresses, strict=True)):
            self._moves[argument] |= address != later
        self.unset = unset
        if len(patches) < len(self.patches):
            self.patches = patches
            self._build()
        return ""

    def _build(self) -> None:
        """Lays out what the C function reads."""
        old = self.captured
        self._kept = []
        words = [self._laid((ctypes.c_uint64 * max(len(node.words), 1))(*node.words)) for node in old.nodes]
        places: dict[int, int] = {}
        if self.in_turn:
            steps, streams = self._steps(words)
        else:
            (steps, places), streams = self._graph_steps(words), [0]
        patches = [
            (words[n] + 8 * at, (old.nodes[n].words[at] - old.addresses[argument]) & _WORD, argument, places.get(n, 0))
            for (n, at), argument in self.patches.items()
        ]
        made = _CALL.pack(
            self._laid(b"".join(_STEP.pack(*step, 0) for step in steps)),
            self._laid(b"".join(_PATCH.pack(*patch) for patch in patches)),
            self._laid(struct.pack(f"<{len(old.addresses)}Q", *old.addresses)),
            ctypes.addressof(self._moves),
            self._laid(struct.pack(f"<{len(streams)}Q", *streams)),
            *(len(steps), len(patches), len(old.addresses), 0),
        )
        self._function, self._at, self._now_at = issuer(), self._laid(made), ctypes.addressof(self._now)

    def _laid(self, data: Any) -> int:
        """The address of bytes that stay as long as this recording."""
        self._kept.append(ctypes.create_string_buffer(data) if isinstance(data, bytes) else data)
        return ctypes.addressof(self._kept[-1])

    def _graph_steps(self, words: Sequence[int]) -> tuple[list[tuple[int, ...]], dict[int, int]]:
        """The steps that change nodes of a graph and launch it (with the context as `at`), and the place of each node's step."""
        made, context = ctypes.c_void_p(), ctypes.c_void_p()
        graph = ctypes.c_void_p(self.captured.graph.raw_cuda_graph())
        call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        call("cuCtxGetCurrent", ctypes.byref(context))
        weakref.finalize(self, driver().cuGraphExecDestroy, made).atexit = False
        execution, here = made.value or 0, context.value or 0
        steps: list[tuple[int, ...]] = []
        places: dict[int, int] = {}
        for number in dict.fromkeys(number for number, _ in self.patches):
            node = self.captured.nodes[number]
            places[number] = len(steps)
            if node.kind == KERNEL:
                function, kernel, shape, *_ = node.fixed
                packed, table = self._table(node, words[number])
                given = _LAUNCH.pack(function, *shape, *((0, table) if packed else (table, 0)), kernel, 0)
                setting = _address("cuGraphExecKernelNodeSetParams_v2")
                steps.append((setting, node.handle, execution, self._laid(given), _SETS_LAUNCH, 0, 1))
            else:
                setting = _address(f"cuGraphExec{node.name}NodeSetParams")
                steps.append((setting, node.handle, execution, words[number], _SETS, 0, 1))
        steps.append((_address("cuGraphLaunch"), here, execution, 0, _LAUNCHES_GRAPH, 0, 0))
        return steps, places

    def _steps(self, words: Sequence[int]) -> tuple[list[tuple[int, ...]], list[int]]:
        """The calls of the driver as _STEP, and the streams, of which the caller's is first. words: addresses of parameters."""
        nodes = self.captured.nodes
        lanes = _lanes(nodes)
        last = {lane: number for number, lane in enumerate(lanes)}
        shared = {one for number, node in enumerate(nodes) for one in node.before if lanes[one] != lanes[number]}
        events = {one: _event(self) for one in shared | {number for lane, number in last.items() if lane}}
        steps: list[tuple[int, ...]] = []
        waited: dict[tuple[int, int], int] = {}

        def wait(lane: int, one: int) -> None:
            """Queues a wait of a lane for a node of another lane, or for all earlier work of the caller (-1)."""
            other = 0 if one < 0 else lanes[one]
            if other != lane and waited.get((lane, other), -2) < one:
                waited[lane, other] = one
                steps.append((_address("cuStreamWaitEvent"), events[one], 0, 0, _WAIT, lane, 0))

        if any(lane and not node.before for lane, node in zip(lanes, nodes, strict=True)):
            events[-1] = _event(self)
            steps.append((_address("cuEventRecord"), events[-1], 0, 0, _RECORD, 0, 0))
        for number, node in enumerate(nodes):
            lane = lanes[number]
            for one in reversed(node.before) if node.before else (-1,):
                wait(lane, one)
            steps.append((*self._step(node, words[number]), lane, 0))
            if number in events:
                steps.append((_address("cuEventRecord"), events[number], 0, 0, _RECORD, lane, 0))
        for lane in sorted(last):
            wait(0, last[lane])
        return steps, [0, *(_stream(lane).cuda_stream for lane in range(1, len(last)))]

    def _step(self, node: Node, words: int) -> tuple[int, ...]:
        """A node as _STEP without its lane. words: the address of its parameters."""
        if node.kind == COPY:
            kind, name = (_COPIES_ROWS, "cuMemcpy3DAsync_v2") if node.has_rows else (_COPIES, "cuMemcpyAsync")
            return _address(name), 0, 0, words, kind
        if node.kind == FILL:
            if node.words[4] > 1:
                raise KernelError("cannot be recorded: it fills rows that are not adjacent")
            return _address(_FILLING[node.words[2] >> 32]), 0, 0, words, _FILLS
        function, kernel, shape, _, _, attributes = node.fixed
        packed, table = self._table(node, words)
        listed = self._laid(b"".join(struct.pack("<Q64s", *each) for each in attributes))
        configuration = self._laid(struct.pack("<7I4xQQI4x", *shape, 0, listed, len(attributes)))
        kind = _LAUNCHES_PACKED if packed else _LAUNCHES
        return _address("cuLaunchKernelEx"), configuration, function or kernel, table, kind

    def _table(self, node: Node, words: int) -> tuple[bool, int]:
        """Whether a launch passes its parameters as one buffer, and the address of its table of parameters."""
        _, _, _, places, size, _ = node.fixed
        packed = bool(size) and not places
        table = [1, words, 2, self._laid(struct.pack("<Q", size)), 0] if packed else [words + at for at, _ in places]
        return packed, self._laid(struct.pack(f"<{len(table)}Q", *table))


def _lanes(nodes: Sequence[Node]) -> list[int]:
    """The lane of each node: a chain of nodes on one stream. Lane 0 is the caller's stream."""
    after: dict[int, list[int]] = {number: [] for number in range(len(nodes))}
    for number, node in enumerate(nodes):
        for one in node.before:
            after[one].append(number)

    def heir(number: int) -> int:
        """The node that follows on the same lane: preferably a launch of the same priority, then a copy."""
        own = nodes[number].priority
        liking = {n: (nodes[n].priority != own, nodes[n].priority is not None, n) for n in after[number]}
        return min(liking, key=liking.__getitem__, default=-1)

    heirs = [heir(number) for number in range(len(nodes))]
    lanes: list[int] = []
    for number, node in enumerate(nodes):
        lanes.append(next((lanes[one] for one in node.before if heirs[one] == number), max(lanes, default=-1) + 1))
    first = next((lane for lane, node in zip(lanes, nodes, strict=True) if node.priority == 0), 0)
    return [{first: 0, 0: first}.get(lane, lane) for lane in lanes]


@functools.cache
def _stream(lane: int) -> torch.cuda.Stream:
    """This process's stream of a lane. Priorities belong to launches."""
    return torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]


@functools.cache
def _address(name: str) -> int:
    """The address of a function of the driver."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


def _event(owner: object) -> int:
    """A new event without times, which ends with its owner."""
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), 2)
    weakref.finalize(owner, driver().cuEventDestroy_v2, event).atexit = False
    return event.value or 0
