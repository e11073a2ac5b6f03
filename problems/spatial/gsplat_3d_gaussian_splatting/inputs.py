"""Inputs of problem 61: one rank's Gaussians and cameras."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from problems.setting import RankSetting

EPS2D = 0.3
SIGMAS = 3.33
SPARE = 2
"""Candidates drawn per Gaussian: those whose fate depends on rounding are left out."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """means [n_r, 3], quats [n_r, 4], scales [n_r, 3], opacities [n_r], colors [n_r, 3], viewmats [C, 4, 4],
    Ks [C, 3, 3].

    Upstream: bfloat16, Gaussians that all lie well inside the view, one and the same camera everywhere.
    Otherwise float32, cameras on a circle inside a cube of Gaussians, of which about half are visible from
    each, n_r from n to n + n/32 + 37 by rank and iteration, scales log-uniform. Gaussians that rounding could
    push over a border or to another radius are not used.
    """
    if setting.distribution == "upstream":
        return _upstream(setting)
    s = setting.sizes
    count = s.n + int(setting.randint(0, _most_extra(s.n) + 1, (1,)))
    single = setting.replace(dtype=torch.float32)
    viewmats, intrinsics = _cameras(single)
    candidates = SPARE * count
    means = 6 * single.rand(candidates, 3) - 3
    quats = single.randn(candidates, 4)
    scales = torch.exp(math.log(0.01) + math.log(15.0) * single.rand(candidates, 3))
    doubtful = torch.zeros(candidates, dtype=torch.bool, device=setting.device)
    for viewmat, k in zip(viewmats.double(), intrinsics.double(), strict=True):
        doubtful |= _doubtful(means.double(), quats.double(), scales.double(), viewmat, k, s.width, s.height)
    chosen = doubtful.to(torch.uint8).argsort(stable=True)[:count]
    own = slice(setting.rank * s.cameras, (setting.rank + 1) * s.cameras)
    return {
        "means": means[chosen],
        "quats": quats[chosen],
        "scales": scales[chosen],
        "opacities": single.rand(count),
        "colors": single.rand(count, 3),
        "viewmats": viewmats[own],
        "Ks": intrinsics[own],
    }


def _most_extra(n: int) -> int:
    """The most Gaussians that a rank has beyond n."""
    return n // 32 + 37


def _upstream(setting: RankSetting) -> dict[str, torch.Tensor]:
    s, half = setting.sizes, setting.replace(dtype=torch.bfloat16)
    x, y = ((half.rand(s.n) - 0.5) * 1.5 for _ in range(2))
    z = 2 + 2 * half.rand(s.n)
    view = torch.eye(4, dtype=torch.bfloat16, device=setting.device)
    focal = 0.8 * min(s.width, s.height)
    k = [[focal, 0.0, s.width / 2], [0.0, focal, s.height / 2], [0.0, 0.0, 1.0]]
    return {
        "means": torch.stack([x, y, z], dim=1),
        "quats": half.randn(s.n, 4),
        "scales": 0.02 * half.rand(s.n, 3),
        "opacities": 0.1 + 0.8 * half.rand(s.n),
        "colors": half.rand(s.n, 3),
        "viewmats": view.repeat(s.cameras, 1, 1),
        "Ks": torch.tensor(k, dtype=torch.bfloat16, device=setting.device).repeat(s.cameras, 1, 1),
    }


def _cameras(setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor]:
    """All ranks' cameras, the same on every rank: world-to-camera [W*C, 4, 4] and intrinsics [W*C, 3, 3]."""
    s, device = setting.sizes, setting.device
    count = setting.world * s.cameras
    chance = setting.rand(count, 4, shared=True).double()
    angle = 2 * math.pi * (torch.arange(count, device=device) + chance[:, 0]) / count
    radius = 2 + chance[:, 1]
    position = torch.stack([radius * angle.cos(), chance[:, 2] - 0.5, radius * angle.sin()], dim=1)
    forward = F.normalize(-position, dim=1)
    up = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64, device=device).expand_as(forward)
    right = F.normalize(torch.linalg.cross(forward, up), dim=1)
    rotation = torch.stack([right, torch.linalg.cross(forward, right), forward], dim=1)
    viewmats = torch.eye(4, dtype=torch.float64, device=device).repeat(count, 1, 1)
    viewmats[:, :3, :3] = rotation
    viewmats[:, :3, 3] = -(rotation @ position[:, :, None]).squeeze(2)
    focal = (0.7 + 0.2 * chance[:, 3]) * min(s.width, s.height)
    intrinsics = torch.zeros(count, 3, 3, dtype=torch.float64, device=device)
    intrinsics[:, 0, 0], intrinsics[:, 1, 1], intrinsics[:, 2, 2] = focal, 1.05 * focal, 1.0
    intrinsics[:, 0, 2], intrinsics[:, 1, 2] = s.width / 2 + 1.5, s.height / 2 - 2
    return viewmats.float(), intrinsics.float()


