"""DICOM pictures, through the extra ``dicom`` (pydicom). Nothing but the values of the pixels is read out of a file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from chase.data.pictures import RAW, Header, PictureError, Values


def read_dicom(raw: RAW | None) -> Values:
    """The first frame, (channels, height, width): rescaled by slope and intercept, bright on dark."""
    file = _open(raw, whole=True)
    try:
        values: Values = file.pixel_array
    except Exception as error:  # pydicom raises many kinds for a damaged or compressed file
        raise PictureError(f"its pixels cannot be decoded ({_first_line(error)})") from None
    if int(getattr(file, "NumberOfFrames", 1) or 1) > 1:
        values = values[0]
    if int(file.SamplesPerPixel) == 3:
        return _colour(file, values).transpose(2, 0, 1)
    if file.PhotometricInterpretation == "MONOCHROME1":  # low values are bright
        values = np.asarray((1 << int(file.BitsStored)) - 1 - values.astype(np.int64))
    slope, intercept = float(getattr(file, "RescaleSlope", 1)), float(getattr(file, "RescaleIntercept", 0))
    if (slope, intercept) == (1.0, 0.0) and int(file.PixelRepresentation) == 0 and int(file.BitsAllocated) <= 16:
        return values.astype(np.uint8 if int(file.BitsAllocated) == 8 else np.uint16)[None]
    return (values.astype(np.float32) * np.float32(slope) + np.float32(intercept))[None]


def read_dicom_header(raw: RAW | None) -> Header:
    """Size, colour and depth; pixels are not read."""
    file = _open(raw, whole=False)
    frames = int(getattr(file, "NumberOfFrames", 1) or 1)
    depth = 8 if int(file.BitsAllocated) == 8 else 16
    return Header(int(file.Columns), int(file.Rows), int(file.SamplesPerPixel) == 3, depth, frames)


def _open(raw: RAW | None, whole: bool) -> Any:
    try:
        import pydicom
    except ImportError:
        raise PictureError("it is DICOM, which needs an extra: pip install 'chase-fal[dicom]'") from None
    try:
        source = str(raw) if isinstance(raw, Path) else io.BytesIO(raw or b"")
        file = pydicom.dcmread(source, stop_before_pixels=not whole)
        for needed in ("Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "PhotometricInterpretation"):
            if needed not in file:
                raise PictureError(f"it is DICOM without a picture ({needed} is missing)")
        return file
    except (OSError, ValueError, TypeError, AttributeError, pydicom.errors.InvalidDicomError) as error:
        raise PictureError(f"it is not DICOM that can be read ({_first_line(error)})") from None


def _colour(file: Any, values: Values) -> Values:
    from pydicom.pixels.processing import convert_color_space

    if str(file.PhotometricInterpretation) == "RGB":
        return values.astype(np.uint8)
    return np.asarray(convert_color_space(values, str(file.PhotometricInterpretation), "RGB"), dtype=np.uint8)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
