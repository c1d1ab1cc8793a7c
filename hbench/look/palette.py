"""Defines the colours and marks of levels, from unrelated to the same fine class.

The colours come from cividis, which colour-blind people can distinguish. Their lightness increases
from level to level, so that a picture printed in grey still shows which mistake is worse. A mark of
filled circles shows the level without colour.

>>> color_of(0, 2), color_of(2, 2)
('#00224e', '#fee838')
>>> mark_of(1, 3)
'●○○'
"""

CIVIDIS = (
    (0, 34, 78),
    (53, 69, 108),
    (102, 105, 112),
    (148, 142, 119),
    (200, 184, 102),
    (254, 232, 56),
)


def color_of(level: int, depth: int) -> str:
    """Return the colour of a level 0 … depth, as #rrggbb."""
    return color_at(level / depth)


def color_at(share: float) -> str:
    """Return the colour at a share 0 (dark) … 1 (light) of the scale, as #rrggbb.

    >>> color_at(0.0), color_at(1.0)
    ('#00224e', '#fee838')
    """
    # interpolate between the two neighbouring colours; a share of 1 is the end of the last interval
    place = share * (len(CIVIDIS) - 1)
    low = min(int(place), len(CIVIDIS) - 2)
    fraction = place - low
    mixed = (
        round((1 - fraction) * a + fraction * b)
        for a, b in zip(CIVIDIS[low], CIVIDIS[low + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)


def lightness_of(color: str) -> float:
    """Compute the lightness of a colour in grey print, 0 … 255 (Rec. 709)."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def text_color_on(color: str) -> str:
    """Return black or white, whichever has more contrast with a colour. The contrast is at least
    4.5 : 1.

    >>> text_color_on("#7d7c74"), text_color_on("#666970")
    ('#000000', '#ffffff')
    """
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    # from sRGB values to linear light, 0 … 1
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    # contrast as defined by WCAG 2; at a luminance of .179 black and white both have 4.58 : 1
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance > 0.179 else "#ffffff"


def mark_of(level: int, depth: int) -> str:
    """Return one circle per level; those up to this level are filled."""
    return "●" * level + "○" * (depth - level)


SERIES = 0.72  # the share of the scale in use: lighter colours are hard to see on white
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SIZES = (
    1.27,
    1.0,
    2.0,
    1.0,
    2.0,
    1.8,
    1.6,
    3.56,
)  # sizes at which matplotlib's markers look equally large


def series_color(number: int, of: int) -> str:
    """Return the colour of one of several runs, lines or groups that are not levels. The first ones
    are dark; the colours also differ in grey."""
    place = SERIES * number / (of - 1) if of > 1 else 0.0
    return color_at(place)


def marker_of(number: int) -> str:
    """Return the shape of a marker. The first eight differ, then the shapes repeat."""
    return MARKERS[number % len(MARKERS)]


# The hues of Okabe and Ito, which colour-blind people can distinguish, with softer black and
# yellow; the most distinct ones come first.
GROUPS = ("#0072b2", "#c8bd3c", "#d55e00", "#1b2a49", "#cc79a7", "#009e73", "#56b4e9", "#e69f00")
OTHER = "#8a8a8a"


def group_color(number: int, of: int) -> str:
    """Return the colour of one of up to eight unordered groups; further groups are grey. The
    colours range from dark to light, so that they differ in grey print, too.

    >>> group_color(0, 2), group_color(1, 2), group_color(8, 9)
    ('#0072b2', '#c8bd3c', '#8a8a8a')
    """
    return sorted(GROUPS[:of], key=lightness_of)[number] if number < len(GROUPS) else OTHER


def mixed_with_white(color: str, white: float) -> str:
    """Mix a colour with white; `white` is the share of white, 0 … 1.

    >>> mixed_with_white("#4477aa", 0.5)
    '#a2bbd4'
    """
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)
