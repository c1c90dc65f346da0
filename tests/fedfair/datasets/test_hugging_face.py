"""Generated data in Hugging Face's format: saved by `datasets`, as parquet files, as the hub gives it; no network."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image as Pillow

from fedfair.datasets import DATASETS, hugging_face
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.split import split
from fedfair.protocol.task import Task
from simulations.engines.run import run
from simulations.settings.experiment import Experiment
from tests.for_each import for_each

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

ROWS = 60


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent or asked."""
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)


def hub() -> Any:
    """Return Hugging Face's package, which takes a second to import."""
    import datasets

    return datasets


def images(**columns: str) -> Any:
    """Return the features of a data set of images with further columns of these types."""
    return hub().Features({"image": hub().Image()} | {name: hub().Value(dtype) for name, dtype in columns.items()})


def rows(start: int = 0, size: int = ROWS, **columns: list[Any]) -> Dataset:
    numbers = range(start, start + size)
    return hub().Dataset.from_dict({
        "age": [20 + i % 40 for i in numbers], "town": [f"town {i % 3}" for i in numbers],
        "sex": ["fm"[i % 2] for i in numbers], "good": [i % 4 == 0 for i in numbers],
        "person": [f"p{i % 7}" for i in numbers], **columns})


def pictures(size: int = ROWS, side: tuple[int, int] = (20, 16), mode: str = "RGB") -> Dataset:
    """Images whose brightness tells the row, with the columns of CelebA."""
    shape = (*side, 3) if mode == "RGB" else side
    shown = [Pillow.fromarray(np.full(shape, i, dtype=np.uint8)) for i in range(size)]
    return hub().Dataset.from_dict(
        {"image": shown, "celeb_id": [i % 9 for i in range(size)], "Male": [i % 2 == 0 for i in range(size)],
         "Eyeglasses": [i % 5 == 0 for i in range(size)], "Young": [i % 3 == 0 for i in range(size)]},
        images(celeb_id="int64", Male="bool", Eyeglasses="bool", Young="bool"))


def saved(folder: Path) -> str:
    rows().save_to_disk(folder)
    return str(folder)


def parquet(folder: Path) -> str:
    folder.mkdir()
    rows().to_parquet(folder / "train.parquet")
    return str(folder)


@pytest.mark.parametrize("put", [saved, parquet])
def test_a_table(put: Callable[[Path], str], tmp_path: Path) -> None:
    data = hugging_face.load(put(tmp_path / "own"), "good", "sex", participant="person")
    assert data.names == ("f", "m")
    assert (data.y == torch.tensor([int(i % 4 == 0) for i in range(ROWS)])).all()
    assert data.x[:, 0].tolist() == [20 + i % 40 for i in range(ROWS)]
    assert data.x.shape == (ROWS, 1 + 3 + 2)
    assert len(data.published) == 0


def test_rows_that_are_left_out_are_left_out_of_the_published_parts_too(tmp_path: Path) -> None:
    pay = [None if i % 3 == 0 else f"{i},5" for i in range(ROWS)]
    hub().DatasetDict(train=rows(pay=pay), test=rows(ROWS, 20, pay=["7,25"] * 20)).save_to_disk(tmp_path / "own")
    data = hugging_face.load(str(tmp_path / "own"), "good", "sex", missing="drop")
    assert data.published.tolist() == [0] * 40 + [2] * 20
    assert data.x[:, data.columns.index("pay")].tolist() == [i + 0.5 for i in range(ROWS) if i % 3] + [7.25] * 20
    assert data.encoding.reading.decimal == ","


def test_participants_are_those_of_flowers_natural_partitioner(tmp_path: Path) -> None:
    """Flower's partitioner is the oracle of partition "natural"."""
    from flwr_datasets.partitioner import NaturalIdPartitioner

    name = saved(tmp_path / "own")
    partitioner = NaturalIdPartitioner(partition_by="person")
    partitioner.dataset = rows().add_column("row", list(range(ROWS)))
    wanted = [sorted(partitioner.load_partition(i)["row"]) for i in range(partitioner.num_partitions)]
    data = hugging_face.load(name, "good", "sex", participant="person")
    assert sorted((data.participant == p).nonzero().flatten().tolist() for p in range(7)) == sorted(wanted)
    task = Task(dataset=f"hf:{name}", label="good", group="sex", participant="person", partition="natural")
    held = task.clients_data()
    assert len(held) == 7
    assert all(len(set(part.participant.tolist())) <= 1 for parts in held.values() for _, part in parts)


