"""Image manifolds: paths, frames, the shipped generator, Stable Diffusion, episodes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import F64, run_command
from icssl._util.files import cache_folder
from icssl._util.random import generator_for
from icssl.episodes import images
from icssl.episodes.data_config import DataConfig
from icssl.episodes.images import (
    FashionGenerator,
    ImageSpec,
    StableDiffusionGenerator,
    make_image_manifold,
    make_image_manifolds,
    manifold_path,
    process_frames,
    slerp,
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Six manifolds of the shipped generator."""
    path = tmp_path_factory.mktemp("manifolds")
    make_image_manifolds(FashionGenerator(), path, 6)
    return path


def test_slerp_walks_the_great_circle_at_equal_steps(generator):
    a, b = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    path = slerp(a, b, 50)
    torch.testing.assert_close(path[0], a, **F64)
    torch.testing.assert_close(path[-1], b, **F64)
    unit = (path / path.flatten(1).norm(dim=1)[:, None, None]).flatten(1)
    turns = torch.acos((unit[1:] * unit[:-1]).sum(dim=1).clamp(-1, 1))
    torch.testing.assert_close(turns, turns.mean().expand(49), rtol=1e-6, atol=1e-9)
    lengths = path.flatten(1).norm(dim=1)
    expected = torch.linspace(a.norm().item(), b.norm().item(), 50, dtype=torch.float64)
    torch.testing.assert_close(lengths, expected, **F64)


def test_slerp_between_one_point_and_itself_stays_there():
    a = torch.ones(3)
    torch.testing.assert_close(slerp(a, a, 5), a.expand(5, 3))


def test_frames_are_pillows_lanczos():
    pictures = np.random.default_rng(0).random((2, 50, 50, 3))
    frames = process_frames(pictures)
    for picture, frame in zip(pictures, frames, strict=True):
        image = Image.fromarray((255 * picture).round().astype(np.uint8)).convert("L")
        resized = np.asarray(image.resize((32, 32), Image.Resampling.LANCZOS))
        np.testing.assert_array_equal(frame, resized)


def test_shipped_generator_is_small_smooth_and_looks_like_its_data(folder):
    (weights,) = Path(images.__file__).parent.glob("fashion*.safetensors")
    assert weights.stat().st_size < 5e6
    for index in range(6):
        frames = np.load(manifold_path(folder, index)).astype(float).reshape(100, -1) / 255
        steps = np.linalg.norm(np.diff(frames, axis=0), axis=1)
        ends = np.linalg.norm(frames[-1] - frames[0])
        # No frame jumps: the longest step is a small part of the way.
        assert steps.max() < 0.15 * ends
        assert ends > 1.0
        # Fashion-MNIST: half of the pixels are black, the mean is 0.286.
        assert 0.02 < frames.mean() < 0.6
        assert (frames < 0.05).mean() > 0.1


def test_manifolds_are_made_once_and_depend_on_their_number_alone(folder, tmp_path):
    make_image_manifolds(FashionGenerator(), tmp_path, 2)
    stamp = manifold_path(tmp_path, 1).stat().st_mtime_ns
    manifold_path(tmp_path, 0).unlink()  # as if it had been interrupted
    make_image_manifolds(FashionGenerator(), tmp_path, 3)
    assert manifold_path(tmp_path, 1).stat().st_mtime_ns == stamp
    for index in range(3):
        same = manifold_path(folder, index).read_bytes()
        assert manifold_path(tmp_path, index).read_bytes() == same


