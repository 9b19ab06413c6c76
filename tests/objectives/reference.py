"""Has scikit-learn judge made predictions; reference.json has them with the figures.

    pip install scikit-learn && python3 tests/objectives/reference.py > tests/objectives/reference.json

A case has "outputs", a row of scores a sample, and "targets". Scores are fourths, so that many are
equal.
"""
import json
import random
import warnings

import numpy
import sklearn
from sklearn import metrics


def figures(outputs, targets):
    predictions = numpy.argmax(outputs, axis=1)
    average = "binary" if outputs.shape[1] == 2 else "macro"
    expected = {"accuracy": metrics.accuracy_score(targets, predictions),
                "balanced_accuracy": metrics.balanced_accuracy_score(targets, predictions)}
    for name, score in [("f1", metrics.f1_score), ("precision", metrics.precision_score),
                        ("recall", metrics.recall_score)]:
        expected[name] = score(targets, predictions, average=average, zero_division=0)
        for kind in ("macro", "weighted"):
            expected[f"{name}_{kind}"] = score(targets, predictions, average=kind, zero_division=0)
    if outputs.shape[1] == 2 and len(set(targets)) == 2:
        expected["auc"] = metrics.roc_auc_score(targets, outputs[:, 1] - outputs[:, 0])
    return {name: float(value) for name, value in expected.items()}


def case(name, classes, samples, targets_of, scores_of):
    draws = random.Random(name)
    targets = numpy.array([targets_of(draws) for _ in range(samples)])
    outputs = numpy.array([[scores_of(draws, c == target) / 4 for c in range(classes)]
                           for target in targets])
    labels = list(range(classes))
    return {"name": name, "outputs": outputs.tolist(), "targets": targets.tolist(),
            "confusion": metrics.confusion_matrix(
                targets, numpy.argmax(outputs, axis=1), labels=labels).tolist(),
            "figures": figures(outputs, targets)}


def any_of(count):
    return lambda draws: draws.randrange(count)


def learned(draws, is_target):
    return draws.randint(-4, 4) + 2 * is_target


def never_the_last(classes):
    """Scores of a model that never predicts its last class, for a case of that many."""
    column = [0]

    def score(draws, is_target):
        column[0] = column[0] % classes + 1
        return -40 if column[0] == classes else learned(draws, is_target)
    return score


def regression(name, samples, outputs):
    draws = random.Random(name)
    truth = numpy.array([[draws.randint(-20, 20) / 4 for _ in range(outputs)]
                         for _ in range(samples)])
    predicted = truth + numpy.array([[draws.randint(-6, 6) / 8 for _ in range(outputs)]
                                     for _ in range(samples)])
    parts = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
    return {"name": name, "outputs": predicted.tolist(), "targets": truth.tolist(),
            "figures": {"r2": metrics.r2_score(truth, predicted),
                        "mean_absolute_error": metrics.mean_absolute_error(truth, predicted),
                        "mean_squared_error": metrics.mean_squared_error(truth, predicted)},
            "parts": parts,
            "quantiles": numpy.quantile(truth - predicted, parts, axis=0).T.tolist()}


warnings.simplefilter("ignore")  # of classes that are never predicted
print(json.dumps({
    "scikit-learn": sklearn.__version__,
    "classes": [
        case("two classes", 2, 41, any_of(2), learned),
        case("two classes, all targets 0", 2, 7, any_of(1), learned),
        case("two classes, all predicted 0", 2, 9, any_of(2), never_the_last(2)),
        case("five classes", 5, 83, any_of(5), learned),
        case("two of five classes are no targets", 5, 31, any_of(3), learned),
        case("a class is neither a target nor predicted", 4, 29, any_of(3), never_the_last(4)),
        case("a class is never predicted", 4, 29, any_of(4), never_the_last(4)),
    ],
    "values": [regression("one value", 37, 1), regression("three values", 12, 3)],
}, indent=None))
