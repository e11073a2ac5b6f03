"""Tile-parallel decoding: own tiles, exchange, blend with neighbours, exchange, stitch."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

CHANNELS = 3
Place = tuple[int, int, int]
Extent = tuple[int, int, int]


@torch.no_grad()
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

    A rank decodes its tiles from its own z. Float64 latents give a float64 video without any rounding
    between, for exact comparison.

    Raises:
        ValueError: an overlap leaves a tile without a stride.
    """
    tiling = Tiling(
        shape=(z.shape[2], z.shape[3], z.shape[4]),
        tile=(tile_latent_min_length + int(first_frame_as_image), tile_latent_min_height, tile_latent_min_width),
        overlap=(temporal_tile_overlap_factor, spatial_tile_overlap_factor, spatial_tile_overlap_factor),
        upsample=(temporal_upsample, spatial_upsample * sr_ratio, spatial_upsample * sr_ratio),
    )
    world = dist.get_world_size(group) if dist.is_initialized() else 1
    rank = dist.get_rank(group) if dist.is_initialized() else 0
    owned = tiling.by_owner(world)
    leading = (z.shape[0], CHANNELS)
    like = z.new_empty(0, dtype=torch.float64 if z.dtype == torch.float64 else torch.bfloat16)
    decoded = [_decode(z[(..., *tiling.latent(place))], tiling.upsample).to(like.dtype) for place in owned[rank]]
    whole = {place: (*leading, *tiling.decoded(place)) for place in tiling}
    tiles = _gathered(decoded, owned, whole, like, group)
    blended = [_blended(tiles, place, tiling) for place in owned[rank]]
    kept = {place: (*leading, *tiling.kept(place)) for place in tiling}
    pieces = _gathered(blended, owned, kept, like, group)
    return _stitched(pieces, tiling.grid)


@dataclass(frozen=True)
class Tiling:
    """How a latent volume is cut; all triples are (time, height, width)."""

    shape: Extent
    tile: Extent
    overlap: tuple[float, float, float]
    upsample: Extent

    def __post_init__(self) -> None:
        if min(self.stride) <= 0:
            raise ValueError(f"tiles of {self.tile} latents overlap so far ({self.overlap}) that no stride is left")

    @property
    def stride(self) -> Extent:
        t, h, w = (int(size * (1 - part)) for size, part in zip(self.tile, self.overlap, strict=True))
        return t, h, w

    @property
    def grid(self) -> Extent:
        t, h, w = (math.ceil(size / step) for size, step in zip(self.shape, self.stride, strict=True))
        return t, h, w

    @property
    def blend(self) -> Extent:
        """Output pixels that are cross-faded with the previous tile, per axis."""
        sides = zip(self.tile, self.upsample, self.overlap, strict=True)
        t, h, w = (int(size * scale * part) for size, scale, part in sides)
        return t, h, w

    def __iter__(self) -> Iterator[Place]:
        return itertools.product(*(range(count) for count in self.grid))

    def latent(self, place: Place) -> tuple[slice, slice, slice]:
        """The latents of a tile, cut off at the border."""
        t, h, w = (
            slice(at * step, min(at * step + size, end))
            for at, step, size, end in zip(place, self.stride, self.tile, self.shape, strict=True)
        )
        return t, h, w

    def decoded(self, place: Place) -> Extent:
        """Size of a decoded tile."""
        sides = zip(self.latent(place), self.upsample, strict=True)
        t, h, w = ((part.stop - part.start) * scale for part, scale in sides)
        return t, h, w

    def kept(self, place: Place) -> Extent:
        """Size of what a tile adds to the video: the next tile brings the rest."""
        whole = zip(self.decoded(place), self.tile, self.upsample, self.blend, strict=True)
        t, h, w = (min(size, tile * scale - blend) for size, tile, scale, blend in whole)
        return t, h, w

    def by_owner(self, world: int) -> list[list[Place]]:
        """Tiles of each rank: the largest first, dealt out in turn."""
        order = sorted(self, key=lambda place: -math.prod(self.decoded(place)))
        return [order[rank::world] for rank in range(world)]


def _decode(z: torch.Tensor, upsample: Extent) -> torch.Tensor:
    """Stands for the decoder: three channels, interpolated within the tile."""
    if z.shape[1] < CHANNELS:
        z = z.repeat(1, -(-CHANNELS // z.shape[1]), 1, 1, 1)
    z = z[:, :CHANNELS]
    size = [extent * scale for extent, scale in zip(z.shape[2:], upsample, strict=True)]
    wide = z.to(torch.promote_types(z.dtype, torch.float32))
    return F.interpolate(wide, size=size, mode="trilinear", align_corners=False)


def _blended(tiles: dict[Place, torch.Tensor], place: Place, tiling: Tiling) -> torch.Tensor:
    """A tile cross-faded with the previous ones along time, height and width; then what is kept of it."""
    tile = tiles[place].clone()
    for axis in range(3):
        if place[axis] == 0:
            continue
        before = list(place)
        before[axis] -= 1
        previous, dim = tiles[before[0], before[1], before[2]], axis + 2
        extent = min(previous.shape[dim], tile.shape[dim], tiling.blend[axis])
        if extent == 0:
            continue
        rising = torch.arange(extent, dtype=torch.float64, device=tile.device) / extent
        rising = rising.view(-1, *[1] * (4 - dim))
        wide = torch.promote_types(tile.dtype, torch.float32)
        tail = previous.narrow(dim, previous.shape[dim] - extent, extent)
        head = tile.narrow(dim, 0, extent)
        fading = (tail * (1 - rising).to(wide)).to(tile.dtype)
        head.copy_(fading + (head * rising.to(wide)).to(tile.dtype))
    t, h, w = tiling.kept(place)
    return tile[:, :, :t, :h, :w]


def _gathered(
    mine: list[torch.Tensor],
    owned: list[list[Place]],
    shapes: dict[Place, tuple[int, ...]],
    like: torch.Tensor,
    group: dist.ProcessGroup | None,
) -> dict[Place, torch.Tensor]:
    """Everybody's tiles by place, of the dtype and device of `like`.

    Shapes follow from the tiling, so that only pixels travel. All ranks send as much as the fullest.
    """
    if len(owned) == 1:
        return dict(zip(owned[0], mine, strict=True))
    sizes = [[math.prod(shapes[place]) for place in places] for places in owned]
    longest = max(map(sum, sizes))
    leaving, arriving = like.new_zeros(longest), like.new_empty(len(owned), longest)
    if mine:
        pixels = torch.cat([tile.reshape(-1) for tile in mine])
        leaving[: pixels.numel()] = pixels
    dist.all_gather_into_tensor(arriving, leaving, group=group)
    tiles = {}
    for row, places, size in zip(arriving, owned, sizes, strict=True):
        for place, piece in zip(places, row[: sum(size)].split(size), strict=True):
            tiles[place] = piece.view(shapes[place])
    return tiles


def _stitched(tiles: dict[Place, torch.Tensor], grid: Extent) -> torch.Tensor:
    frames = []
    for t in range(grid[0]):
        rows = [torch.cat([tiles[t, h, w] for w in range(grid[2])], dim=4) for h in range(grid[1])]
        frames.append(torch.cat(rows, dim=3))
    return torch.cat(frames, dim=2)