@pytest.mark.parametrize(("parts", "sizes"), [
    (("train", "test"), (35, 5, 20)), (("train", "validation", "test"), (40, 30, 20)),
    (("train", "unsupervised", "test"), (35, 5, 20)), (("train", "validation"), (35, 5, 30))])
def test_published_parts_are_kept(parts: tuple[str, ...], sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Without a test part, the validation part stands for it."""
    lengths, start = {"train": 40, "validation": 30, "test": 20, "unsupervised": 5}, 0
    source = hub().DatasetDict()
    for name in parts:
        source[name] = rows(start, lengths[name], number=list(range(start, start + lengths[name])))
        start += lengths[name]
    source.save_to_disk(tmp_path / "own")
    found = hugging_face.load(str(tmp_path / "own"), "good", "sex")
    made = split(found, (0.7, 0.1, 0.2), 0)
    assert tuple(len(part) for _, part in made) == sizes
    numbers = [sorted(part.x[:, 1].int().tolist()) for _, part in made]
    assert numbers[2] == source["test" if "test" in parts else "validation"]["number"]
    if sizes[1] == 30:
        assert numbers[1] == source["validation"]["number"]


def test_from_the_hub_through_flower_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(path: str, name: str | None = None) -> DatasetDict:
        asked.append((path, name))
        return hub().DatasetDict(train=rows(), test=rows(size=20))

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert len(hugging_face.load("somebody/people", "good", "sex")) == ROWS + 20
    assert len(hugging_face.load("somebody/people@small", "good", "sex")) == ROWS + 20
    assert asked == [("somebody/people", None), ("somebody/people", "small")]


def test_classes_are_called_by_their_names(tmp_path: Path) -> None:
    colours = hub().ClassLabel(names=["red", "green", "blue"])
    named = rows(kind=[i % 3 for i in range(ROWS)]).cast_column("kind", colours)
    named.save_to_disk(tmp_path / "own")
    data = hugging_face.load(str(tmp_path / "own"), "kind", "kind")
    assert data.names == ("blue", "green", "red")
    assert [data.names[k] for k in data.y[:3]] == ["red", "green", "blue"]


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_images(mode: str, channels: int, tmp_path: Path) -> None:
    pictures(mode=mode).save_to_disk(tmp_path / "own")
    data = hugging_face.load(str(tmp_path / "own"), "Male", "Eyeglasses")
    assert data.x.shape == (ROWS, channels, 20, 16)
    assert data.x[:, 0, 0, 0].tolist() == list(range(ROWS))
    task = Task(dataset=f"hf:{tmp_path / 'own'}", label="Male", group="Eyeglasses", model="cnn")
    train = task.data().train
    assert torch.equal(train.features()[:, 0, 0, 0], train.records.float() / 255)
    assert task.build_model()(train.features(slice(2))).shape == (2, 2)


def test_celeba_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub().DatasetDict(train=pictures(), valid=pictures(20), test=pictures(20)).save_to_disk(tmp_path / "celeba")
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    data = DATASETS["celeba"].load(None)
    assert data.x.shape == (100, 3, 64, 64)
    assert data.x.dtype == torch.uint8
    assert data.names == ("without Eyeglasses", "with Eyeglasses")
    assert data.group.tolist()[:6] == [1, 0, 0, 0, 0, 1]
    assert data.y.tolist()[:3] == [1, 0, 1]
    assert data.participant.tolist()[:10] == [*range(9), 0]
    assert data.published.tolist() == [0] * 60 + [1] * 20 + [2] * 20
    assert DATASETS["celeba"].load("Young").group.tolist()[:4] == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="'Yung': did you mean 'Young'"):
        DATASETS["celeba"].load("Yung")


def test_celeba_is_not_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub().DatasetDict(train=pictures(), test=pictures(20)).save_to_disk(tmp_path / "celeba")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDFAIR_DATA_DIR", raising=False)
    with pytest.raises(FileNotFoundError, match="flwrlabs/celeba"):
        DATASETS["celeba"].load(None)


def test_rows_without_a_label_are_refused_or_dropped(tmp_path: Path) -> None:
    some = [None if i % 6 == 0 else i % 2 for i in range(ROWS)]
    rows(good=some).save_to_disk(tmp_path / "own")
    with pytest.raises(ValueError, match=r"missing values in good \(10\), in 10 of 60 rows"):
        hugging_face.load(str(tmp_path / "own"), "good", "sex")
    assert hugging_face.load(str(tmp_path / "own"), "good", "sex", "drop").x[:2, 0].tolist() == [21, 22]


@pytest.mark.parametrize(("columns", "message"), [
    ({"words": [["a", "b"]] * ROWS}, "column 'words' holds List, not one value for each record: remove it"),
    ({"sex": ["f"] * ROWS}, "column 'sex' has the single value 'f'"),
    ({"name": [f"n{i}" for i in range(ROWS)]}, "column 'name' has 60 different texts")])
def test_what_cannot_be_used_is_refused(columns: dict[str, list[Any]], message: str, tmp_path: Path) -> None:
    rows(**columns).save_to_disk(tmp_path / "own")
    with pytest.raises(ValueError, match=message):
        hugging_face.load(str(tmp_path / "own"), "good", "sex")


def test_columns_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    rows(words=[["a", "b"]] * ROWS, name=[f"n{i}" for i in range(ROWS)]).save_to_disk(tmp_path / "own")
    left = hugging_face.load(str(tmp_path / "own"), "good", "sex", without=["words", "name", "town=town 0", "sex"])
    assert set(left.columns) == {"age", "town", "person"}
    seen = pictures()
    other = seen.select_columns("image").rename_column("image", "other")
    hub().concatenate_datasets([seen, other], axis=1).save_to_disk(tmp_path / "images")
    with pytest.raises(ValueError, match=r"several images a record, .*: leave all but one out"):
        hugging_face.load(str(tmp_path / "images"), "Male", "Eyeglasses")
    assert len(hugging_face.load(str(tmp_path / "images"), "Male", "Eyeglasses", without=["other"])) == ROWS
    with pytest.raises(ValueError, match="unknown column 'Male'"):
        hugging_face.load(str(tmp_path / "images"), "Male", "Eyeglasses", without=["other", "Male"])


def test_images_of_several_sizes_are_refused(tmp_path: Path) -> None:
    columns = {"image": [Pillow.new("L", (8 + i, 8)) for i in range(2)], "Male": [0, 1], "Eyeglasses": [0, 1]}
    hub().Dataset.from_dict(columns, images(Male="int64", Eyeglasses="int64")).save_to_disk(tmp_path / "own")
    with pytest.raises(ValueError, match=r"have different sizes, \(8, 8\) and \(8, 9\)"):
        hugging_face.load(str(tmp_path / "own"), "Male", "Eyeglasses")
    assert hugging_face.load(str(tmp_path / "own"), "Male", "Eyeglasses", size=8).x.shape == (2, 1, 8, 8)


def test_wrong_names_are_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder nobody/nothing, and it could not be had") as error:
        hugging_face.load("nobody/nothing", "good", "sex")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"unknown column of .* 'sexe': did you mean 'sex'"):
        hugging_face.load(saved(tmp_path / "own"), "good", "sexe")
    with pytest.raises(ValueError, match="hf:own needs the columns that hold label and group"):
        Task(dataset="hf:own")


def of_pixels(pixels: list[np.ndarray]) -> Dataset:
    """Return a data set of one image for each array."""
    columns = {"image": [Pillow.fromarray(array) for array in pixels], "Male": [0, 1] * (len(pixels) // 2),
               "Eyeglasses": [0, 0, 1, 1] * (len(pixels) // 4)}
    return hub().Dataset.from_dict(columns, images(Male="int64", Eyeglasses="int64"))


def test_images_of_more_than_eight_bits_are_refused(tmp_path: Path) -> None:
    of_pixels([np.full((4, 4), 1000 + row, np.uint16) for row in range(8)]).save_to_disk(tmp_path / "deep")
    with pytest.raises(ValueError, match=r"more than 8 bits a pixel \(mode I;16\): scale them to 8 bits"):
        hugging_face.load(str(tmp_path / "deep"), "Male", "Eyeglasses")


def test_one_grey_image_does_not_make_the_others_grey(tmp_path: Path) -> None:
    red = np.zeros((4, 4, 3), np.uint8)
    red[..., 0] = 200
    of_pixels([np.full((4, 4), 9, np.uint8), *[red] * 7]).save_to_disk(tmp_path / "mixed")
    x = hugging_face.load(str(tmp_path / "mixed"), "Male", "Eyeglasses").x
    assert x.shape == (8, 3, 4, 4)
    assert x[:, :, 0, 0].tolist() == [[9, 9, 9], *[[200, 0, 0]] * 7]


def png() -> bytes:
    """Return the bytes of a small image's file."""
    file = BytesIO()
    Pillow.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "PNG")
    return file.getvalue()