def test_an_interrupted_run_leaves_whole_files_only(tmp_path):
    code = """
import os, signal, sys
from pathlib import Path
from icssl.episodes.images import FashionGenerator, make_image_manifolds
folder = Path(sys.argv[1])
class Dies(FashionGenerator):
    def decode(self, latents):
        if list(folder.iterdir()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().decode(latents)
make_image_manifolds(Dies(), folder, 3)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False, env={**os.environ})
    assert [path.name for path in tmp_path.iterdir()] == ["manifold-0000.npy"]
    make_image_manifolds(FashionGenerator(), tmp_path, 3)
    assert len(list(tmp_path.iterdir())) == 3


def test_episodes_of_images(folder):
    spec = ImageSpec(folder, train_count=4, labels=6, eigenvectors=4)
    episode = spec.draw(3, generator=generator_for(0, "images"))
    assert episode.x.shape == (3, 100, 1024)
    assert 0 <= episode.x.min() < episode.x.max() <= 1
    assert (episode.y.sum(dim=1) == 50).all()
    assert (episode.labelled.sum(dim=1) == 6).all()
    assert episode.features.shape == (3, 100, 4)
    again = spec.draw(3, generator=generator_for(0, "images"))
    assert torch.equal(again.x, episode.x)


def test_first_half_against_second_half(folder):
    """Shuffled by default: in order, a frame's number would tell its class."""
    ordered = ImageSpec(folder, train_count=6, shuffle=False, pixel_scale=0.001)
    episode = ordered.draw(1, generator=generator_for(0, "images"))
    assert episode.y[0].tolist() == [0] * 50 + [1] * 50
    assert episode.x.max() <= 0.001
    shuffled = ImageSpec(folder, train_count=6).draw(
        1, generator=generator_for(0, "images")
    )
    assert shuffled.y[0].tolist() != episode.y[0].tolist()


def test_training_and_test_manifolds_are_apart(folder):
    train = ImageSpec(folder, "train", train_count=4).indices()
    test = ImageSpec(folder, "test", train_count=4).indices()
    assert (train, test) == ([0, 1, 2, 3], [4, 5])


def sorted_frames(frames):
    return sorted(frame.tobytes() for frame in frames)


def test_images_by_name_are_made_when_they_are_first_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("ICSSL_HOME", str(tmp_path / "home"))
    spec = DataConfig(("images",)).build()
    assert spec.folder == tmp_path / "home" / "fashion-manifolds"
    assert not spec.folder.exists()
    episode = spec.draw(3, generator=generator_for(0, "images"))
    made = {int(path.stem[-4:]): np.load(path) for path in spec.folder.iterdir()}
    assert 1 < len(made) <= 3  # what was drawn and nothing else
    for index, frames in made.items():
        make_image_manifold(FashionGenerator(), tmp_path, index)
        np.testing.assert_array_equal(frames, np.load(manifold_path(tmp_path, index)))
    known = [sorted_frames(frames) for frames in made.values()]
    for points in (255 * episode.x).round().to(torch.uint8).numpy():
        assert sorted_frames(points) in known

    monkeypatch.setattr("icssl.episodes.images.make_image_manifold", pytest.fail)
    again = spec.draw(3, generator=generator_for(0, "images"))
    assert torch.equal(again.x, episode.x)


def test_images_by_name_are_as_many_as_the_papers(tmp_path, monkeypatch):
    monkeypatch.setenv("ICSSL_HOME", str(tmp_path))
    data = DataConfig(("images",))
    train, test = (replace(data, split=s).build().indices() for s in ("train", "test"))
    assert (len(train), len(test)) == (500, 450)
    assert not set(train) & set(test)
    assert ImageSpec(tmp_path).indices() == []  # a folder of one's own is as it is


