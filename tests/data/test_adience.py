"""Adience: labels, albums and pixels from small files in the official layout."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sensorveil.data import load
from sensorveil.data.adience import Adience
from sensorveil.data.corpus import apply_protocol
from sensorveil.errors import Refusal

Image = pytest.importorskip("PIL.Image")

_HEADER = (
    "user_id\toriginal_image\tface_id\tage\tgender\tx\ty\tdx\tdy\ttilt_ang"
    "\tfiducial_yaw_angle\tfiducial_score"
)
_AGES = ["(0, 2)", "3", "(8, 12)", "22", "35", "(8, 23)", "34", "None", "58", "(60, 100)"]
_GROUPS = ["0-3", "0-3", "8-13", "22-32", "35-48", "", "", "", "48-58", "60-100"]


def _write(folder: Path, rows: list[tuple[int, str, str, int, str, str, int]]) -> None:
    """The fold files and images of (fold, album, image, face, age, gender, level of grey)."""
    lines: dict[int, list[str]] = {fold: [_HEADER] for fold in range(5)}
    for fold, album, image, face, age, gender, level in rows:
        lines[fold].append(f"{album}\t{image}\t{face}\t{age}\t{gender}" + "\t0" * 7)
        place = folder / "aligned" / album / f"landmark_aligned_face.{face}.{image}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (816, 816), (level, level, level)).save(place, "JPEG")
    for fold, content in lines.items():
        (folder / f"fold_{fold}_data.txt").write_text("\n".join(content) + "\n", "utf-8-sig")


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Five folds; fold f holds the album f with 10 - f images, one age each."""
    rows = [
        (fold, f"{fold}@N03", f"{n}_o.jpg", fold, _AGES[n], "fmu"[n % 3], 25 * n)
        for fold in range(5)
        for n in range(10 - fold)
    ]
    _write(tmp_path, rows)
    return tmp_path


def test_reads_images_and_labels(official):
    raw = Adience().read(official)
    assert len(raw.items) == 40
    item = next(item for item in raw.items if item.name == "1@N03/1.4_o.jpg")
    assert item.signal.shape == (1, 80, 80)
    np.testing.assert_allclose(item.signal, 100 / 255, atol=0.01)
    assert item.subject == "1@N03"
    assert item.labels["album_rank"] == 2
    assert item.labels["face"] == "1"


def test_pixels_lie_where_they_lay(official):
    picture = Image.new("L", (816, 816), 0)
    picture.paste(255, (408, 0, 816, 408))  # the right upper quarter
    picture.save(official / "aligned" / "0@N03" / "landmark_aligned_face.0.0_o.jpg", "JPEG")
    grey = Adience().read(official).items[0].signal[0]
    assert grey[:38, 42:].min() > 0.95
    assert max(grey[42:].max(), grey[:, :38].max()) < 0.05


def test_stray_ages_fall_into_the_groups(official):
    windows = apply_protocol(Adience().protocol(), Adience().read(official)).windows(80, 80)
    assert windows.signal.shape == (40, 1, 80, 80)
    codes = windows.labels["age"][:10]
    assert ["" if c < 0 else windows.classes["age"][c] for c in codes] == _GROUPS
    assert windows.labels["gender"][:3].tolist() == [0, 1, -1]


def test_only_the_33_largest_albums_are_taken(tmp_path):
    every = [(fold, f"{fold}{number}@N00") for fold in range(5) for number in range(8)]
    rows = [(fold, album, "0.jpg", 1, "(4, 6)", "f", 100) for fold, album in every]
    # Album 40 has one image more than the others; 39 albums tie and go by name.
    _write(tmp_path, [*rows, (4, "40@N00", "1.jpg", 1, "(4, 6)", "f", 100)])
    corpus = apply_protocol(Adience().protocol(), Adience().read(tmp_path))
    assert set(corpus.classes["subject"]) == {"40@N00", *(album for _, album in every[:32])}


def test_splits_by_album_and_by_photo(tmp_path):
    rows = [
        (fold, f"{fold}{letter}@N00", f"{fold}{letter}{image}.jpg", face, "(4, 6)", "f", 100)
        for fold, letter, image, face in product(range(5), "ab", range(4), (1, 2))
    ]
    _write(tmp_path, rows)
    divided = load("adience", "subject", fold=2, source=tmp_path)
    assert not set(divided.train.subject) & set(divided.test.subject)
    divided = load("adience", "recording", source=tmp_path)
    train, test = (
        set(part.to_frame()["recording"].str[-7:]) for part in (divided.train, divided.test)
    )
    assert not train & test
    assert len(test) == 12


def test_refuses_damaged_and_missing_images(official):
    path = official / "aligned" / "2@N03" / "landmark_aligned_face.2.5_o.jpg"
    whole = path.read_bytes()
    for part in (b"", b"no image", whole[: len(whole) // 2]):
        path.write_bytes(part)
        with pytest.raises(Refusal, match=r"2\.5_o\.jpg is not a whole image"):
            Adience().read(official)
    path.unlink()
    with pytest.raises(Refusal, match=r"2\.5_o\.jpg is missing"):
        Adience().read(official)
    (official / "fold_3_data.txt").write_bytes(b"user_id,age\n1,2\n")
    with pytest.raises(Refusal, match=r"fold_3_data\.txt lacks the column"):
        Adience().read(official)
