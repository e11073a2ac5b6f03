"""Compares spatial baselines with the formulas of their cards, computed on one process from all ranks' inputs."""

import math

import pytest
import torch
import torch.nn.functional as F


def dft(n: int, sign: int, length: int | None = None) -> torch.Tensor:
    """The orthonormal DFT matrix [n, n], or its first `length` rows."""
    angle = sign * 2 * math.pi * torch.outer(torch.arange(length or n), torch.arange(n)).double() / n
    return torch.polar(torch.full_like(angle, n**-0.5), angle)


@pytest.mark.parametrize("world", [1, 3])
def test_rfft_is_the_product_with_two_dft_matrices(gathered, world):
    ranks = gathered("physicsnemo_distributed_rfft", world)
    s = ranks[0].sizes
    field = torch.cat([rank.tensors["x"] for rank in ranks], dim=2).to(torch.complex128)
    spectrum = dft(s.H, -1) @ field @ dft(s.Wd, -1, s.Wd // 2 + 1).T
    for rank, expected in zip(ranks, spectrum.chunk(world, dim=1), strict=True):
        torch.testing.assert_close(rank.result.to(torch.complex128), expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(rank.oracle, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("world", [1, 4])
def test_irfft_is_real_part_of_completed_sum(gathered, world):
    ranks = gathered("physicsnemo_distributed_irfft", world)
    s = ranks[0].sizes
    half = torch.cat([rank.tensors["x"] for rank in ranks], dim=2).to(torch.complex128)
    completed = torch.zeros(s.B, s.C, s.H, s.Wd, dtype=torch.complex128)
    completed[..., : s.m] = half
    for column in range(s.m, s.Wd):
        completed[..., column] = half[:, :, -torch.arange(s.H) % s.H, s.Wd - column].conj()
    field = (dft(s.H, 1) @ completed @ dft(s.Wd, 1).T).real
    for rank, expected in zip(ranks, field.chunk(world, dim=3), strict=True):
        torch.testing.assert_close(rank.result.double(), expected, rtol=0, atol=5e-5)
        torch.testing.assert_close(rank.oracle, expected, rtol=0, atol=1e-6)


def seen_by(viewmat, k, tensors, size):
    """One camera's view of one rank's Gaussians, in float64: visible, radii, mean2d, depth, conic."""
    w, x, y, z = (tensors["quats"].double() / tensors["quats"].double().norm(dim=1, keepdim=True)).T
    zero = torch.zeros_like(w)
    # The rotation v -> q v q*: left and right multiplication of quaternions as 4 x 4 matrices.
    left = torch.stack([w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w], 1).view(-1, 4, 4)
    right = torch.stack([w, x, y, z, -x, w, -z, y, -y, z, w, -x, -z, -y, x, w], 1).view(-1, 4, 4)
    rotation = (left @ right)[:, 1:, 1:]
    covariance = rotation @ torch.diag_embed(tensors["scales"].double().square()) @ rotation.mT
    rv, tv = viewmat[:3, :3].double(), viewmat[:3, 3].double()
    centre = tensors["means"].double() @ rv.T + tv
    turned = rv @ covariance @ rv.T
    mx, my, mz = centre.T
    (fx, _, cx), (_, fy, cy) = k.double()[0], k.double()[1]
    sx, sy = 0.3 * size[0] / (2 * fx), 0.3 * size[1] / (2 * fy)
    xt = mz * (mx / mz).clamp(-(cx / fx + sx), (size[0] - cx) / fx + sx)
    yt = mz * (my / mz).clamp(-(cy / fy + sy), (size[1] - cy) / fy + sy)
    jacobian = torch.stack([fx / mz, zero, -fx * xt / mz**2, zero, fy / mz, -fy * yt / mz**2], 1).view(-1, 2, 3)
    spread = jacobian @ turned @ jacobian.mT + 0.3 * torch.eye(2, dtype=torch.float64)
    inverse = torch.linalg.inv(spread)
    conic = torch.stack([inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]], dim=1)
    pixel = torch.stack([fx * mx / mz + cx, fy * my / mz + cy], dim=1)
    radii = (3.33 * spread.diagonal(dim1=1, dim2=2).sqrt()).ceil()
    low, high = pixel + radii > 0, pixel - radii < torch.tensor(size)
    visible = (mz > 0.01) & (mz < 1e10) & low.all(1) & high.all(1)
    return visible, radii.int(), pixel, mz, conic


@pytest.mark.parametrize("world", [1, 3])
def test_gaussians_reach_owners_of_cameras_that_see_them(gathered, world):
    ranks = gathered("gsplat_3d_gaussian_splatting", world)
    counts = [len(rank.tensors["means"]) for rank in ranks]
    for owner in ranks:
        records = []
        for source in ranks:
            for camera, (view, k) in enumerate(zip(owner.tensors["viewmats"], owner.tensors["Ks"], strict=True)):
                size = (owner.sizes.width, owner.sizes.height)
                visible, *seen = seen_by(view, k, source.tensors, size)
                ids = visible.nonzero().squeeze(1)
                offset = sum(counts[: owner.rank])
                copies = [source.tensors["opacities"][ids], source.tensors["colors"][ids]]
                records.append([torch.full_like(ids, camera), ids + offset, *(part[ids] for part in seen), *copies])
        expected = [torch.cat(field) for field in zip(*records, strict=True)]
        for got, oracle, field in zip(owner.result, owner.oracle, expected, strict=True):
            torch.testing.assert_close(got, field.to(got.dtype), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(oracle, field.to(oracle.dtype), rtol=1e-8, atol=1e-8)
        assert 0 < len(expected[0]) < owner.sizes.cameras * sum(counts)


@pytest.mark.parametrize(("world", "seed"), [(3, 1), (4, 1), (4, 4)])
def test_spherical_convolution_turns_dense_filters(gathered, world, seed):
    """Seed 4 gives every rank its own weight."""
    ranks = gathered("torchharmonics_spherical_convolution", world, seed=seed)
    s = ranks[0].sizes
    own_weight = not torch.equal(ranks[0].tensors["weight"], ranks[-1].tensors["weight"])
    assert own_weight == (seed == 4)
    rows = [torch.cat([ranks[p * s.az + a].tensors["x"] for a in range(s.az)], dim=3).double() for p in range(s.polar)]
    channels = s.C // s.az
    mixed = []
    for a in range(s.az):
        total = torch.zeros(s.B, channels, s.K, s.T, s.nlon_out, dtype=torch.float64)
        for p in range(s.polar):
            tensors = ranks[p * s.az + a].tensors
            dense = torch.zeros(s.K, s.T, s.hl * s.nlon_in, dtype=torch.float64)
            dense[tuple(tensors["index"])] = tensors["value"].double()
            dense = dense.view(s.K, s.T, s.hl, s.nlon_in)
            part = rows[p][:, a * channels : (a + 1) * channels]
            for j in range(s.nlon_out):
                turned = part.roll(-j * s.rotation, dims=3)
                total[..., j] += torch.einsum("kthw,bchw->bckt", dense, turned)
        mixed.append(total)
    y = torch.cat(mixed, dim=1)
    for rank in ranks:
        p, a = divmod(rank.rank, s.az)
        width = s.nlon_out // s.az
        tile = y[:, :, :, p * s.hl : (p + 1) * s.hl, a * width : (a + 1) * width]
        weight, bias = rank.tensors["weight"].double(), rank.tensors["bias"].double()
        parts = [
            torch.einsum("bcktj,ock->botj", group, w)
            for group, w in zip(tile.chunk(s.groups, dim=1), weight.chunk(s.groups), strict=True)
        ]
        expected = torch.cat(parts, dim=1) + bias.view(-1, 1, 1)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, expected)


def blend_rows(before, tile, dim, extent):
    """Blends the end of `before` into the start of `tile`, row by row, with roundings in the published order."""
    extent = min(before.shape[dim], tile.shape[dim], extent)
    for a in range(extent):
        old = before.select(dim, before.shape[dim] - extent + a)
        new = tile.select(dim, a)
        new.copy_(old * (1 - a / extent) + new * (a / extent))


def stitched(latents, s, world, temporal, spatial=0.25, sr=1, first=False):
    """The whole video, blended on one process. latents: by rank; the card's owner rule assigns tiles to ranks."""
    tile, up = (s.lt + first, s.lh, s.lw), (s.ut, s.us * sr, s.us * sr)
    overlap = (temporal, spatial, spatial)
    stride = [int(size * (1 - part)) for size, part in zip(tile, overlap, strict=True)]
    extent = [int(size * u * part) for size, u, part in zip(tile, up, overlap, strict=True)]
    shape = latents[0].shape[2:]
    grid = [math.ceil(size / step) for size, step in zip(shape, stride, strict=True)]
    places = [(i, j, k) for i in range(grid[0]) for j in range(grid[1]) for k in range(grid[2])]
    cut = {
        place: tuple(slice(n * st, n * st + size) for n, st, size in zip(place, stride, tile, strict=True))
        for place in places
    }
    order = sorted(places, key=lambda place: -latents[0][(..., *cut[place])].numel())
    plain = {}
    for number, place in enumerate(order):
        z = latents[number % world][(..., *cut[place])].float()
        z = torch.cat([z, z, z], dim=1)[:, :3] if z.shape[1] < 3 else z
        plain[place] = F.interpolate(z, scale_factor=up, mode="trilinear")[:, :3].bfloat16()
    rows: dict = {}
    for place in places:
        x = plain[place].clone()
        for axis in range(3):
            if place[axis]:
                before = tuple(n - (axis == d) for d, n in enumerate(place))
                blend_rows(plain[before], x, axis + 2, extent[axis])
        t, h, w = (size * u - e for size, u, e in zip(tile, up, extent, strict=True))
        rows[place] = x[:, :, :t, :h, :w]
    return torch.cat(
        [
            torch.cat([torch.cat([rows[i, j, k] for k in range(grid[2])], 4) for j in range(grid[1])], 3)
            for i in range(grid[0])
        ],
        2,
    )


@pytest.mark.parametrize("world", [1, 3])
def test_tiles_blend_as_row_by_row(gathered, world):
    ranks = gathered("magi1_tile_parallel_vae_decode", world, dtype="bfloat16")
    expected = stitched([rank.tensors["z"] for rank in ranks], ranks[0].sizes, world, temporal=0.25)
    for rank in ranks:
        assert torch.equal(rank.result, expected)
        torch.testing.assert_close(rank.oracle, expected.double(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("world", "seed"), [(2, 1), (3, 4)])
def test_strips_together_are_the_convolution_of_the_image(gathered, world, seed):
    """Seed 4 has no bias."""
    ranks = gathered("conv2d_boundary_exchange", world, seed=seed)
    s = ranks[0].sizes
    image = torch.cat([rank.tensors["x"] for rank in ranks], dim=2).double()
    bias = ranks[0].tensors["bias"].double() if seed != 4 else None
    whole = F.conv2d(image, ranks[0].tensors["weight"].double(), bias, padding=s.padding)
    for rank, expected in zip(ranks, whole.chunk(world, dim=2), strict=True):
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, expected)


@pytest.mark.parametrize(("world", "seed"), [(3, 1), (2, 4)])
def test_conv3d_is_the_convolution_over_all_channels(gathered, world, seed):
    """Seed 4 has no bias."""
    ranks = gathered("opensora_conv3d_allreduce", world, seed=seed)
    video = torch.cat([rank.tensors["input"] for rank in ranks], dim=1).double()
    weight = torch.cat([rank.tensors["weight"] for rank in ranks], dim=1).double()
    expected = F.conv3d(video, weight, ranks[0].tensors["bias"].double() if seed != 4 else None)
    for rank in ranks:
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, expected)