PNG = png()


@for_each("image", [None, {"bytes": b"no image", "path": None}, {"bytes": PNG[:-40], "path": None}])
def test_an_image_that_is_absent_or_broken_is_named_before_work_starts(image: Any, tmp_path: Path) -> None:
    coded = [{"bytes": PNG, "path": None}] * 3
    table = pa.table({"image": pa.array([*coded, image], pa.struct({"bytes": pa.binary(), "path": pa.string()})),
                      "Male": [0, 1, 0, 1], "Eyeglasses": [0, 0, 1, 1]})
    own = hub().Dataset(table).cast(images(Male="int64", Eyeglasses="int64"))
    with TemporaryDirectory(dir=tmp_path) as folder:
        own.save_to_disk(folder)
        with pytest.raises(ValueError, match=r"the image of record 4, of those with a label, cannot be read from"):
            hugging_face.load(folder, "Male", "Eyeglasses")


def test_a_run_on_images_is_the_same_from_a_file_and_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(folder: str) -> torch.Tensor:
        """Return the weights after two private steps."""
        pictures().save_to_disk(tmp_path / folder)
        made = run(Experiment(dataset=f"hf:{tmp_path / folder}", label="Male", group="Eyeglasses", model="cnn",
                              strategy="dpsgd-f", steps=2, batch_size=8))
        return torch.cat([weights.detach().flatten() for weights in made.model.parameters()])

    from_file = trained("own")
    read = hugging_face._pixels
    monkeypatch.setattr(hugging_face, "_pixels", lambda *asked: read(*asked).made())
    assert torch.equal(from_file, trained("other"))