def test_what_can_be_made_again_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ICSSL_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("ICSSL_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "icssl"


def test_bad_image_folders(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="holds no train manifold"):
        ImageSpec(tmp_path).draw(1, generator=generator_for(0, "images"))
    manifold_path(tmp_path, 0).write_bytes(manifold_path(folder, 0).read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"manifold-0000.npy cannot be read as a manifold"):
        ImageSpec(tmp_path).draw(1, generator=generator_for(0, "images"))
    np.save(manifold_path(tmp_path, 0), np.zeros((100, 28, 28), np.uint8))
    with pytest.raises(ValueError, match=r"100 pictures of 32 x 32 bytes.*\(100, 28, 28\)"):
        ImageSpec(tmp_path).draw(1, generator=generator_for(0, "images"))
    with pytest.raises(ValueError, match="unknown split 'validation'"):
        ImageSpec(folder, "validation")
    with pytest.raises(ValueError, match="pixel_scale must be positive, got 0"):
        ImageSpec(folder, pixel_scale=0.0)


@pytest.fixture(scope="session")
def tiny_stable_diffusion(tmp_path_factory):
    """A pipeline of the real classes with random weights, a few kilobytes each."""
    pytest.importorskip("diffusers")
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline
    from diffusers import UNet2DConditionModel as UNet
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    words = tmp_path_factory.mktemp("tokenizer")
    vocabulary = ["<|startoftext|>", "<|endoftext|>", "a", "a</w>"]
    (words / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(vocabulary)}))
    (words / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(words / "vocab.json"), str(words / "merges.txt"))
    tokenizer.model_max_length = 8
    text = CLIPTextConfig(
        vocab_size=4,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    blocks = {"block_out_channels": (8, 8), "norm_num_groups": 4, "layers_per_block": 1}
    pipeline = StableDiffusionPipeline(
        vae=AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
            **blocks,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=UNet(
            sample_size=8,
            cross_attention_dim=8,
            attention_head_dim=2,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            **blocks,
        ),
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    path = tmp_path_factory.mktemp("pipeline")
    pipeline.save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_stable_diffusion_makes_manifolds(tiny_stable_diffusion, tmp_path):
    generator = StableDiffusionGenerator(tiny_stable_diffusion, steps=2)
    assert generator.latent_shape == (4, 8, 8)
    latents = torch.randn(2, 4, 8, 8, generator=generator_for(0, "latents"))
    pictures = generator.decode(latents)
    assert pictures.shape == (2, 16, 16, 3)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    np.testing.assert_array_equal(generator.decode(latents[:1])[0], pictures[0])
    assert np.abs(pictures[0] - pictures[1]).max() > 0.01
    make_image_manifolds(generator, tmp_path, 1)
    assert np.load(manifold_path(tmp_path, 0)).shape == (100, 32, 32)


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_stable_diffusion_has_a_prompt_for_each_manifold(
    tiny_stable_diffusion, tmp_path, monkeypatch
):
    prompts = ["a", "a a a"]
    generator = StableDiffusionGenerator(tiny_stable_diffusion, steps=1, prompts=prompts)
    asked = []
    run = generator.pipeline

    def pipeline(**options):
        asked.append((options["prompt"], options["guidance_scale"]))
        return run(**options)

    pipeline.unet = run.unet
    monkeypatch.setattr(generator, "pipeline", pipeline)
    make_image_manifolds(generator, tmp_path, 2)
    assert asked == [("a", 1.0)] * 100 + [("a a a", 1.0)] * 100
    with pytest.raises(ValueError, match="manifold 2 has no prompt: 2 prompts"):
        make_image_manifolds(generator, tmp_path, 3)
    assert not manifold_path(tmp_path, 2).exists()


def test_prompts_need_stable_diffusion(tmp_path):
    (tmp_path / "prompts.txt").write_text("a deer\n")
    result = run_command(
        "images", tmp_path / "made", "--prompts", tmp_path / "prompts.txt", wide=True
    )
    assert result.exit_code == 2
    assert "--prompts needs --stable-diffusion" in result.output


def test_stable_diffusion_refuses_a_folder_without_a_pipeline(tmp_path):
    pytest.importorskip("diffusers")
    with pytest.raises(FileNotFoundError, match=r"has no model_index.json"):
        StableDiffusionGenerator(tmp_path)


def test_stable_diffusion_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'icssl\[diffusion\]'"):
        StableDiffusionGenerator(tmp_path)
