"""Networks of PyTorch that no library has: keyword spotting, anomaly detection, U-Nets."""

import torch
from torch import Tensor, nn

__all__ = ["Autoencoder", "KeywordTransformer", "Recurrent", "TemporalConvolutions", "UNet"]


class Autoencoder(nn.Sequential):
    """MLPerf Tiny's detector of anomalies: (N, 640) -> (N, 640)."""

    def __init__(self) -> None:
        sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
        layers: list[nn.Module] = []
        for before, after in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], sizes[0]))


class KeywordTransformer(nn.Module):
    """KWT-1: a token for each of 98 frames of 40 features, and one of the class; (N, 98, 40) -> (N, 12)."""

    def __init__(self, *, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(40, width)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 99, width) * 0.02)
        self.blocks = nn.Sequential(*(_Block(width, 4 * width) for _ in range(layers)))
        self.head = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.blocks(x)[:, 0])


class _Block(nn.Module):
    """Attention with one head and a perceptron, each normalised after its sum."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.parts = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, dim=-1)
        attention = (query @ key.transpose(1, 2) * self.scale).softmax(-1)
        x = self.first(x + self.mix(attention @ value))
        return self.second(x + self.perceptron(x))


class Recurrent(nn.Module):
    """Two layers of LSTM or GRU with 64 units, and scores of what the last of 49 frames gives: (N, 49, 40) -> (N, 12).
    """

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layers = kind(40, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0][:, -1])


class TemporalConvolutions(nn.Module):
    """Four one-dimensional convolutions, each with twice the dilation: (N, 40, 98) -> (N, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(
            part for number in range(4) for part in (
                nn.Conv1d(64 if number else 40, 64, 3, padding=1 << number, dilation=1 << number), nn.ReLU())))
        self.head = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(-1))


class UNet(nn.Module):
    """Classes of pixels: (N, 3, H, W) -> (N, 2, H, W), H and W multiples of 8. ``bilinear``: images are enlarged by
    interpolation and a pointwise layer, in place of transposed convolutions.
    """

    def __init__(self, *, bilinear: bool) -> None:
        super().__init__()
        widths = [16, 32, 64, 128]
        self.down = nn.ModuleList(_convolutions(before, after)
                                  for before, after in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths, widths[1:], strict=False))[::-1]
        self.up = nn.ModuleList(_enlarged(wide, narrow, bilinear) for narrow, wide in pairs)
        self.join = nn.ModuleList(_convolutions(2 * narrow, narrow) for narrow, _ in pairs)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, layer in enumerate(self.down):
            x = layer(nn.functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for enlarge, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([other, enlarge(x)], 1))
        return self.head(x)


def _convolutions(before: int, after: int) -> nn.Module:
    return nn.Sequential(*(part for channels in (before, after) for part in (
        nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())))


def _enlarged(before: int, after: int, bilinear: bool) -> nn.Module:
    if not bilinear:
        return nn.ConvTranspose2d(before, after, 2, 2)
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
                         nn.Conv2d(before, after, 1))
