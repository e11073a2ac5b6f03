"""Front end of distributed Gaussian splatting: project own Gaussians into all cameras, send records to camera
owners.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

SIGMAS = 3.33


@torch.no_grad()
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
    """means [n, 3], quats [n, 4] (w, x, y, z), scales [n, 3], opacities [n], colors [n, D], viewmats [C, 4,
    4], Ks [C, 3, 3].

    Returns camera_ids [R], gaussian_ids [R], radii [R, 2] int32, means2d [R, 2], depths [R], conics [R, 3],
    opacities [R] and colors [R, D] of all Gaussians, of any rank, that are visible in this rank's cameras: by
    source rank, camera, Gaussian. Every rank owns C cameras; n may differ.

    Raises:
        ValueError: a camera model other than "pinhole".
    """
    if camera_model != "pinhole":
        raise ValueError(f"camera model {camera_model!r}: only pinhole cameras are projected here")
    world, rank, cameras = dist.get_world_size(), dist.get_rank(), viewmats.shape[0]
    counts = torch.empty(world, dtype=torch.int64, device=means.device)
    dist.all_gather_into_tensor(counts, torch.tensor([len(means)], dtype=torch.int64, device=means.device))
    lenses = torch.cat([viewmats.reshape(cameras, 16), Ks.reshape(cameras, 9)], dim=1)
    everyone = lenses.new_empty(world * cameras, 25)
    dist.all_gather_into_tensor(everyone, lenses)
    seen = _project(
        _covariances(quats, scales),
        means,
        everyone[:, :16].view(-1, 4, 4),
        everyone[:, 16:].view(-1, 3, 3),
        (image_width, image_height),
        eps2d,
        (near_plane, far_plane),
    )

    visible = (seen.radii > 0).all(dim=2)
    camera, gaussian = visible.nonzero(as_tuple=True)
    sent = visible.view(world, -1).sum(dim=1)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    to_peers, from_peers = torch.stack([sent, received]).tolist()
    numbers = torch.cat([torch.stack([camera % cameras, gaussian], dim=1).int(), seen.radii[visible]], dim=1)
    values = torch.cat(
        [
            seen.means2d[visible],
            seen.depths[visible][:, None],
            seen.conics[visible],
            opacities[gaussian][:, None],
            colors[gaussian],
        ],
        dim=1,
    )
    numbers = _exchanged(numbers, to_peers, from_peers)
    values = _exchanged(values, to_peers, from_peers)
    # The offset belongs to the receiving rank, so ids of different sources coincide: inherited, and part of the contract.
    offset = counts[:rank].sum()
    return (
        numbers[:, 0].long(),
        numbers[:, 1].long() + offset,
        numbers[:, 2:].contiguous(),
        values[:, :2].contiguous(),
        values[:, 2].contiguous(),
        values[:, 3:6].contiguous(),
        values[:, 6].contiguous(),
        values[:, 7:].contiguous(),
    )


class Projection(NamedTuple):
    """Gaussians as the cameras see them, [cameras, n, ..]."""

    radii: torch.Tensor
    means2d: torch.Tensor
    depths: torch.Tensor
    conics: torch.Tensor


def _covariances(quats: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[n, 3, 3] in the world's frame."""
    w, x, y, z = F.normalize(quats, dim=1, eps=1e-12).unbind(dim=1)
    rotation = torch.stack(
        [
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=1),
            torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=1),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=1),
        ],
        dim=1,
    )
    axes = rotation * scales[:, None, :]
    return axes @ axes.mT


def _project(
    covariances: torch.Tensor,
    means: torch.Tensor,
    viewmats: torch.Tensor,
    Ks: torch.Tensor,
    size: tuple[int, int],
    eps2d: float,
    planes: tuple[float, float],
) -> Projection:
    """All n Gaussians in all cameras, in the dtype of the inputs. Radii are zero where a Gaussian is not
    visible.
    """
    rotation, shift = viewmats[:, :3, :3], viewmats[:, :3, 3]
    centres = means @ rotation.mT + shift[:, None]
    turned = rotation[:, None] @ covariances @ rotation[:, None].mT
    x, y, z = centres.unbind(dim=2)
    fx, fy = Ks[:, 0, 0, None], Ks[:, 1, 1, None]
    xt = _within_view(x, z, fx, Ks[:, 0, 2, None], size[0])
    yt = _within_view(y, z, fy, Ks[:, 1, 2, None], size[1])
    zero, z2 = torch.zeros_like(z), z * z
    jacobian = torch.stack([fx / z, zero, -fx * xt / z2, zero, fy / z, -fy * yt / z2], dim=2).unflatten(2, (2, 3))
    spread = jacobian @ turned @ jacobian.mT
    spread = spread + eps2d * torch.eye(2, dtype=spread.dtype, device=spread.device)
    means2d = centres @ Ks[:, :2].mT / z[..., None]

    a, b, c, d = spread.flatten(2).unbind(dim=2)
    determinant = (a * d - b * c).clamp(min=1e-10)
    conics = torch.stack([d / determinant, -(b + c) / 2 / determinant, a / determinant], dim=2)
    radii = (SIGMAS * torch.stack([a, d], dim=2).sqrt()).ceil()
    between = (z > planes[0]) & (z < planes[1])
    limits = torch.tensor(size, dtype=means2d.dtype, device=means2d.device)
    inside = ((means2d + radii > 0) & (means2d - radii < limits)).all(dim=2)
    radii = torch.where((between & inside)[..., None], radii, 0).to(torch.int32)
    return Projection(radii, means2d, z, conics)


def _within_view(
    x: torch.Tensor, z: torch.Tensor, focal: torch.Tensor, centre: torch.Tensor, size: int
) -> torch.Tensor:
    """x moved so that x / z is at most 30 % of half the view beyond the image, where the Jacobian still means
    something.
    """
    slack = 0.3 * (0.5 * size / focal)
    return z * torch.minimum((x / z).maximum(-(centre / focal + slack)), (size - centre) / focal + slack)


def _exchanged(rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows, received, sent)
    return arrived
