"""Inputs of problem 58: image and text embeddings of this rank's share of the batch."""

import math

import torch
from torch.nn import functional

from problems.setting import RankSetting

HARD = 6
"""Texts of the global batch that are near all images, and images of a rank that are near all texts."""


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """image_features and text_features [rows, D], own, of unit length; logit_scale and logit_bias, 0-dim float64.

    Upstream: independent features, scale 10, bias -10. Meaningful: the scale is 15 to 25 by trial, less for D below 256, and the
    bias is -ln of the global batch. Every rank's texts lie at a cosine of its own to their images, so that a pair's logit is
    near zero. All images have a common part. A few texts of all ranks, at random places, lie along it, each with a strength of
    its own. The same holds for the texts and a few images of each rank. These few carry a large part of the loss, and each
    rank's other texts have a small part of their own along it, so no part of the texts, images or ranks gives the sum over all.
    Beside upstream's iterations scale and bias are upstream's, and these cosines are larger.
    """
    s = setting.sizes
    image = functional.normalize(setting.randn(s.rows, s.D), dim=-1)
    text = functional.normalize(setting.randn(s.rows, s.D), dim=-1)
    scale, bias = 10.0, -10.0
    if setting.distribution != "upstream":
        image, text = image.to(torch.float32), text.to(torch.float32)
        chance = float(setting.rand(1, shared=True, dtype=torch.float32))
        scale = min(15 + 10 * chance, (1 + 0.6 * chance) * math.sqrt(s.D))
        bias, most = -math.log(s.rows * setting.world), 0.7
        if setting.beside_upstream:
            scale, bias, most = 10.0, -10.0, 0.8
        cosine = (3 * setting.rand(1, dtype=torch.float32) - 2 - bias).div(scale).clamp(0, 0.9)
        text = cosine * image + (1 - cosine.square()).sqrt() * text
        common = torch.linalg.qr(setting.randn(s.D, 2, shared=True, dtype=torch.float32)).Q.T
        # A hard text is summed over the images of a rank, a hard image over the texts of all ranks.
        near_texts = (2.5 * float(setting.rand(1, shared=True, dtype=torch.float32)) - bias) / scale
        near_images = 0.7 if setting.beside_upstream else (-1.0 - bias - math.log(setting.world)) / scale
        image = _with_part(image, common[0], min(near_texts, most))
        text = _with_part(text, common[1], min(near_images, most))
        text = _with_part(text, common[0], 0.3 * float(setting.rand(1, dtype=torch.float32)))
        image = _hard(image, common[1], setting.randint(0, s.rows, (HARD,)), setting).to(setting.dtype)
        places = setting.randint(0, s.rows * setting.world, (HARD,), shared=True) - s.rows * setting.rank
        text = _hard(text, common[0], places, setting).to(setting.dtype)
    wide = {"dtype": torch.float64, "device": setting.device}
    return {
        "image_features": image,
        "text_features": text,
        "logit_scale": torch.tensor(scale, **wide),
        "logit_bias": torch.tensor(bias, **wide),
    }


def _with_part(features: torch.Tensor, direction: torch.Tensor, cosine: float) -> torch.Tensor:
    """Unit features [rows, D] turned so that all have this cosine, 0 if it is negative, with a unit direction [D]."""
    cosine = max(cosine, 0.0)
    across = functional.normalize(features - (features @ direction)[:, None] * direction, dim=-1)
    return cosine * direction + math.sqrt(1 - cosine**2) * across


def _hard(features: torch.Tensor, direction: torch.Tensor, places: torch.Tensor, setting: RankSetting) -> torch.Tensor:
    """Unit features with those at own places turned to a direction, by a cosine from 0.8 to 1. Other places are skipped."""
    cosine = 0.8 + 0.2 * setting.rand(len(places), dtype=torch.float32)
    for place, along in zip(places.tolist(), cosine.tolist(), strict=True):
        if 0 <= place < features.shape[0]:
            across = functional.normalize(features[place] - (features[place] @ direction) * direction, dim=0)
            features[place] = along * direction + math.sqrt(1 - along**2) * across
    return features
