"""Inputs of problem 58: image and text embeddings of this rank's share of the batch."""

import math

import torch
from torch.nn import functional

from problems.setting import RankSetting

READ_BY_ARGUMENTS = ("logit_scale", "logit_bias")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """image_features and text_features [rows, D], own, of unit length; logit_scale and logit_bias, 0-dim float64.

    Upstream: independent features, scale 10, bias -10. Meaningful: every rank's texts lie at a cosine of its own between
    0.3 and 0.7 to their images, the scale is 15 to 25 by trial, and the bias is -ln of the global batch.
    """
    s = setting.sizes
    image = functional.normalize(setting.randn(s.rows, s.D), dim=-1)
    text = functional.normalize(setting.randn(s.rows, s.D), dim=-1)
    scale, bias = 10.0, -10.0
    if setting.distribution != "upstream":
        cosine = 0.3 + 0.4 * setting.rand(1, dtype=torch.float32)
        sine = (1 - cosine.square()).sqrt()
        text = functional.normalize(cosine * image.to(torch.float32) + sine * text.to(torch.float32), dim=-1)
        text = text.to(setting.dtype)
        scale = 15.0 + float(setting.rand(1, shared=True, dtype=torch.float32)) * 10
        bias = -math.log(s.rows * setting.world)
    wide = {"dtype": torch.float64, "device": setting.device}
    return {
        "image_features": image,
        "text_features": text,
        "logit_scale": torch.tensor(scale, **wide),
        "logit_bias": torch.tensor(bias, **wide),
    }


def arguments(
    tensors: dict[str, torch.Tensor], setting: RankSetting
) -> tuple[torch.Tensor, torch.Tensor, float, float, None]:
    """solution(image_features, text_features, logit_scale, logit_bias, group)"""
    features = tensors["image_features"], tensors["text_features"]
    return (*features, float(tensors["logit_scale"]), float(tensors["logit_bias"]), None)