def test_a_decimal_mark_that_all_rows_tell_makes_the_guarantee_nominal(tmp_path: Path) -> None:
    """One row with another mark would change how the numbers of all others are read."""
    rows(dose=[f"{i % 9}.5" for i in range(ROWS)]).save_to_disk(str(tmp_path / "own"))
    asked = {"dataset": f"hf:{tmp_path / 'own'}", "label": "good", "group": "sex", "without": ("person",),
             "ranges": {"age": [0, 100], "dose": [0, 10]}, "categories": {"town": ["town 0", "other"]}}
    assert "how the numbers in dose are written was found" in str(Task(**asked).learned_from_records())
    assert Task(**asked, decimal=".").learned_from_records() is None


def test_dates_durations_and_times_are_numbers(tmp_path: Path) -> None:
    born = [datetime.date(1990, 1, 1) + datetime.timedelta(days=number) for number in range(ROWS)]
    stay = [datetime.timedelta(days=number, hours=12) for number in range(ROWS)]
    pay = [Decimal(number) / 4 for number in range(ROWS)]
    rows(born=born, stay=stay, pay=pay).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=r'quantities = \{ born = "date" \}'):
        hugging_face.load(str(tmp_path), "good", "sex", without=["person", "town"])
    asked = Asked(quantities=(("born", "date"),))
    data = hugging_face.load(str(tmp_path), "good", "sex", without=["person", "town"], asked=asked)
    by_name = dict(zip(data.columns, data.x.T, strict=True))
    assert torch.equal(by_name["stay"], torch.arange(ROWS) + 0.5)
    assert torch.equal(by_name["born"], torch.arange(ROWS) + 7305.0)
    assert torch.equal(by_name["pay"], torch.arange(ROWS) / 4)
