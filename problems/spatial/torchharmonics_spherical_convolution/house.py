"""House kernel: convolution on the sphere; after a single exchange each rank computes its own tile of the output.

All ranks get the whole field and all filters. That is less than the exchanges of partial sums, which have K times as
many values, and no exchange follows. Filters are sent as windows of twelve longitudes in a latitude. A thread has four
neighbouring output longitudes and up to four basis functions: it reads 16 values of the field for the 48 products of a
window.
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
const int TAPS = 12, IMAGES = 4, BASIS = 4, ROW = 2048, HELD = 16;
struct __align__(16) Window { float tap[TAPS]; int latitude, longitude, unused[2]; };  // longitude is a multiple of 4
struct Range { int begin, end; };
// Returns the first of n sorted entries whose row k T + t is not below `row`. at: [3][n], the entries' k, t and column.
static __device__ i64 first_of(const i64* at, i64 n, i64 latitudes, i64 row) {
    i64 low = 0, high = n;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (at[middle] * latitudes + at[n + middle] < row) low = middle + 1;
        else high = middle;
    }
    return low;
}
// Sends x and the filters to all ranks. n: images, this rank's latitudes and longitudes, its first longitude, all longitudes,
// floats of `field` before its latitudes, entries of psi, T, rows of psi, room for windows. x: [images][latitudes][longitudes].
// It is stored in `field`, which is [images][latitudes][all longitudes] for each polar position. A thread makes windows of the
// entries of a row of psi. They are stored in `windows` [W][room], and their range in `ranges` [W][rows]; all symmetric.
extern "C" __global__ void __launch_bounds__(512) share(Px px, const float* x, const i64* at, const float* value, float* field,
        Window* windows, Range* ranges, PxNumbers n) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 longitudes = n.at[2], all_longitudes = n.at[4], entries = n.at[6], rows = n.at[8];
    for (i64 row = (i64)threadIdx.x * gridDim.x + blockIdx.x; row < rows; row += (i64)gridDim.x * blockDim.x) {
        const i64 begin = first_of(at, entries, n.at[7], row), end = first_of(at, entries, n.at[7], row + 1);
        Window window;
        window.latitude = -1;
        i64 place = px.rank * n.at[9] + begin;
        const auto send = [&]() {
            if (window.latitude < 0) return;
            for (int peer = 0; peer < px.world; ++peer)
                #pragma unroll
                for (int part = 0; part < 4; ++part)
                    px_st16((uint4*)(px_at(px, peer, windows) + place) + part, ((const uint4*)&window)[part]);
            ++place;
        };
        for (i64 first = begin; first < end; first += 8) {
            i64 column[8];
            float weight[8];
            #pragma unroll  // all loads are in flight before the first window
            for (int i = 0; i < 8; ++i) {
                const i64 entry = min(first + i, end - 1);
                column[i] = at[2 * entries + entry], weight[i] = value[entry];
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (first + i >= end) break;
                const int latitude = (int)(column[i] / all_longitudes), longitude = (int)(column[i] % all_longitudes);
                if (latitude != window.latitude || longitude >= window.longitude + TAPS) {
                    send();
                    window.latitude = latitude, window.longitude = longitude & ~3;
                    #pragma unroll
                    for (int tap = 0; tap < TAPS; ++tap) window.tap[tap] = 0;
                }
                #pragma unroll
                for (int tap = 0; tap < TAPS; ++tap)
                    if (longitude - window.longitude == tap) window.tap[tap] += weight[i];
            }
        }
        send();
        const Range range = {(int)begin, (int)(place - px.rank * n.at[9])};
        for (int peer = 0; peer < px.world; ++peer) px_at(px, peer, ranges)[px.rank * rows + row] = range;
    }
    // Divisions of 32 bits are several times as fast.
    const u32 words = (u32)((longitudes + 3) / 4), all = (u32)(n.at[0] * n.at[1] * words), step = gridDim.x * blockDim.x;
    for (u32 begin = blockIdx.x * blockDim.x + threadIdx.x; begin < all; begin += 4 * step) {
        uint4 part[4];
        u32 line[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const u32 i = begin + k * step;
            line[k] = i / words;
            if (i < all) part[k] = px_ld_part(x + line[k] * longitudes, (i - line[k] * words) * 4, longitudes);
        }
        for (int away = 0; away < px.world; ++away) {
            float* there = px_at(px, (px.rank + away) % px.world, field) + n.at[5] + n.at[3];
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const u32 i = begin + k * step;
                if (i < all) px_st_part(there + line[k] * all_longitudes, (i - line[k] * words) * 4, longitudes, part[k]);
            }
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the fields and filters of all ranks have arrived
}
// Positions in the numbers of `filter`. The lists at the end: ranks by polar and azimuth position; by polar position, latitudes
// and the floats of `field` before them; first channels by azimuth position.
enum { BATCH, CHANNELS, KINDS, ALL_T, FIRST_T, OWN_T, FIRST_J, OWN_J, WIDTH, ROOM, POLAR, AZIMUTH, RANK, TALL = RANK + 8,
    BEFORE = TALL + 8, CHANNEL = BEFORE + 8 };
// Waits for the threads of the same image. Loads of one image run beside the sums of others.
static __device__ void sync_image(int image, int lanes) {
    #pragma unroll
    for (int which = 0; which < IMAGES; ++which)
        if (which == image) __barrier_sync_count(1 + which, lanes);
}
// Applies the filters. y: [batch][channels][kinds][own t][own j]. A block computes IMAGES images, BASIS kinds, one t and
// blockDim.x longitudes j at a time, a thread four neighbouring j of one image.
extern "C" __global__ void __launch_bounds__(384, 2) filter(const float* field, const Window* windows, const Range* ranges,
        float* y, PxNumbers n) {
    __shared__ __align__(16) float near[IMAGES][ROW];  // a latitude of each image, from the first output longitude on
    __shared__ Window held[BASIS][HELD];
    const i64 *num = n.at, own_t = num[OWN_T], own_j = num[OWN_J], kinds = num[KINDS], rows = kinds * num[ALL_T];
    const int width = (int)num[WIDTH];
    const int lanes = blockDim.x / IMAGES, image = threadIdx.x / lanes, lane = threadIdx.x % lanes, tile = 4 * lanes;
    const i64 tiles = (own_j + tile - 1) / tile, groups = (kinds + BASIS - 1) / BASIS, each = own_t * tiles * groups;
    i64 items = 0;
    for (int a = 0; a < num[AZIMUTH]; ++a)
        items += (num[BATCH] * (num[CHANNEL + a + 1] - num[CHANNEL + a]) + IMAGES - 1) / IMAGES * each;
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const i64 t = item % own_t, first_j = item / own_t % tiles * tile, first_k = item / (own_t * tiles) % groups * BASIS;
        i64 quad = item / each, some;
        int a = 0;
        for (;; ++a) {
            some = num[CHANNEL + a + 1] - num[CHANNEL + a];
            const i64 quads = (num[BATCH] * some + IMAGES - 1) / IMAGES;
            if (quad < quads) break;
            quad -= quads;
        }
        const i64 i = quad * IMAGES + image;  // number: b C + c of the thread's image; -1: none
        const i64 number = i < num[BATCH] * some ? i / some * num[CHANNELS] + num[CHANNEL + a] + i % some : -1;
        const int begin = (int)((num[FIRST_J] + first_j) % width), length = number < 0 ? 0 : width + tile + 16;
        const bool by_fours = width % 4 == 0 && begin % 4 == 0;
        float sum[BASIS][4] = {};
        for (int p = 0; p < num[POLAR]; ++p) {
            const i64 source = num[RANK + p * num[AZIMUTH] + a];
            const float* rows_of_image = field + num[BEFORE + p] + number * num[TALL + p] * width;
            for (int chunk = 0;; ++chunk) {  // up to HELD windows of each kind at a time
                int next[BASIS], count[BASIS];
                #pragma unroll
                for (int k = 0; k < BASIS; ++k) {
                    next[k] = count[k] = 0;
                    if (first_k + k >= kinds) continue;
                    const Range range = ranges[source * rows + (first_k + k) * num[ALL_T] + num[FIRST_T] + t];
                    next[k] = range.begin + chunk * HELD, count[k] = min(range.end - next[k], HELD);
                }
                if (max(max(count[0], count[1]), max(count[2], count[3])) <= 0) break;
                __syncthreads();  // all threads have read the windows before these
                for (int word = threadIdx.x; word < BASIS * HELD * 4; word += blockDim.x) {
                    int from = 0, there = 0;
                    #pragma unroll
                    for (int k = 0; k < BASIS; ++k)
                        if (word / (4 * HELD) == k) from = next[k], there = count[k];
                    if (word / 4 % HELD < there)
                        ((uint4*)held)[word] = ((const uint4*)(windows + source * num[ROOM] + from))[word % (4 * HELD)];
                }
                __syncthreads();
                int at[BASIS] = {};
                for (;;) {
                    int latitude = 1 << 30;
                    #pragma unroll
                    for (int k = 0; k < BASIS; ++k)
                        if (at[k] < count[k]) latitude = min(latitude, held[k][at[k]].latitude);
                    if (latitude == 1 << 30) break;
                    sync_image(image, lanes);  // the image's threads have read the previous latitude
                    const float* row = rows_of_image + (i64)latitude * width;
                    if (!by_fours)
                        for (int i = lane; i < length; i += lanes) near[image][i] = row[(begin + i) % width];
                    for (int first = 4 * lane; by_fours && first < length; first += 3 * tile) {
                        float4 part[3];
                        #pragma unroll  // all loads are in flight before the first store
                        for (int m = 0; m < 3; ++m) {
                            int place = begin + first + m * tile;
                            while (place >= width) place -= width;
                            if (first + m * tile < length) part[m] = *(const float4*)(row + place);
                        }
                        #pragma unroll
                        for (int m = 0; m < 3; ++m)
                            if (first + m * tile < length) *(float4*)(near[image] + first + m * tile) = part[m];
                    }
                    sync_image(image, lanes);
                    #pragma unroll
                    for (int k = 0; k < BASIS; ++k) {
                        for (; at[k] < count[k] && held[k][at[k]].latitude == latitude; ++at[k]) {
                            const Window& window = held[k][at[k]];
                            float x[16], tap[TAPS];
                            #pragma unroll
                            for (int part = 0; part < 4; ++part) {
                                const float4 four = ((const float4*)(near[image] + window.longitude))[lane + part];
                                x[4 * part] = four.x, x[4 * part + 1] = four.y;
                                x[4 * part + 2] = four.z, x[4 * part + 3] = four.w;
                            }
                            #pragma unroll
                            for (int part = 0; part < TAPS / 4; ++part) {
                                const float4 four = ((const float4*)window.tap)[part];
                                tap[4 * part] = four.x, tap[4 * part + 1] = four.y;
                                tap[4 * part + 2] = four.z, tap[4 * part + 3] = four.w;
                            }
                            #pragma unroll
                            for (int i = 0; i < TAPS; ++i)
                                #pragma unroll
                                for (int j = 0; j < 4; ++j) sum[k][j] += tap[i] * x[i + j];
                        }
                    }
                }
            }
        }
        #pragma unroll
        for (int k = 0; k < BASIS; ++k) {
            if (number < 0 || first_k + k >= kinds) continue;
            float* to = y + ((number * kinds + first_k + k) * own_t + t) * own_j;
            px_st_part(to, first_j + 4 * lane, own_j, px_pack<float>(sum[k]));
        }
    }
}
""")
BLOCKS, THREADS = 128, 512
IMAGES, WARPS, ROW = 4, 3, 2048
"""In a block of `filter`: images, most warps per image, and longitudes per image in shared memory."""

