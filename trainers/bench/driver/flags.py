"""The command line of bench. help.txt says which commands and flags there are; here are the rules of their values."""

import os
import re
from types import SimpleNamespace

from texts import Refused, did_you_mean, parse_size

HERE = os.path.dirname(os.path.realpath(__file__))
MODELS, AUGMENTED = ["mlp", "cnn", "resnet", "gpt"], "augmented"
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather"]
MEASURES = {"training": ["steps", "launches", "memory"], "parts": ["table", "replicated"]}
with open(f"{HERE}/help.txt") as help_file:
    HELP = help_file.read()
COMMANDS = re.findall(r"^  bench (\w+) \[flags\]", HELP, re.M)


def flags():
    """By name: the argument, the help, and the commands that have the flag, if not all do."""
    found = {}
    for name, argument, about in re.findall(r"^ {6}(--[\w-]+) ?(\w*)( {2,}.*\n(?: {20,}.*\n)*)", HELP, re.M):
        about, _, names = " ".join(about.split()).partition(" [")
        found[name] = argument, about, names.rstrip("]").split(", ") if names else COMMANDS
    return found


# The rules of values: each takes the text, and gives its value or says what is wrong with it.

def check(holds, *message):
    if not holds:
        raise Refused("".join(map(str, message)))


def number_between(low, high, form=r"[0-9]{1,9}", what="whole number"):
    def parse(text):
        check(re.fullmatch(form, text) and low <= float(text) <= high, f"'{text}' is no {what} from {low} to {high}")
        return float(text) if "." in text else int(text)
    return parse


def one_of(known):
    def parse(text):
        check(text in known, f"'{text}' is unknown{did_you_mean(text, known)}; there are {', '.join(known)}")
        return text
    return parse


def float_size(text):
    size = parse_size(text)
    check(0 < size <= 1 << 40, f"'{text}' is no size: expected a whole number of bytes from 1 to 1 TiB, such as 8, 64KiB, 1MiB or "
          "1GiB")
    check(size % 4 == 0, f"{text} is no whole number of float32 values, which take 4 bytes each")
    return size


def parameter_count(text):
    count = parse_size(text + "B")  # the same units, of bytes: 100M is as 100MB
    check(0 < count <= 10**12, f"'{text}' is no number of parameters, such as 5000 or 100M")
    return count


def output_folder(text):
    check(os.path.isdir(text) and os.access(text, os.W_OK), f"'{text}' is no folder that can be written to")
    return os.path.abspath(text)


def output_file(text, ends=""):
    folder = os.path.dirname(os.path.abspath(text))
    check(text and not os.path.isdir(text), f"'{text}' is no file's name")
    check(text.endswith(ends), f"'{text}' does not end in .svg, .png or .pdf")
    check(os.access(folder, os.W_OK), f"the folder {folder} cannot be written to")
    return text


def picture_file(text):
    return output_file(text, (".svg", ".png", ".pdf"))


def list_of(parse):
    """Entries of "a,b,c", each once."""
    return lambda text: list(dict.fromkeys(parse(entry.strip()) for entry in text.split(",")))


def name(text):
    check(text, "an entry of the list is empty")
    return text


# By flag: the rule, and the default; None where that depends on the command.
RULES = {
    "--systems": (list_of(name), None), "--repetitions": (number_between(1, 10_000), None),
    "--python": (list_of(name), ["python3"]), "--json": (output_file, None), "--plot": (picture_file, None),
    "--operations": (list_of(one_of(OPERATIONS)), OPERATIONS),
    "--sizes": (list_of(float_size), [8, 64, *(1 << bits for bits in (10, 13, 16, 18, 20, 23, 26, 28))]),
    "--lanes": (list_of(number_between(1, 100_000)), [8, 64, 512]), "--steps": (number_between(2, 1_000_000), 2000),
    "--models": (list_of(one_of(MODELS)), None), "--replicas": (list_of(number_between(1, 64)), None),
    "--stages": (list_of(number_between(0, 3)), None), "--data": (list_of(one_of(["memory", AUGMENTED])), ["memory"]),
    "--batch": (number_between(1, 4096), None), "--launch": (list_of(one_of(["processes", "threads"])), ["processes"]),
    "--hosts": (number_between(1, 16), 1), "--rate-mbit": (number_between(0, 100_000), 1000),
    "--delay-ms": (number_between(0, 1000, r"[0-9]{1,9}\.?[0-9]*", "number"), 0), "--parameters": (parameter_count, 10**8),
    "--folders": (list_of(output_folder), None), "--columns": (number_between(2, 1_000_000), 20_000),
    "--measure": (None, None),  # one of the command's MEASURES
}


def parse_flags(arguments):
    """The options that the arguments ask for; `measurement` is a command, "--help" or "--version"."""
    command, *rest = arguments or [""]
    what = f"unknown measurement '{command}'{did_you_mean(command, COMMANDS)}" if command else "a measurement is needed"
    check(command in (*COMMANDS, "--help", "--version"), what, f": {', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}; see bench --help")
    its = [flag for flag, (_, _, names) in flags().items() if command in names]
    options = SimpleNamespace(measurement=command, **{flag[2:].replace("-", "_"): value for flag, (_, value) in RULES.items()})
    while rest and command in COMMANDS:
        flag, equals, value = rest.pop(0).partition("=")
        check(flag.startswith("-"), f"'{flag}' is no flag; see bench --help")
        check(flag in its, f"unknown flag {flag}{did_you_mean(flag, its)}; see bench --help")
        if flag not in RULES:
            return SimpleNamespace(measurement=flag)
        value = value if equals else rest.pop(0) if rest and not rest[0].startswith("--") else None
        check(value is not None, f"{flag} lacks its value; see bench --help")
        try:
            rule = RULES[flag][0] or list_of(one_of(MEASURES[command]))
            setattr(options, flag[2:].replace("-", "_"), rule(value))
        except Refused as error:
            raise Refused(f"{flag}: {error}") from None
    return completed(options)


def completed(options):
    """With the defaults that depend on the command, and after the rules between several flags."""
    command, hosts = options.measurement, options.hosts
    several = [2 * hosts] if command == "training" else [hosts, 2 * hosts]
    replicas = {"training": [1, 2, 4], "checkpoint": [2]}.get(command, [2, 4]) if hosts == 1 else several
    options.measure = options.measure or MEASURES.get(command, [])[:2 if hosts == 1 else 1]
    options.models = options.models or (["mlp"] if command == "scaling" else MODELS)
    is_few = command == "scaling" and "stage" not in str(options.systems)
    options.stages = options.stages or ([0] if is_few else [0, 1, 2, 3])
    options.replicas, options.sizes = sorted(options.replicas or replicas), sorted(options.sizes)
    options.few_repetitions = options.repetitions or 5  # of what takes long
    for count in options.replicas:
        check(count % hosts == 0, f"--replicas: {count} cannot be spread evenly over {hosts} hosts")
    check(hosts == 1 or "launches" not in options.measure, "--measure: launches are those of one host")
    check(hosts == 1 or options.launch == ["processes"], "--launch: on several hosts replicas are processes")
    return options
