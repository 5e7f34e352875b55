"""Any stored model, whatever method made it: the file says which kind it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile

from synth_core.errors import SourceError
from synth_core.models import markov_random_field, mixture
from synth_core.models.markov_random_field import MarkovRandomField
from synth_core.models.mixture import Mixture
from synth_core.models.stored import opened_arrays
from synth_core.synthesizers import privbayes_model
from synth_core.synthesizers.privbayes_model import BayesianNetwork

AnyModel = MarkovRandomField | BayesianNetwork | Mixture
LOADERS: dict[str, Callable[[str | os.PathLike[str]], AnyModel]] = {
    markov_random_field.FORMAT: MarkovRandomField.load,
    privbayes_model.FORMAT: BayesianNetwork.load,
    mixture.FORMAT: lambda path: Mixture.load(path, load_model),
}


def load_model(path: str | os.PathLike[str]) -> AnyModel:
    """Read a model that a method's fit has saved."""
    try:
        with opened_arrays(path) as stored:
            loader = LOADERS[json.loads(stored["header"].tobytes())["format"]]
    except (OSError, EOFError, BadZipFile, ValueError, KeyError) as error:
        raise SourceError(f"{Path(path).name} is not a stored model") from error
    return loader(path)