def _doubtful(
    means: torch.Tensor,
    quats: torch.Tensor,
    scales: torch.Tensor,
    viewmat: torch.Tensor,
    k: torch.Tensor,
    width: int,
    height: int,
) -> torch.Tensor:
    """Whether a Gaussian is so close to a decision of this camera that float32 could take it either way: [n]
    bool.
    """
    rotation = viewmat[:3, :3]
    seen = means @ rotation.T + viewmat[:3, 3]
    depth = seen[:, 2]
    turned = rotation @ (_rotation(quats) * scales[:, None])
    close = depth.abs() < 0.05
    inside = torch.ones_like(close)
    border = torch.zeros_like(close)
    uneven = torch.zeros_like(close)
    for axis, size in ((0, width), (1, height)):
        focal, centre = k[axis, axis], k[axis, 2]
        slack = 0.3 * size / (2 * focal)
        at = depth * (seen[:, axis] / depth).clamp(-(centre / focal + slack), (size - centre) / focal + slack)
        spread = (focal / depth)[:, None] * turned[:, axis] - (focal * at / depth**2)[:, None] * turned[:, 2]
        extent = SIGMAS * (spread.square().sum(1) + EPS2D).sqrt()
        radius, pixel = extent.ceil(), focal * seen[:, axis] / depth + centre
        margin = 1e-3 + 1e-5 * pixel.abs()
        inside &= (pixel + radius > -2) & (pixel - radius < size + 2)
        border |= ((pixel + radius).abs() < margin) | ((pixel - radius - size).abs() < margin)
        uneven |= (extent - extent.round()).abs() < 1e-3 + 1e-4 * extent
    return close | ((depth > 0) & inside & (border | uneven))


def _rotation(quats: torch.Tensor) -> torch.Tensor:
    """Rotation matrices [n, 3, 3] of quaternions (w, v): (w² - |v|²) I + 2 v vᵀ + 2 w [v]×."""
    w, v = F.normalize(quats, dim=1).split([1, 3], dim=1)
    eye = torch.eye(3, dtype=v.dtype, device=v.device).expand(len(v), 3, 3)
    crossed = torch.linalg.cross(v[:, None].expand(len(v), 3, 3), eye).mT
    real = (w * w - (v * v).sum(1, keepdim=True))[:, :, None]
    return real * eye + 2 * v[:, :, None] * v[:, None] + 2 * w[:, :, None] * crossed


def canonical(outputs: Any, setting: RankSetting) -> Any:
    """bfloat16 noise decides about some radii of `paper`: there they count as numbers like the rest, not as
    integers.
    """
    if setting.distribution != "upstream" or len(outputs) != 8 or outputs[2].dtype != torch.int32:
        return outputs
    return (*outputs[:2], outputs[2].to(outputs[3].dtype), *outputs[3:])


def capacity(setting: RankSetting) -> int:
    """Every Gaussian of every rank in every own camera: 24 bytes of integers and 10 floats each."""
    s = setting.sizes
    extra = 0 if setting.distribution == "upstream" else setting.world * _most_extra(setting.sizes.n)
    return int(s.cameras * (setting.world * s.n + extra) * (24 + 40))
