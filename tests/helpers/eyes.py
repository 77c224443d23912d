"""How colours look: contrast on paper, in grey, and to people who see fewer colours.

Written from the sources, without any code of the package: WCAG 2.1 for luminance and contrast, CIE
1976 for lightness and distance (D65), Machado, Oliveira and Fernandes (2009) for complete
protanopia, deuteranopia and tritanopia, on linear RGB.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb

VISIONS = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip


def linear(colour):
    """Return the light of #rrggbb, or of three numbers from 0 to 1."""
    if isinstance(colour, str):
        colour = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    value = np.asarray(colour[:3], dtype=float)
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one, other="#ffffff"):
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, vision="normal"):
    """Return L*, a*, b* as somebody with this vision sees the colour."""
    seen = np.clip(np.asarray(VISIONS[vision]) @ linear(colour), 0.0, 1.0)
    t = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def drawn_colours(panel):
    """Return what a reader must see in a panel: lines, edges of marks, filled bars."""
    found = []
    for line in panel.lines:
        if line.get_linestyle() != "None":
            found.append(line.get_color())
        if line.get_marker() not in ("None", None, ""):
            found.append(line.get_markeredgecolor())
    for container in panel.containers:
        found += [bar.get_facecolor() for bar in getattr(container, "patches", ())]
    return [to_rgb(colour) for colour in found]
