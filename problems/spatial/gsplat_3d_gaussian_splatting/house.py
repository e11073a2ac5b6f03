"""House kernel: projection of Gaussians; one launch counts the visible ones, one projects again and stores the results.

A pair of a Gaussian and a camera fits into registers, so it is projected twice instead of stored. The ranks exchange W
counts on the GPU before the second launch. Records of a tile are packed in shared memory and leave as runs of whole
words.
"""

import itertools
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import cuda_text
from sandbox.kit.blocks.rows import all_to_all_rows
from sandbox.kit.blocks.side_stream import on_host, read_early

SOURCE = r"""
const int LENS = 25, TILE = 512;
struct Scene { i64 n, cameras, channels; float width, height, eps2d, near, far; };
struct Seen { float value[6], radius[2]; };  // value: mean2d, depth, conic
template <class T> struct Gaussians { const T *means, *quats, *scales; };
// Projects Gaussian i into a camera and returns whether it is visible. lens: the camera's viewmat [4][4], then its K [3][3].
template <class T> static __device__ bool project(
        const Gaussians<T>& from, i64 i, const float* lens, const Scene& scene, Seen& seen) {
    float quat[4], axes[3][3], turned[3][3], centre[3], edge[2][3];
    float squares = 0;
    #pragma unroll
    for (int e = 0; e < 4; ++e) quat[e] = to_float(from.quats[4 * i + e]), squares += quat[e] * quat[e];
    const float norm = fmaxf(sqrtf(squares), 1e-12f);
    const float w = quat[0] / norm, x = quat[1] / norm, y = quat[2] / norm, z = quat[3] / norm;
    const float turn[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
                              {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
                              {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
    #pragma unroll
    for (int a = 0; a < 3; ++a)
        #pragma unroll
        for (int b = 0; b < 3; ++b) axes[a][b] = turn[a][b] * to_float(from.scales[3 * i + b]);
    #pragma unroll
    for (int a = 0; a < 3; ++a) {  // the Gaussian's axes and centre in the camera's frame
        centre[a] = lens[4 * a + 3];
        #pragma unroll
        for (int b = 0; b < 3; ++b) {
            centre[a] += lens[4 * a + b] * to_float(from.means[3 * i + b]);
            turned[a][b] = lens[4 * a] * axes[0][b] + lens[4 * a + 1] * axes[1][b] + lens[4 * a + 2] * axes[2][b];
        }
    }
    const float* k = lens + 16;
    const float depth = centre[2], size[2] = {scene.width, scene.height};
    #pragma unroll
    for (int a = 0; a < 2; ++a) {
        const float focal = k[4 * a], middle = k[3 * a + 2], slack = 0.3f * (0.5f * size[a] / focal);
        const float reach = fminf(fmaxf(centre[a] / depth, -(middle / focal + slack)), (size[a] - middle) / focal + slack);
        #pragma unroll
        for (int b = 0; b < 3; ++b) edge[a][b] = focal / depth * (turned[a][b] - reach * turned[2][b]);
        seen.value[a] = (k[3 * a] * centre[0] + k[3 * a + 1] * centre[1] + k[3 * a + 2] * centre[2]) / depth;
    }
    float first = 0, both = 0, second = 0, across = 0;
    #pragma unroll
    for (int b = 0; b < 3; ++b) {
        const int c = (b + 1) % 3;
        first += edge[0][b] * edge[0][b], both += edge[0][b] * edge[1][b], second += edge[1][b] * edge[1][b];
        const float normal = edge[0][b] * edge[1][c] - edge[0][c] * edge[1][b];
        across += normal * normal;
    }
    // (first + eps) (second + eps) - both^2, computed without subtracting two large numbers
    const float determinant = fmaxf(across + scene.eps2d * (first + second + scene.eps2d), 1e-10f);
    first += scene.eps2d, second += scene.eps2d;
    seen.value[2] = depth, seen.value[3] = second / determinant, seen.value[4] = -both / determinant;
    seen.value[5] = first / determinant;
    seen.radius[0] = ceilf(3.33f * sqrtf(first)), seen.radius[1] = ceilf(3.33f * sqrtf(second));
    bool visible = depth > scene.near && depth < scene.far;
    #pragma unroll
    for (int a = 0; a < 2; ++a)
        visible = visible && seen.radius[a] > 0 && seen.value[a] + seen.radius[a] > 0 && seen.value[a] - seen.radius[a] < size[a];
    return visible;
}
// Returns how many Gaussians each block has: a multiple of 32, so that no word of a mask belongs to two blocks.
static __device__ i64 share_of(i64 n) { return ((n + gridDim.x - 1) / gridDim.x + 31) / 32 * 32; }
// Counts this rank's Gaussians that each camera of all ranks sees. lenses: [W][cameras][LENS], symmetric. places:
// [W][cameras][blocks], where a block's records of a camera begin among those that this rank sends to the owner. masks:
// [W][cameras][n / 32], a bit for each Gaussian, set if it is visible; `deliver_records` reads them, so that both decide alike.
// totals: [W (senders)][W (owners)], symmetric. begins: [W], where this rank's records begin at each owner. size: records that
// this rank receives.
extern "C" __global__ void __launch_bounds__(512) count_visible(Px px, const TYPE* means, const TYPE* quats, const TYPE* scales,
        const TYPE* viewmats, const TYPE* Ks, float* lenses, u32* masks, u32* places, u32* totals, u32* begins, u32* done,
        i64* size, i64 n, i64 cameras, float width, float height, float eps2d, float near, float far) {
    const Gaussians<TYPE> from = {means, quats, scales};
    const Scene scene = {n, cameras, 0, width, height, eps2d, near, far};
    const u32 turn = px_turn(px, blockIdx.x), last = 1000;
    for (int i = threadIdx.x; i < px.world * scene.cameras * LENS; i += blockDim.x) {  // every block sends all ranks the same
        const int number = i % (scene.cameras * LENS), camera = number / LENS, e = number % LENS;
        const float value = to_float(e < 16 ? viewmats[16 * camera + e] : Ks[9 * camera + e - 16]);
        px_at(px, i / (scene.cameras * LENS), lenses)[px.rank * scene.cameras * LENS + number] = value;
    }
    px_turn_barrier(px, blockIdx.x, turn);
    const i64 share = share_of(scene.n), end = min((blockIdx.x + 1) * share, scene.n), words = (scene.n + 31) / 32;
    u32 all;
    for (int view = 0; view < px.world * scene.cameras; ++view) {
        u32 visible = 0;
        for (i64 first = blockIdx.x * share; first < end; first += blockDim.x) {
            const i64 i = first + threadIdx.x;
            Seen seen;
            const bool is_visible = i < end && project(from, i, lenses + view * LENS, scene, seen);
            const u32 mask = __ballot_sync(0xffffffffu, is_visible);
            if (i < end && threadIdx.x % 32 == 0) masks[view * words + i / 32] = mask;
            visible += is_visible;
        }
        sum_before(visible, all);
        if (threadIdx.x == 0) places[(i64)view * gridDim.x + blockIdx.x] = all;
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 last_turn = px_turn(px, last);
    const i64 each = scene.cameras * gridDim.x;
    for (int owner = 0; owner < px.world; ++owner) {
        u32 running = 0;
        for (i64 first = 0; first < each; first += blockDim.x) {
            const i64 at = first + threadIdx.x;
            const u32 before = sum_before(at < each ? places[owner * each + at] : 0, all);
            if (at < each) places[owner * each + at] = running + before;
            running += all;
        }
        if (threadIdx.x < px.world) px_at(px, threadIdx.x, totals)[px.rank * px.world + owner] = running;
    }
    px_turn_barrier(px, last, last_turn);
    if (threadIdx.x < px.world) {
        u32 begin = 0;
        for (int source = 0; source < px.rank; ++source) begin += totals[source * px.world + threadIdx.x];
        begins[threadIdx.x] = begin;
    }
    if (threadIdx.x == 0) {
        i64 records = 0;
        for (int source = 0; source < px.world; ++source) records += totals[source * px.world + px.rank];
        *size = records;
    }
}
// camera_ids to to_colors: the eight results of a rank, symmetric. offsets.at[r] is added to the indices of Gaussians in the
// records for rank r. Projects the visible Gaussians again and stores their records at the cameras' owners. A block gathers up to
// TILE records in shared memory, and writes them to each result as one run.
extern "C" __global__ void __launch_bounds__(512) deliver_records(Px px, const TYPE* means, const TYPE* quats, const TYPE* scales,
        const TYPE* opacities, const TYPE* colors, const float* lenses, const u32* masks, const u32* places, const u32* begins,
        i64* camera_ids, i64* gaussian_ids, int* all_radii, TYPE* means2d, TYPE* depths, TYPE* conics, TYPE* to_opacities,
        TYPE* to_colors, PxNumbers offsets, i64 n, i64 cameras, i64 channels, float width, float height, float eps2d,
        float near, float far) {
    const Gaussians<TYPE> from = {means, quats, scales};
    const Scene scene = {n, cameras, channels, width, height, eps2d, near, far};
    __shared__ float values[TILE][6];
    __shared__ int radii[TILE][2];
    __shared__ u32 who[TILE];
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 share = share_of(scene.n), end = min((blockIdx.x + 1) * share, scene.n), words = (scene.n + 31) / 32;
    const int views = px.world * scene.cameras;
    for (int step = 0; step < views; ++step) {
        const int view = (step + px.rank * scene.cameras) % views, owner = view / scene.cameras;
        i64 at = begins[owner] + places[(i64)view * gridDim.x + blockIdx.x];
        for (i64 first = blockIdx.x * share; first < end; first += blockDim.x) {
            const i64 i = first + threadIdx.x;
            Seen seen;
            const bool visible = i < end && masks[view * words + i / 32] >> i % 32 & 1;
            u32 all;
            const u32 place = sum_before(visible, all);
            if (visible) {
                project(from, i, lenses + view * LENS, scene, seen);
                who[place] = (u32)i;
                #pragma unroll
                for (int e = 0; e < 6; ++e) values[place][e] = seen.value[e];
                radii[place][0] = (int)seen.radius[0], radii[place][1] = (int)seen.radius[1];
            }
            __syncthreads();
            for (u32 r = threadIdx.x; r < all; r += blockDim.x) {
                px_at(px, owner, camera_ids)[at + r] = view % scene.cameras;
                px_at(px, owner, gaussian_ids)[at + r] = who[r] + offsets.at[owner];
                px_at(px, owner, depths)[at + r] = from_float<TYPE>(values[r][2]);
                px_at(px, owner, to_opacities)[at + r] = opacities[who[r]];
            }
            for (u32 r = threadIdx.x; r < 2 * all; r += blockDim.x) {
                px_at(px, owner, all_radii)[2 * at + r] = radii[r / 2][r % 2];
                px_at(px, owner, means2d)[2 * at + r] = from_float<TYPE>(values[r / 2][r % 2]);
            }
            for (u32 r = threadIdx.x; r < 3 * all; r += blockDim.x)
                px_at(px, owner, conics)[3 * at + r] = from_float<TYPE>(values[r / 3][3 + r % 3]);
            for (u32 r = threadIdx.x; r < scene.channels * all; r += blockDim.x)
                px_at(px, owner, to_colors)[scene.channels * at + r] =
                    colors[who[r / scene.channels] * scene.channels + r % scene.channels];
            at += all;
            __syncthreads();  // all threads have read the tile
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the records of all ranks have arrived
}
"""
kernel_for = cuda.lazy(cuda_text("prefix") + SOURCE)
BLOCKS, THREADS = 128, 512
ALIGN = 256


