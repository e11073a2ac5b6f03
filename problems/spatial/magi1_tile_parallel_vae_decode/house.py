"""House kernel: tile-parallel decoding; ranks exchange latents, not pixels; each computes the video in one launch.

A row of the video mixes at most three decoded tiles along time and height. That mixture is linear, so it is computed
from latents, once per latent of the row. A pixel is then one interpolation between two values, or a mix of two
interpolations if tiles are cross-faded along the width. Writing the video limits the speed.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.columns import push_columns

kernel_for = cuda.lazy(r"""
// A position on an axis of the video, as Axis.places lists it: a tile, the two latents to interpolate between, and the weight
// `part` of the second; then the same of the tile before. rising: this tile's weight when both are cross-faded; 1: no cross-fade.
struct Place { int tile, low, high, low_before, high_before; float part, rising, part_before; };
static __device__ Place place_at(const uint4* places, int at) {
    const uint4 a = places[2 * at], b = places[2 * at + 1];
    return {(int)a.x, (int)a.y, (int)a.z, (int)b.y, (int)b.z, __uint_as_float(a.w), __uint_as_float(b.x), __uint_as_float(b.w)};
}
static __device__ float mixed(float a, float b, float part) { return a + (b - a) * part; }
const int LATENTS = 1024;  // limit of the latents of all tiles of a row
struct Sizes { int batch, channels, times, rows, columns, frames, height, width, listed, tiles_down, tiles_across; };
// Decodes the video [batch][3][frames][height][width]; a block computes three channels of one row at a time. latents:
// [W][batch][channels][times][rows][columns], batch entries `apart` elements apart. listed: {tile, column} of a row's latents,
// tile by tile; the latents of places across the width are positions in this list.
extern "C" __global__ void __launch_bounds__(128) decode_video(const TYPE* latents, i64 apart, const uint4* along,
        const uint4* down, const uint4* across, const int* listed, const int* owners, bf16* video, PxNumbers n) {
    const Sizes s = {(int)n.at[0], (int)n.at[1], (int)n.at[2], (int)n.at[3], (int)n.at[4], (int)n.at[5], (int)n.at[6],
        (int)n.at[7], (int)n.at[8], (int)n.at[9], (int)n.at[10]};
    __shared__ float own[3][LATENTS], faded[3][LATENTS];  // without and with cross-fading along time and height
    const i64 plane = (i64)s.rows * s.columns;
    for (i64 line = blockIdx.x; line < (i64)s.batch * s.frames * s.height; line += gridDim.x) {
        const int y = line % s.height, f = line / s.height % s.frames, b = line / s.height / s.frames;
        const Place t = place_at(along, f), h = place_at(down, y);
        for (int i = threadIdx.x; i < 3 * s.listed; i += blockDim.x) {
            const int channel = i / s.listed, e = i % s.listed, tile = listed[2 * e], column = listed[2 * e + 1];
            const auto decoded = [&](int time, int row, int t0, int t1, float t_part, int h0, int h1, float h_part) {
                const int owner = owners[(time * s.tiles_down + row) * s.tiles_across + tile];
                const TYPE* from = latents + ((i64)owner * s.batch + b) * apart + channel % s.channels * s.times * plane + column;
                const float early = mixed(to_float(from[t0 * plane + (i64)h0 * s.columns]),
                    to_float(from[t0 * plane + (i64)h1 * s.columns]), h_part);
                const float late = mixed(to_float(from[t1 * plane + (i64)h0 * s.columns]),
                    to_float(from[t1 * plane + (i64)h1 * s.columns]), h_part);
                return mixed(early, late, t_part);
            };
            const float here = decoded(t.tile, h.tile, t.low, t.high, t.part, h.low, h.high, h.part);
            float value = here;
            if (t.rising < 1) value = mixed(
                decoded(t.tile - 1, h.tile, t.low_before, t.high_before, t.part_before, h.low, h.high, h.part), value, t.rising);
            if (h.rising < 1) value = mixed(
                decoded(t.tile, h.tile - 1, t.low, t.high, t.part, h.low_before, h.high_before, h.part_before), value, h.rising);
            own[channel][e] = here, faded[channel][e] = value;
        }
        __syncthreads();
        for (int first = 8 * threadIdx.x; first < s.width; first += 8 * blockDim.x) {
            float pixel[3][8];
            #pragma unroll
            for (int k = 0; k < 8; ++k) {
                const Place w = place_at(across, min(first + k, s.width - 1));
                #pragma unroll
                for (int c = 0; c < 3; ++c) {
                    pixel[c][k] = mixed(faded[c][w.low], faded[c][w.high], w.part);
                    if (w.rising < 1) pixel[c][k] = mixed(
                        mixed(own[c][w.low_before], own[c][w.high_before], w.part_before), pixel[c][k], w.rising);
                }
            }
            #pragma unroll
            for (int c = 0; c < 3; ++c) {
                bf16* to = video + (((i64)b * 3 + c) * s.frames + f) * s.height * s.width + (i64)y * s.width;
                px_st_part(to, first, s.width, px_pack<bf16>(pixel[c]));
            }
        }
        __syncthreads();
    }
}
""")
BLOCKS, THREADS = 2112, 128
LATENTS = 1024
"""Most latents of all tiles along the width; wider videos, and CPU ranks, take library calls."""


@dataclass(frozen=True)
class Axis:
    """An axis of latents in tiles: `stride` apart, `tile` long, `scale` pixels a latent, `blend` pixels cross-faded."""

    size: int
    tile: int
    stride: int
    scale: int
    blend: int

    def tiles(self) -> list[tuple[int, int]]:
        """(first latent, number of latents) of each tile, cut off at the end."""
        return [(at, min(self.tile, self.size - at)) for at in range(0, self.size, self.stride)]

    def kept(self, length: int) -> int:
        """Pixels that a tile of `length` latents adds to the video."""
        return min(length * self.scale, self.tile * self.scale - self.blend)

    def faded(self, tile: int) -> int:
        """Pixels at the beginning of a tile that are cross-faded with the end of the one before."""
        lengths = [length * self.scale for _, length in self.tiles()]
        return min(lengths[tile - 1], lengths[tile], self.blend) if tile else 0

    def places(self, firsts: list[int]) -> list[list[int]]:
        """The fields of the kernel's Place, by pixel; a tile's latents are numbered from firsts[tile] on."""

        def between(tile: int, at: int) -> list[int | float]:
            last = tiles[tile][1] - 1
            source = max((at + 0.5) / self.scale - 0.5, 0.0)
            low = min(int(source), last)
            return [firsts[tile] + low, firsts[tile] + min(low + 1, last), source - low]

        tiles, found = self.tiles(), []
        for tile, (_, length) in enumerate(tiles):
            faded = self.faded(tile)
            for at in range(self.kept(length)):
                before: list[int | float] = [1.0, 0, 0, 0.0]
                if at < faded:
                    end = tiles[tile - 1][1] * self.scale
                    before = [at / faded, *between(tile - 1, end - faded + at)]
                found.append([tile, *between(tile, at), *before])
        floats = torch.tensor(found, dtype=torch.float32)
        words = torch.tensor([[int(number) for number in row] for row in found], dtype=torch.int32)
        words[:, [3, 4, 7]] = floats[:, [3, 4, 7]].contiguous().view(torch.int32)
        return words.tolist()


Axes = tuple[Axis, Axis, Axis]


@functools.lru_cache(maxsize=16)
def owners_of(axes: Axes, world: int) -> dict[tuple[int, ...], int]:
    """The rank that decodes each tile (time, height, width): round robin over the tiles, the largest first."""
    sides = [axis.tiles() for axis in axes]
    order = sorted(
        itertools.product(*(range(len(side)) for side in sides)),
        key=lambda place: -math.prod(side[at][1] for side, at in zip(sides, place, strict=True)),
    )
    return {place: position % world for position, place in enumerate(order)}


@functools.lru_cache(maxsize=16)
def tables(axes: Axes, world: int, device: torch.device) -> list[torch.Tensor]:
    """Int32 tables on the device: places on time, height, width; {tile, latent} of a row's latents; tiles' owners."""
    sides = [axis.tiles() for axis in axes]
    begins = [[at for at, _ in side] for side in sides[:2]]
    begins.append(list(itertools.accumulate((length for _, length in sides[2][:-1]), initial=0)))
    places = [axis.places(firsts) for axis, firsts in zip(axes, begins, strict=True)]
    listed = [[tile, at + i] for tile, (at, length) in enumerate(sides[2]) for i in range(length)]
    owners = [owner for _, owner in sorted(owners_of(axes, world).items())]
    return [torch.tensor(rows, dtype=torch.int32, device=device) for rows in (*places, listed, owners)]


def solution(
    z: torch.Tensor,
    tile_latent_min_length: int,
    tile_latent_min_height: int,
    tile_latent_min_width: int,
    spatial_tile_overlap_factor: float,
    temporal_tile_overlap_factor: float,
    spatial_upsample: int,
    temporal_upsample: int,
    sr_ratio: int = 1,
    first_frame_as_image: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """z [B, C, T, H, Wd] -> the video [B, 3, frames, height, width] in bfloat16, the same on every rank.

    Tiles are decoded from their owner's z, interpolated in float32, cross-faded with the tiles before and rounded once.

    Raises:
        ValueError: an overlap is so large that no stride is left.
    """
    tile = tile_latent_min_length + int(first_frame_as_image), tile_latent_min_height, tile_latent_min_width
    overlap = temporal_tile_overlap_factor, spatial_tile_overlap_factor, spatial_tile_overlap_factor
    scale = temporal_upsample, spatial_upsample * sr_ratio, spatial_upsample * sr_ratio
    strides = [int(size * (1 - part)) for size, part in zip(tile, overlap, strict=True)]
    if min(strides) <= 0:
        raise ValueError(f"tiles of {tile} latents overlap so far ({overlap}) that no stride is left")
    blends = [int(size * by * part) for size, by, part in zip(tile, scale, overlap, strict=True)]
    time, height, width = (Axis(*numbers) for numbers in zip(z.shape[2:], tile, strides, scale, blends, strict=True))
    axes, batch, channels = (time, height, width), z.shape[0], min(z.shape[1], 3)
    shape = [sum(axis.kept(length) for _, length in axis.tiles()) for axis in axes]
    video = z.new_empty((batch, 3, *shape), dtype=torch.bfloat16)
    world = dist.get_world_size(group)
    listed = sum(length for _, length in width.tiles())
    if not z.is_cuda or z.dtype not in cuda.FLOATS or listed > LATENTS:
        mine = z[:, :channels].contiguous()
        latents = mine.new_empty(world, *mine.shape)
        dist.all_gather_into_tensor(latents, mine, group=group)
        return decode_tiles(latents, axes, video)
    kernels, z = kernel_for(z.dtype), z.contiguous()
    kept, apart, latents = z[0, :channels].numel(), z[0].numel(), z
    if world > 1:
        team = symm.team(group)
        column_kernels(cuda.unit_of(z))  # before the ranks exchange: see `cuda.lazy`
        latents = team.out((world, batch, kept), z.dtype, "latents", ring=2)
        push_columns(z.view(batch, -1)[:, :kept], latents[team.rank], team, 0)
        apart = kept
    lines = min(batch * shape[0] * shape[1], BLOCKS)
    given = [table.data_ptr() for table in tables(axes, world, z.device)]
    sizes = [batch, channels, *z.shape[2:], *shape, listed, len(height.tiles()), len(width.tiles())]
    kernels.decode_video[lines, THREADS](latents.data_ptr(), apart, *given, video, sizes)
    return video


def decode_tiles(latents: torch.Tensor, axes: Axes, video: torch.Tensor) -> torch.Tensor:
    """Decodes into `video` by library calls, tile by tile; latents [W, B, channels, T, H, Wd] of all ranks."""
    sides = [axis.tiles() for axis in axes]
    decoded: dict[tuple[int, ...], torch.Tensor] = {}
    for place, owner in owners_of(axes, latents.shape[0]).items():
        part = latents[owner].repeat(1, -(-3 // latents.shape[2]), 1, 1, 1)[:, :3]
        for dim, (side, at) in enumerate(zip(sides, place, strict=True), start=2):
            part = part.narrow(dim, *side[at])
        size = [extent * axis.scale for extent, axis in zip(part.shape[2:], axes, strict=True)]
        decoded[place] = F.interpolate(part.float(), size=size, mode="trilinear", align_corners=False)
    for place, whole in decoded.items():
        tile, target = whole.clone(), video
        for dim, (axis, at) in enumerate(zip(axes, place, strict=True), start=2):
            faded = axis.faded(at)
            if faded:
                before = decoded[*place[: dim - 2], at - 1, *place[dim - 1 :]]
                rising = torch.arange(faded, device=tile.device).view(-1, *[1] * (4 - dim)) / faded
                head = tile.narrow(dim, 0, faded)
                head.copy_(before.narrow(dim, before.shape[dim] - faded, faded).lerp(head, rising))
        for dim, (axis, side, at) in enumerate(zip(axes, sides, place, strict=True), start=2):
            kept = axis.kept(side[at][1])
            target = target.narrow(dim, sum(axis.kept(length) for _, length in side[:at]), kept)
            tile = tile.narrow(dim, 0, kept)
        target.copy_(tile)
    return video
