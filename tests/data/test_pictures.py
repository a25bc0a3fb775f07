"""The one reader of picture files: range, rotation, colour, size and what cannot be read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chase.data.images import decode
from chase.data.options import DataOptions
from chase.data.pictures import PictureError, read_header, read_picture, rescale, reshape, to_png


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


def test_float_tiff_keeps_its_values(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    read = read_picture(save(tmp_path / "a.tif", values))
    assert read.dtype == np.float32
    assert np.array_equal(read[0], values)
    images = decode([tmp_path / "a.tif"], ["a.tif"], DataOptions())
    assert images.scale == (0.0, 1.0)
    assert images.pixels.min() == 0
    assert images.pixels.max() == 255


def test_levels_of_16_bit_pictures_stay_apart_under_one_scale(tmp_path: Path) -> None:
    for level in (800, 2400):
        save(tmp_path / f"{level}.png", np.full((4, 4), level, dtype=np.uint16))
    files = [tmp_path / "800.png", tmp_path / "2400.png"]
    assert [int(read_picture(f).max()) for f in files] == [800, 2400]
    declared = decode(files, ["a", "b"], DataOptions(scale=(0.0, 4095.0))).pixels
    assert declared[:, 0, 0, 0] == pytest.approx([800 * 255 / 4095, 2400 * 255 / 4095])
    found = decode(files, ["a", "b"], DataOptions())
    assert found.scale == (800.0, 2401.0)  # each level is a picture of its own, the range spans both
    assert found.pixels[0, 0, 0, 0] != found.pixels[1, 0, 0, 0]


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    image = Image.new("L", (6, 3), 0)
    image.putpixel((0, 0), 255)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise by 90 degrees to show it
    image.save(tmp_path / "a.png", exif=exif)
    read = read_picture(tmp_path / "a.png")
    assert read.shape == (1, 6, 3)
    assert read[0, 0, 2] == 255
    header = read_header(tmp_path / "a.png")
    assert (header.width, header.height) == (3, 6)


def test_one_colour_picture_does_not_turn_the_others_to_colour(tmp_path: Path) -> None:
    files = [save(tmp_path / f"{n}.png", np.full((4, 4), 10 * n, dtype=np.uint8)) for n in range(4)]
    files.append(save(tmp_path / "red.png", np.tile(np.uint8([200, 0, 0]), (4, 4, 1))))
    images = decode(files, [f.name for f in files], DataOptions())
    assert images.pixels.shape == (5, 1, 4, 4)
    assert images.pixels.dtype == np.uint8
    assert "1 of 5 images are in colour and were converted to grey" in images.problems[0]
    assert "red.png" in images.problems[0]


def test_mixed_bit_depths_are_said(tmp_path: Path) -> None:
    files = [
        save(tmp_path / "a.png", np.full((4, 4), 200, dtype=np.uint8)),
        save(tmp_path / "b.png", np.full((4, 4), 4000, dtype=np.uint16)),
    ]
    images = decode(files, ["a", "b"], DataOptions())
    assert images.scale == (200.0, 4001.0)
    assert "different bit depth (1 of 8 and 1 of 16 bits)" in images.problems[0]


def test_transparency_becomes_white_and_a_grey_palette_grey(tmp_path: Path) -> None:
    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    assert (read_picture(save(tmp_path / "clear.png", clear)) == 255).all()
    grey = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).convert("P")
    grey.save(tmp_path / "p.png")
    assert read_picture(tmp_path / "p.png").shape == (1, 4, 4)


def test_a_huge_a_broken_and_an_empty_picture_are_refused_in_a_sentence(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    with pytest.raises(PictureError, match="pixels"):
        read_picture(file.getvalue())
    (tmp_path / "huge.png").write_bytes(file.getvalue())
    good = save(tmp_path / "good.png", np.zeros((4, 4), dtype=np.uint8))
    images = decode([tmp_path / "huge.png", good], ["huge.png", "good.png"], DataOptions(bad_images="skip"))
    assert images.kept.tolist() == [1]
    assert "huge.png" in images.problems[0]
    with pytest.raises(PictureError, match="not an image"):
        read_picture(b"hello")
    with pytest.raises(PictureError, match="empty"):
        read_picture(b"")
    with pytest.raises(PictureError, match="no such file"):
        read_picture(tmp_path / "none.png")
    with pytest.raises(PictureError, match="not numbers"):
        read_picture(save(tmp_path / "nan.tif", np.full((4, 4), np.nan, dtype=np.float32)))


def test_the_screen_and_the_network_see_the_same_window(tmp_path: Path) -> None:
    wide = np.array([[0, 1000, 2000, 4000]], dtype=np.uint16)[None]
    shown = np.asarray(Image.open(io.BytesIO(to_png(wide, (0.0, 2000.0)))))
    assert shown.tolist() == [[0, 128, 255, 255]]
    assert np.rint(rescale(wide, (0.0, 2000.0))[0]).astype(int).tolist() == shown.tolist()
    own = np.asarray(Image.open(io.BytesIO(to_png(wide))))
    assert own.tolist() == [[0, 64, 128, 255]]


def test_resizing_keeps_the_range(tmp_path: Path) -> None:
    wide = np.full((1, 8, 8), 3000, dtype=np.uint16)
    small = rescale(reshape(wide, channels=3, size=4), (0.0, 6000.0))
    assert small.shape == (3, 4, 4)
    assert small == pytest.approx(127.5)


def test_dicom_is_rescaled_and_bright_on_dark(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom", reason="the extra dicom is not installed")
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    file = FileDataset(str(tmp_path / "a.dcm"), {}, file_meta=meta, preamble=b"\0" * 128)
    file.Rows, file.Columns, file.SamplesPerPixel = 2, 2, 1
    file.PhotometricInterpretation, file.PixelRepresentation = "MONOCHROME2", 0
    file.BitsAllocated, file.BitsStored, file.HighBit = 16, 12, 11
    file.RescaleSlope, file.RescaleIntercept = 1, -1024
    file.PixelData = np.array([[0, 1024], [2048, 4095]], dtype="<u2").tobytes()
    file.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert read_picture(tmp_path / "a.dcm").tolist() == [[[-1024, 0], [1024, 3071]]]
    assert read_header(tmp_path / "a.dcm").depth == 16
    assert read_picture((tmp_path / "a.dcm").read_bytes()).shape == (1, 2, 2)
    (tmp_path / "b.dcm").write_bytes(b"nothing")
    with pytest.raises(PictureError, match="DICOM"):
        read_picture(tmp_path / "b.dcm")