def solution(
    means: torch.Tensor,
    quats: torch.Tensor,
    scales: torch.Tensor,
    opacities: torch.Tensor,
    colors: torch.Tensor,
    viewmats: torch.Tensor,
    Ks: torch.Tensor,
    image_width: int,
    image_height: int,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    camera_model: str = "pinhole",
) -> tuple[torch.Tensor, ...]:
    """means [n, 3], quats [n, 4] (w, x, y, z), scales [n, 3], opacities [n], colors [n, D], viewmats [C, 4, 4], Ks [C, 3, 3].

    Returns camera_ids, gaussian_ids, radii, means2d, depths, conics, opacities and colors of all Gaussians that are visible in
    this rank's cameras, ordered by source rank, camera, Gaussian. On GPUs these are symmetric memory of a ring of two.

    Raises:
        ValueError: a camera model other than "pinhole".
    """
    if camera_model != "pinhole":
        raise ValueError(f"camera model {camera_model!r}: only pinhole cameras are projected here")
    given = [x.contiguous() for x in (means, quats, scales, opacities, colors, viewmats, Ks)]
    numbers = (image_width, image_height, eps2d, near_plane, far_plane)
    use_kernel = means.is_cuda and means.dtype in cuda.FLOATS
    kernels = kernel_for(means.dtype) if use_kernel else None  # compiled before any barrier
    counts = [n for (n,) in symm.gather_numbers(len(means))]
    # The offset is that of the receiving rank, as in the baseline, whose results are the reference.
    offsets = list(itertools.accumulate(counts[:-1], initial=0))
    if kernels is None:
        return by_library(given, numbers, offsets)
    dtype, cameras, channels = means.dtype, len(viewmats), colors.shape[1]
    world, blocks = symm.world, min(max(-(-max(counts) // THREADS), 1), BLOCKS)
    most = cameras * sum(counts)
    shapes = [(), (), (2,), (2,), (), (3,), (), (channels,)]
    dtypes = [torch.int64, torch.int64, torch.int32, *[dtype] * 5]
    widths = [math.prod(shape) * each.itemsize for shape, each in zip(shapes, dtypes, strict=True)]
    begins = list(itertools.accumulate((-(-most * width // ALIGN) * ALIGN for width in widths), initial=0))
    # Two buffers are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the results
    # of call e before that barrier.
    lenses = symm.out((world * cameras, 25), torch.float32, "lenses", ring=2)
    totals = symm.out((world, world), torch.int32, "totals", ring=2)
    room = symm.room(begins[-1], torch.uint8, "records")
    done = symm.empty(1, torch.int32, "done")  # zero at first, and after every launch
    views = world * cameras
    # Used by both launches: per view a mask of the visible Gaussians and a place for each block; per owner a first
    # place.
    cuts = list(itertools.accumulate((views * -(-len(means) // 32), views * blocks, world)))
    scratch = torch.empty(cuts[-1], dtype=torch.int32, device=means.device).tensor_split(cuts[:-1])
    masks, places, firsts = (part.data_ptr() for part in scratch)
    size = on_host(1)
    scene = [float(number) for number in numbers]
    counted = lenses, masks, places, totals.data_ptr(), firsts, done.data_ptr(), size.data_ptr()
    kernels.count_visible[blocks, THREADS](symm.px, *given[:3], *given[5:], *counted, len(means), cameras, *scene)
    sizes = read_early(size)
    delivered = lenses, masks, places, firsts, *(room.data_ptr() + begin for begin in begins[:-1]), offsets
    kernels.deliver_records[blocks, THREADS](symm.px, *given[:5], *delivered, len(means), cameras, channels, *scene)
    (found,) = sizes()
    typed = {each: room.view(each) for each in set(dtypes)}
    return tuple(  # one view each
        typed[each].as_strided(
            (found, *shape),
            (math.prod(shape), *(1,) * len(shape)),
            typed[each].storage_offset() + begin // each.itemsize,
        )
        for begin, each, shape in zip(begins, dtypes, shapes, strict=False)
    )


def by_library(
    given: list[torch.Tensor], numbers: tuple[int, int, float, float, float], offsets: list[int]
) -> tuple[torch.Tensor, ...]:
    """Computes `solution` by library calls: all pairs at once, then one exchange of integers and one of values."""
    means, quats, scales, opacities, colors, viewmats, Ks = given
    width, height, eps2d, near, far = numbers
    team, cameras = symm.team(), len(viewmats)
    own = torch.cat([viewmats.reshape(cameras, 16), Ks.reshape(cameras, 9)], dim=1)
    lenses = own.new_empty(team.world * cameras, 25)
    dist.all_gather_into_tensor(lenses, own)
    wide = torch.promote_types(means.dtype, torch.float32)
    lenses = lenses.to(wide)
    w, x, y, z = F.normalize(quats.to(wide), dim=1, eps=1e-12).unbind(dim=1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    axes = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1) * scales.to(wide)[:, None]
    views = lenses[:, :16].view(-1, 1, 4, 4)
    centres = (views[..., :3, :3] @ means.to(wide)[:, :, None]).squeeze(3) + views[..., :3, 3]
    turned, depth = views[..., :3, :3] @ axes, centres[..., 2]
    intrinsics, limits = lenses[:, 16:].view(-1, 3, 3), lenses.new_tensor((width, height))
    focal, middle = intrinsics[:, None, (0, 1), (0, 1)], intrinsics[:, None, :2, 2]
    slack, away = 0.3 * (0.5 * limits / focal), depth[..., None]
    reach = (centres[..., :2] / away).maximum(-(middle / focal + slack)).minimum((limits - middle) / focal + slack)
    edges = (focal / away)[..., None] * (turned[..., :2, :] - reach[..., None] * turned[..., 2:, :])
    means2d, spread = centres @ intrinsics[:, :2].mT / away, edges.square().sum(dim=3)
    across = torch.linalg.cross(edges[..., 0, :], edges[..., 1, :]).square().sum(dim=2)
    determinant = (across + eps2d * (spread.sum(dim=2) + eps2d)).clamp(min=1e-10)
    (first, second), both = (spread + eps2d).unbind(dim=2), edges.prod(dim=2).sum(dim=2)
    radii = (3.33 * (spread + eps2d).sqrt()).ceil()
    visible = ((radii > 0) & (means2d + radii > 0) & (means2d - radii < limits)).all(dim=2)
    visible &= (depth > near) & (depth < far)

    camera, gaussian = visible.nonzero(as_tuple=True)
    sent = visible.view(team.world, -1).sum(dim=1).tolist()
    received = [counts[team.rank] for counts in team.gather_numbers(*sent)]
    ids = torch.stack([camera % cameras, gaussian], dim=1).int()
    seen = torch.stack([depth, second / determinant, -both / determinant, first / determinant], dim=2)
    values = [means2d[visible].to(means.dtype), seen[visible].to(means.dtype)]
    arrived_ids = all_to_all_rows(torch.cat([ids, radii[visible].int()], dim=1), sent, received, team)
    packed = torch.cat([*values, opacities[gaussian, None], colors[gaussian]], dim=1)
    arrived = all_to_all_rows(packed, sent, received, team)
    parts = [arrived_ids[:, 0].long(), arrived_ids[:, 1].long() + offsets[team.rank], arrived_ids[:, 2:]]
    return tuple(
        part.contiguous()
        for part in (*parts, arrived[:, :2], arrived[:, 2], arrived[:, 3:6], arrived[:, 6], arrived[:, 7:])
    )
