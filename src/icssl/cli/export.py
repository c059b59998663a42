"""``icssl export``."""

from pathlib import Path
from typing import Annotated

import typer

from icssl.cli.common import Console, check_file, user_errors


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.safetensors", help="A file of icssl train.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the ONNX file goes.")
    ] = Path("model.onnx"),
    points: Annotated[
        int | None, typer.Option(min=2, help="Points of an episode, a fixed number.")
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Any number of points: the default.")
    ] = False,
    coordinates: Annotated[
        int | None,
        typer.Option(min=1, help="Of a point; by default the model's own, or 3."),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="By default the model's own number.")
    ] = None,
    opset: Annotated[int, typer.Option(help="Version of ONNX's operators.")] = 20,
) -> None:
    """Write a trained model as ONNX, once ONNX Runtime agrees with torch.

    The file takes x (b, n, d), y (b, n) and labelled (b, n), with any number of episodes b,
    and gives logits (b, n, c). A model with a learned start has a number of points of its
    own, which is then the default. Both are run on random episodes first: if they differ by
    more than 1e-4 of the largest logit (1e-9 in float64), nothing is written.
    """
    from icssl.export import model_to_export, own_points, to_onnx

    console = Console()
    with user_errors():
        if dynamic and points is not None:
            raise ValueError(f"--dynamic is any number of points, got --points {points}.")
        check_file(output)
        found = model_to_export(model)
        if points is None and not dynamic:
            points = own_points(found)
        with console.status("..."):
            parity = to_onnx(
                found,
                output,
                points=points,
                coordinates=coordinates,
                n_classes=classes,
                opset=opset,
            )
    tried = ", ".join(map(str, parity.points))
    console.print(f"{output}", markup=False, soft_wrap=True)
    console.print(
        f"Differs from torch by {parity.difference:.1e} of the largest logit, of "
        f"{parity.tolerance:.0e} allowed, at n = {tried}."
    )
