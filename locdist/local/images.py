"""Images as rows: the surroundings of pixels, and averages over pixels whose surroundings look alike.

An image is [h, w, c]. A shift compares all pixels at once with those that lie one way off, which is a tile of
pairs; averages over a window add up shifts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.local.neighborhood import Neighborhood
from locdist.local.shrinkage import shrunk

GROUPS = 2048  # of patches, that are shrunk at once
_FLOOR = 2.0  # variances of the noise, up to which a variance of so few patches may well be noise alone


def padded(image: Tensor, margin: int, mode: str = "reflect") -> Tensor:
    """An image [h, w, c] with a margin on each side."""
    return torch.nn.functional.pad(image.movedim(2, 0)[None], (margin,) * 4, mode)[0].movedim(0, 2)


def patches(image: Tensor, size: int) -> Tensor:
    """The surroundings of each pixel [h, w, c, size, size], the image reflected at its edges."""
    wide = padded(image, size // 2) if size > 1 else image
    return wide.unfold(0, size, 1).unfold(1, size, 1)


def half_window(distance: int) -> Iterator[tuple[int, int]]:
    """Shifts of a square window, one of each pair of opposite ones."""
    for down in range(distance + 1):
        for right in range(-distance if down else 1, distance + 1):
            yield down, right


@dataclass(frozen=True)
class Overlap:
    """What a shift lays on what: pixels `here` of an image, and those `there` that lie so far off."""

    here: tuple[slice, slice]
    there: tuple[slice, slice]

    @staticmethod
    def of(shape: tuple[int, int], down: int, right: int, margin: int = 0) -> "Overlap":
        """In an image of height and width, with a margin on each side."""
        high, wide = shape[0] + 2 * margin, shape[1] + 2 * margin
        rows, columns = (
            (slice(max(0, -step), size - max(0, step)), slice(max(0, step), size - max(0, -step)))
            for step, size in ((down, high), (right, wide))
        )
        return Overlap((rows[0], columns[0]), (rows[1], columns[1]))


def filtered(values: Tensor, taps: Tensor) -> Tensor:
    """Sums over squares of pixels [h, w], weighted by taps [s] in both directions; inside alone."""
    for axis in (0, 1):
        size = values.shape[axis] - len(taps) + 1
        values = sum(tap * values.narrow(axis, at, size) for at, tap in enumerate(taps.tolist()))
    return values


def taps(size: int) -> Tensor:
    """A Gaussian over a patch, of a standard deviation of a quarter of its size, summing to one."""
    places = torch.arange(size, dtype=torch.float64) - size // 2
    values = torch.exp(-places.square() / (2 * ((size - 1) / 4) ** 2)) if size > 1 else torch.ones(1)
    return values / values.sum()


def alike(image: Tensor, size: int, distance: int, noise: float, h: float) -> Tensor:
    """Non-local means of an image [h, w, c]; see `methods.images.nonlocal_means`."""
    shape, weight = (image.shape[0], image.shape[1]), taps(size)
    wide, margin = (padded(image, size // 2) if size > 1 else image), size // 2
    total, mass = image.clone(), torch.ones_like(image[:, :, :1])
    for down, right in half_window(distance):
        if down >= shape[0] or abs(right) >= shape[1]:
            continue
        large, small = Overlap.of(shape, down, right, margin), Overlap.of(shape, down, right)
        apart = filtered((wide[large.here] - wide[large.there]).square().mean(2), weight)
        share = torch.exp(-(apart - 2 * noise * noise).clamp(min=0) / (h * h))[:, :, None]
        for one, other in ((small.here, small.there), (small.there, small.here)):
            total[one] += share * image[other]
            mass[one] += share
    return total / mass


def of_one_color(image: Tensor, radius: int, spread: float, color: float) -> Tensor:
    """The bilateral filter of an image [h, w, c]; see `methods.images.bilateral`."""
    wide = padded(image, radius, "replicate")
    total, mass = torch.zeros_like(image), torch.zeros_like(image[:, :, :1])
    for down in range(-radius, radius + 1):
        for right in range(-radius, radius + 1):
            square = down * down + right * right
            if square > radius * radius:
                continue
            other = wide[radius + down :, radius + right :][: image.shape[0], : image.shape[1]]
            near = (other - image).square().sum(2, keepdim=True) / (2 * color * color)
            share = torch.exp(-near - square / (2 * spread * spread))
            total += share * other
            mass += share
    return total / mass


@dataclass(frozen=True)
class Pooled:
    """For each pixel those whose surroundings look alike, and what lies around all of them.

    Parameters
    ----------
    image : Tensor [h, w, c]
    places : Tensor [h w, s] int64
        Pixels with the most similar surroundings.
    shares : Tensor [h w, s]
        How alike they are.
    reach : int
        Pixels around each of them that count.
    """

    image: Tensor
    places: Tensor
    shares: Tensor
    reach: int

    @staticmethod
    def of(image: Tensor, size: int, distance: int, count: int, reach: int, h: float) -> "Pooled":
        """The most alike in a window."""
        shape, margin, weight = (image.shape[0], image.shape[1]), size // 2, taps(size)
        wide = padded(image, margin) if size > 1 else image
        shifts = [(0, 0), *half_window(distance)]
        shifts += [(-down, -right) for down, right in half_window(distance)]
        apart = image.new_full((*shape, len(shifts)), float("inf"))
        for number, (down, right) in enumerate(shifts):
            if abs(down) < shape[0] and abs(right) < shape[1]:
                large, small = Overlap.of(shape, down, right, margin), Overlap.of(shape, down, right)
                squares = (wide[large.here] - wide[large.there]).square().mean(2)
                apart[(*small.here, number)] = filtered(squares, weight)
        near, which = apart.flatten(0, 1).topk(min(count, len(shifts)), largest=False)
        steps = torch.tensor([down * shape[1] + right for down, right in shifts])
        places = torch.arange(shape[0] * shape[1])[:, None] + steps[which]
        return Pooled(image, places, torch.exp(-near / (h * h)), reach)

    @property
    def pixels(self) -> int:
        """Of the image."""
        return len(self.places)

    def around(self, pixels: Tensor) -> tuple[Neighborhood, Tensor]:
        """What lies around all that look like some pixels [q], as neighbors of a place 0, and how alike these
        are [q, k].
        """
        high, wide, colors = self.image.shape
        side = torch.arange(-self.reach, self.reach + 1)
        steps = torch.cartesian_prod(side, side)
        at, shares = self.places[pixels], self.shares[pixels]
        known = shares > 0
        at = at.where(known, pixels[:, None])
        rows, columns = (
            part[:, :, None] + step for part, step in zip((at // wide, at % wide), steps.T, strict=True)
        )
        inside = (rows >= 0) & (rows < high) & (columns >= 0) & (columns < wide) & known[:, :, None]
        ids = torch.where(inside, rows * wide + columns, -1).flatten(1)
        k = ids.shape[1]
        away = steps.double().repeat(at.shape[1], 1).expand(len(at), k, 2)
        hood = Neighborhood(
            away.square().sum(2).masked_fill(ids < 0, float("inf")),
            ids,
            queries=away.new_zeros(len(at), 2),
            targets=self.image.reshape(-1, colors)[ids.clamp(min=0)],
            features=away,
            query_features=away.new_zeros(len(at), 2),
        )
        return hood, shares.repeat_interleave(len(steps), 1)


@dataclass(frozen=True)
class Groups:
    """How patches that look alike are found: their size, every so many-th pixel that is asked, how far to
    look, and how many to take.
    """

    size: int
    stride: int
    distance: int
    count: int

    def places(self, guide: Tensor) -> tuple[Tensor, Tensor]:
        """For asked patches of an image [h, w] the corners [g, count] of those most like them, as positions
        in the image, and which of them there are: near an edge there may be fewer.
        """
        high, wide = (size - self.size + 1 for size in guide.shape)
        rows, columns = self._asked(high), self._asked(wide)
        side = range(-self.distance, self.distance + 1)
        shifts = [(down, right) for down in side for right in side]
        apart = torch.stack([self._apart(guide, rows, columns, *shift) for shift in shifts], 2)
        apart[:, :, len(shifts) // 2] = -1.0  # itself, also among many that are equal
        near, which = apart.flatten(0, 1).topk(min(self.count, len(shifts)), largest=False)
        step = torch.tensor([down * guide.shape[1] + right for down, right in shifts])
        corner = (rows[:, None] * guide.shape[1] + columns).flatten()[:, None]
        there = near.isfinite()
        return torch.where(there, corner + step[which], corner), there

    def _asked(self, size: int) -> Tensor:
        last = torch.tensor([size - 1])
        return torch.cat([torch.arange(0, size - 1, self.stride), last])

    def _apart(self, guide: Tensor, rows: Tensor, columns: Tensor, down: int, right: int) -> Tensor:
        """Squared distances of asked patches to those a shift away; inf where these leave the image."""
        shape = (guide.shape[0], guide.shape[1])
        found = guide.new_full((shape[0] - self.size + 1, shape[1] - self.size + 1), float("inf"))
        if abs(down) < found.shape[0] and abs(right) < found.shape[1]:
            lap = Overlap.of(shape, down, right)
            squares = (guide[lap.here] - guide[lap.there]).square()
            sums = filtered(squares, guide.new_ones(self.size))
            top, left = lap.here[0].start, lap.here[1].start
            found[top : top + sums.shape[0], left : left + sums.shape[1]] = sums
        return found[rows][:, columns]


def regrouped(image: Tensor, guide: Tensor, groups: Groups, noise: float, clean: bool) -> Tensor:
    """An image [h, w, c] whose patches are shrunk, each group of alike ones by their own Gaussian.

    Parameters
    ----------
    image : Tensor [h, w, c]
    guide : Tensor [h, w, c]
        The image itself, or an estimate of it without noise: where alike patches and Gaussians are found. Its
        first channel tells what is alike.
    groups : Groups
    noise : float
    clean : bool
        Whether the guide is without noise.
    """
    corners, there = groups.places(guide[:, :, 0])
    flat = image.new_zeros(image.shape[2], image.shape[0] * image.shape[1])
    mass = torch.zeros_like(flat[:1])
    inside = torch.arange(groups.size)
    inside = (inside[:, None] * image.shape[1] + inside).flatten()
    for start in range(0, len(corners), GROUPS):
        at = corners[start : start + GROUPS, :, None] + inside
        some = there[start : start + GROUPS].to(image.dtype)
        shares, counted = some / some.sum(1, keepdim=True), some[:, :, None].expand(at.shape)
        for channel in range(image.shape[2]):
            rows, known = (part[:, :, channel].flatten()[at] for part in (image, guide))
            estimates = counted * shrunk(known, shares, rows, noise, clean, _FLOOR)
            flat[channel].index_add_(0, at.flatten(), estimates.flatten())
        mass[0].index_add_(0, at.flatten(), counted.flatten())
    return (flat / mass).T.reshape(image.shape)
