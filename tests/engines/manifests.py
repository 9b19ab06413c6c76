"""Checks the manifests in configs/cluster against the schemas of Kubernetes and JobSet: tests/engines.sh
manifests. It installs these from PyPI into a throw-away environment. The gate has no network: it runs what they start."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
import recording  # noqa: E402

PACKAGES = ["kubernetes-validate==1.37.0", "kubeflow_trainer_api==2.3.0", "annotated-types==0.8.0", "attrs==26.1.0",
            "importlib_resources==7.1.0", "jsonschema==4.26.0", "jsonschema-specifications==2025.9.1", "packaging==26.4",
            "pydantic==2.14.4", "pydantic_core==2.50.5", "PyYAML==6.0.4", "referencing==0.37.0", "rpds-py==2026.9.1",
            "typing-inspection==0.4.5", "typing_extensions==4.16.0"]


def differences(given, kept, place):
    """What of a manifest its model does not keep: fields that are unknown there."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [each for key in given for each in differences(given[key], kept.get(key), f"{place}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [each for k, value in enumerate(given) for each in differences(value, kept[k], f"{place}[{k}]")]
    return [] if given == kept else [f"{place} is {given!r}, of which the model has {kept!r}"]


def problems_of(manifest):
    import kubernetes_validate
    from kubeflow_trainer_api import models

    kind = manifest["kind"]
    try:
        if kind == "JobSet":
            return differences(manifest, models.JobsetV1alpha2JobSet.from_dict(manifest).to_dict(), kind)
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except (kubernetes_validate.ValidationError, ValueError) as error:  # pydantic's is a ValueError
        return [f"{kind}: {getattr(error, 'message', error)}"]
    return []


def check(_):
    import yaml

    count, problems = 0, []
    for file in sorted((ROOT / "configs/cluster").glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            count += 1
            problems += [f"{file.name}: {problem}" for problem in problems_of(manifest)]
    print("".join(f"{problem}\n" for problem in problems) + f"{count} manifests, {len(problems)} problems")
    return 1 if problems or count < 4 else 0


recording.main(__file__, __doc__, PACKAGES, check)
