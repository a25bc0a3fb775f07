"""WAV recordings as log-mel pictures: frequency upwards, time to the right, loudness in decibels."""

from __future__ import annotations

import io
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Every recording is brought to this many values per second."""
BANDS = 64
HOP, WINDOW = 160, 400
"""Values between two frames (10 ms) and of one frame (25 ms)."""
QUIET = 1e-8
"""Power below which all is silence (-80 dB)."""


def is_wave(raw: bytes | Path | None) -> bool:
    """Whether a file is WAV audio: by its name, or by the mark in its bytes."""
    if isinstance(raw, Path):
        return raw.suffix.lower() == ".wav"
    return raw is not None and raw[:4] == b"RIFF" and raw[8:12] == b"WAVE"


def read_wave(raw: bytes | Path) -> NDArray[np.float32]:
    """The log-mel picture of a recording: (1, bands, frames), decibels from -80 upwards."""
    return log_mel(read_signal(raw))[None]


def read_signal(raw: bytes | Path) -> NDArray[np.float32]:
    """One channel from -1 to 1 at ``RATE``; a ``ValueError`` says what is wrong."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that only players read
        rate, values = wavfile.read(str(raw) if isinstance(raw, Path) else io.BytesIO(raw))
    if values.size == 0:
        raise ValueError("the recording is empty")
    signal = values.astype(np.float64)
    if values.dtype == np.uint8:
        signal = (signal - 128.0) / 128.0
    elif values.dtype.kind == "i":
        signal /= float(np.iinfo(values.dtype).max) + 1.0
    if signal.ndim == 2:
        signal = signal.mean(axis=1)
    if rate != RATE:
        divisor = int(np.gcd(rate, RATE))
        signal = resample_poly(signal, RATE // divisor, rate // divisor)
    return np.asarray(signal, dtype=np.float32)


def log_mel(signal: NDArray[np.float32]) -> NDArray[np.float32]:
    """(bands, frames), the highest band first."""
    padded = np.pad(signal, (0, max(0, WINDOW - signal.size)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), n=512, axis=1)) ** 2 / WINDOW
    mel = power @ mel_bands().T
    return np.ascontiguousarray((10.0 * np.log10(np.maximum(mel, QUIET))).T[::-1], dtype=np.float32)


@lru_cache(maxsize=1)
def mel_bands() -> NDArray[np.float64]:
    """Triangles that are evenly wide on the mel scale: (bands, 257)."""
    top = 2595.0 * np.log10(1.0 + RATE / 2 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, BANDS + 2) / 2595.0) - 1.0)
    bins = np.fft.rfftfreq(512, 1.0 / RATE)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))


def to_length(picture: NDArray[np.float32], frames: int) -> NDArray[np.float32]:
    """Cut at the end, or lengthened with silence, to this many frames."""
    picture = picture[:, :, :frames]
    return np.pad(picture, ((0, 0), (0, 0), (0, frames - picture.shape[2])), constant_values=10 * np.log10(QUIET))
