"""Adience: faces cut out of people's own Flickr albums, labelled with age group and gender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorveil.data.dataset import Dataset
from sensorveil.data.io import read_csv
from sensorveil.data.recordings import Recording, Recordings
from sensorveil.errors import Refusal

if TYPE_CHECKING:
    import pandas as pd

SIDE = 80
"""Pixels of a side, as in CLOAK."""
_FOLDS = tuple(f"fold_{number}_data.txt" for number in range(5))
_KEY = ["user_id", "original_image", "face_id"]


class Adience(Dataset):
    """Eidinger and others, the aligned faces; one image is one recording (1, 80, 80), grey, 0 to 1.

    `subject` is the album, the folder `user_id` of the files, which mostly shows several people
    (`face` tells them apart). CLOAK's "user ID" is the same: its estimate of what that tells
    about gender, 0.097, could not be so low if each stood for one person.
    """

    name = "adience"

    def read(self, source: Path) -> Recordings:
        """Reads the aligned faces that the five fold files list."""
        self.require_folder(source)
        try:
            import PIL.Image  # noqa: F401
        except ImportError:
            raise Refusal(
                "adience needs the package pillow; run 'pip install sensorveil[images]'"
            ) from None
        faces = _faces(source).to_dict("records")
        items = [_recording(row, source / "aligned") for row in faces]
        return Recordings.by_name(items, ("grey",), sample_rate=1.0)


def _faces(source: Path) -> pd.DataFrame:
    """The rows of all folds as text, each face once, with the size rank of its album."""
    import pandas as pd

    text: dict[str, Any] = {"sep": "\t", "dtype": str, "keep_default_na": False}
    tables = [read_csv(source / fold, [*_KEY, "age", "gender"], **text) for fold in _FOLDS]
    faces = pd.concat(tables).drop_duplicates(_KEY)
    # By images, then by name, so that the rank never depends on the order of the rows.
    sizes = faces["user_id"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    ranks = {album: rank for rank, album in enumerate(sizes.index, start=1)}
    return faces.assign(album_rank=faces["user_id"].map(ranks))


def _recording(face: dict[str, str], aligned: Path) -> Recording:
    album, image, number = (face[column] for column in _KEY)
    path = aligned / album / f"landmark_aligned_face.{number}.{image}"
    labels = {
        "face": number,
        "photo": image,
        "age": face["age"].strip(),
        "gender": face["gender"].strip(),
        "album_rank": face["album_rank"],
    }
    return Recording(f"{album}/{number}.{image}", album, _grey(path)[None], labels)


def _grey(path: Path) -> np.ndarray:
    """One image as (80, 80) numbers from 0 to 1."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            # A JPEG decoder can shrink while it decodes: far faster, and still twice our size.
            image.draft("L", (2 * SIDE, 2 * SIDE))
            small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise Refusal(
            f"{path} is missing, though a fold file lists it; unpack aligned.tar.gz again"
        ) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise Refusal(f"{path} is not a whole image ({error}); unpack it again") from None
    return np.asarray(small, dtype=np.float32) / 255