symm.reserve(2 << 30)  # two fields of the largest sizes


def parts_of(count: int, ranks: int) -> list[int]:
    """Returns where each rank's share of `count` items begins, then the end: equal chunks, the rest last.

    No share is empty if there are at least as many items as ranks.
    """
    chunk = -(-count // ranks)
    if count <= chunk * (ranks - 1):
        chunk = count // ranks
    return [chunk * rank for rank in range(ranks)] + [count]


def solution(
    x: torch.Tensor,
    psi: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    nlon_out: int,
    nlon_in: int,
    azimuth_group: dist.ProcessGroup | None = None,
    polar_group: dist.ProcessGroup | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [B, C, hl, wl], psi sparse [K, T, hl·nlon_in], weight [O, C/groups, K] -> [B, O, T_p, J_a], all float32.

    The world is the grid of polar and azimuth positions. psi, weight and bias are the rank's own: a filter acts on the latitudes
    of its rank's polar position and on the channels of its azimuth position.
    """
    # Windows hold neighbouring longitudes, so the kernel needs an output at every input longitude.
    use_kernels = x.is_cuda and nlon_in == nlon_out and nlon_in + 128 * WARPS + 16 <= ROW
    launch = kernels() if use_kernels else None  # compiled before any barrier
    az, polar = dist.get_world_size(azimuth_group), dist.get_world_size(polar_group)
    mine = dist.get_rank(polar_group), dist.get_rank(azimuth_group)
    batch, channels, tall, wide = x.shape
    basis, latitudes = psi.shape[:2]
    index, value = psi.indices().contiguous(), psi.values().contiguous()
    team = symm.team()
    everybody = team.gather_numbers(*mine, tall, wide, len(value))
    ranks = {(p, a): rank for rank, (p, a, *_) in enumerate(everybody)}
    own_t, own_j, by_channel = parts_of(latitudes, polar), parts_of(nlon_out, az), parts_of(channels, az)
    first_t, first_j = own_t[mine[0]], own_j[mine[1]]
    t_count, j_count = own_t[mine[0] + 1] - first_t, own_j[mine[1] + 1] - first_j
    y = x.new_empty(batch, channels, basis, t_count, j_count)
    if launch is None:
        by_library(y, x, index, value, everybody, ranks, (first_t, first_j, nlon_in // nlon_out, nlon_in), by_channel)
    else:
        images, rows = batch * channels, basis * latitudes
        talls = [everybody[ranks[p, 0]][2] for p in range(polar)]
        before = [images * sum(talls[:p]) * nlon_in for p in range(polar + 1)]
        start = sum(everybody[ranks[mine[0], a]][3] for a in range(mine[1]))
        room = max(entries for *_, entries in everybody)
        # Two buffers are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read those of
        # call e before that barrier.
        field = team.room(before[-1], torch.float32, "field")
        windows = team.room(16 * team.world * room, torch.int32, "windows")
        ranges = team.out((team.world, rows, 2), torch.int32, "ranges", ring=2)
        tables = field.data_ptr(), windows.data_ptr(), ranges.data_ptr()
        sizes = [images, tall, wide, start, nlon_in, before[mine[0]], len(value), latitudes, rows, room]
        launch.share[BLOCKS, THREADS](team.px, x.contiguous(), index.data_ptr(), value, *tables, sizes)
        sizes = [batch, channels, basis, latitudes, first_t, t_count, first_j, j_count, nlon_in, room, polar, az]
        ordered = [ranks[p, a] for p in range(polar) for a in range(az)]
        for listed in (ordered, talls, before[:-1]):
            sizes += [*listed, *[0] * (8 - len(listed))]
        warps = min(-(-j_count // 128), WARPS)  # a thread has four longitudes
        blocks = min(max(images * t_count, 1), 96 * BLOCKS)
        launch.filter[blocks, 32 * IMAGES * warps](*tables, y, [*sizes, *by_channel])
    grouped = y.view(batch, groups, channels // groups * basis, t_count * j_count)
    out = torch.matmul(weight.reshape(groups, -1, grouped.shape[2]), grouped).view(batch, -1, t_count, j_count)
    return out if bias is None else out.add_(bias.view(-1, 1, 1))


def by_library(
    y: torch.Tensor,
    x: torch.Tensor,
    index: torch.Tensor,
    value: torch.Tensor,
    everybody: list[tuple[int, ...]],
    ranks: dict[tuple[int, int], int],
    place: tuple[int, int, int, int],
    by_channel: list[int],
) -> None:
    """Fills y [B, C, K, T_p, J_a] by library calls, which read fields and filters in the peers' memory."""
    first_t, first_j, turn, nlon_in = place
    batch, channels, basis, t_count, j_count = y.shape
    team = symm.team()
    most = max(tall * wide for _, _, tall, wide, _ in everybody) * batch * channels, max(row[4] for row in everybody)
    own = [
        team.room(most[0], x.dtype, "own x"),
        team.room(most[1], value.dtype, "own values"),
        team.room(3 * most[1], index.dtype, "own indices"),
    ]
    for space, part in zip(own, (x, value, index), strict=True):
        space[: part.numel()].copy_(part.reshape(-1))
    team.barrier()
    fields, values, indices = (team.peers(space) for space in own)
    turns = (first_j + torch.arange(j_count, device=x.device).view(-1, 1)) * turn
    y.zero_()
    for p in sorted({p for p, _ in ranks}):
        members = [rank for (polar, _), rank in sorted(ranks.items()) if polar == p]
        tiles = [(fields[rank], (batch, channels, *everybody[rank][2:4])) for rank in members]
        whole = torch.cat([tile[: math.prod(shape)].view(shape) for tile, shape in tiles], dim=3)
        for a, rank in enumerate(members):
            count, some = everybody[rank][4], slice(by_channel[a], by_channel[a + 1])
            k, t, column = indices[rank][: 3 * count].view(3, count)
            is_mine = (t >= first_t) & (t < first_t + t_count)
            row, column = (k * t_count + t - first_t)[is_mine], column[is_mine]
            longitude = column % nlon_in
            points = (column - longitude) + (longitude + turns) % nlon_in
            entries = torch.bincount(row, minlength=basis * t_count)
            bags = torch.arange(j_count, device=x.device).view(-1, 1) * len(column) + entries.cumsum(0) - entries
            table = whole[:, some].permute(2, 3, 0, 1).reshape(whole.shape[2] * nlon_in, -1)
            weights = values[rank][:count][is_mine].repeat(j_count)
            sums = F.embedding_bag(points.view(-1), table, bags.view(-1), mode="sum", per_sample_weights=weights)
            shape = (j_count, basis, t_count, batch, by_channel[a + 1] - by_channel[a])
            y[:, some] += sums.view(shape).permute(3, 4, 1, 2, 0)
