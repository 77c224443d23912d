"""`deploy init` and `doctor`: what a consortium starts from works once keys are there."""

from __future__ import annotations

import re
import subprocess
import sys

import pandas as pd
import pytest
from consortium import mfairfl_cli, write_files

from mfairfl.cli import main
from mfairfl.data import files
from mfairfl.deployment.settings import load_federation
from mfairfl.files import load_toml
from mfairfl.runs.config import make_config
from mfairfl.runs.manifest import server_view
from mfairfl.silo.policy import Disclosure, Policy, load_policy
from mfairfl.silo.silo_file import load_silo

NAMES = ["--silo", "north", "--silo", "west", "--silo", "east"]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "credit"
    assert main(["deploy", "init", str(made), *NAMES, "--host", "fl.example.org"]) == 0
    return made


def test_every_member_gets_its_files(folder):
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    silo = ["mfairfl-silo.service", "policy.toml", "run.toml", "silo.toml"]
    assert found == sorted(
        [
            "GUIDE.md",
            "coordinator/federation.toml",
            "coordinator/mfairfl-server.service",
            "coordinator/run.toml",
            *(f"silos/{name}/{one}" for name in ("east", "north", "west") for one in silo),
        ]
    )
    texts = "".join(p.read_text() for p in folder.rglob("*") if p.is_file())
    assert not re.search(r"\$\{?[a-z]", texts)  # nothing is left to fill in
    settings = load_federation(folder / "coordinator" / "federation.toml")
    assert settings.minimum == 2
    west = folder / "silos" / "west" / "silo.toml"
    assert load_silo(west).server == "fl.example.org:9443"
    assert load_policy(west) == Policy()


def test_all_commands_of_the_guide_exist(folder):
    lines = (folder / "GUIDE.md").read_text().splitlines()
    commands = [line.split() for line in lines if line.startswith("    mfairfl ")]
    assert len(commands) >= 6
    for words in commands:
        verb = words[1:3] if words[1] == "deploy" else words[1:2]
        assert main([*verb, "--help"]) == 0


def test_doctor_names_each_missing_file_in_turn(folder, tmp_path, capsys):
    coordinator, north = folder / "coordinator", folder / "silos" / "north"
    federation, silo = str(coordinator / "federation.toml"), str(north / "silo.toml")

    def failing(path):
        assert main(["doctor", path]) == 2
        return capsys.readouterr().err

    assert "east.pub: no such key" in failing(federation)
    for name in ("north", "west", "east"):
        key = folder / "silos" / name / "key"
        assert main(["deploy", "key", str(key)]) == 0
        (coordinator / "keys" / f"{name}.pub").write_bytes(key.with_suffix(".pub").read_bytes())
    assert "ca.crt: no such certificate" in failing(federation)
    folder_ = str(coordinator / "certificates")
    assert main(["deploy", "certificates", folder_, "--host", "127.0.0.1"]) == 0
    assert main(["doctor", federation]) == 0
    assert "ready, 0 warnings" in capsys.readouterr().out
    (coordinator / "state").mkdir(mode=0o755)
    (coordinator / "certificates" / "server.key").chmod(0o640)
    assert main(["doctor", federation]) == 0
    said = capsys.readouterr().out
    assert f"warn  state: {coordinator / 'state'}: others can read it; chmod 700" in said
    assert "server.key: others can read it; chmod 600" in said
    assert "ready, 2 warnings" in said

    assert "rows.csv: check the path" in failing(silo)
    rows = write_files(tmp_path)["north"].read_text()
    (north / "rows.csv").write_text(rows.replace("hired", "hird", 1))
    assert "unknown column 'hired': did you mean 'hird'" in failing(silo)
    (north / "rows.csv").write_text(rows)
    assert "ca.crt: no such certificate" in failing(silo)
    assert main(["doctor", silo]) == 2
    trust = "trust: the coordinator must be trusted as with pseudonymised rows; it can read them"
    assert f"warn  {trust}" == capsys.readouterr().out.splitlines()[1][: 6 + len(trust)]
    (north / "ca.crt").write_bytes((coordinator / "certificates" / "ca.crt").read_bytes())
    text = (north / "silo.toml").read_text()
    (north / "silo.toml").write_text(text.replace("fl.example.org:9443", "127.0.0.1:9"))
    assert "127.0.0.1:9: the coordinator cannot be reached" in failing(silo)
    (north / "key").chmod(0o644)
    (north / "state").mkdir(mode=0o755)
    assert main(["doctor", silo]) == 2
    said = capsys.readouterr().out
    assert "warn  key" in said
    assert f"chmod 700 {north / 'state'}" in said


def test_doctor_reads_a_silos_rows_once(folder, tmp_path, monkeypatch, capsys):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    silo = north / "silo.toml"
    section = '\n[audit]\nlabel = "hired"\nsensitive = ["sex"]\nmodels = true\n'
    silo.write_text(silo.read_text() + section)
    read, load = [], files.load_contents

    def watched(path):
        read.append(path.name)
        return load(path)

    monkeypatch.setattr(files, "load_contents", watched)
    main(["doctor", str(silo)])
    said = capsys.readouterr().out
    assert "audit: rows.csv: hired, sex may be counted" in said
    assert "schema: fits the task" in said
    assert read == ["rows.csv"]


def test_doctor_shows_the_limits_in_force_and_where_they_come_from(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())

    def limits():
        main(["doctor", str(north / "silo.toml")])
        (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("ok    limits")]
        return line

    assert "limits: of policy.toml: epochs 200, steps 100,000, " in limits()
    assert "by default" not in limits()
    (north / "policy.toml").write_text("[limits]\nepochs = 30\njobs = 8\n")
    assert "limits: of policy.toml: epochs 30, jobs 8; by default: steps 100,000" in limits()
    (north / "policy.toml").unlink()
    assert "limits: by default: epochs 200, " in limits()
    (north / "policy.toml").write_text("[limits]\nepoch = 30\n")
    assert main(["doctor", str(north / "silo.toml")]) == 2
    error = capsys.readouterr().err
    assert "policy.toml: unknown key 'limits.epoch': did you mean 'limits.epochs'?" in error


def test_doctor_lists_the_columns_an_audit_may_count(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    silo, text = north / "silo.toml", (north / "silo.toml").read_text()

    def lines(section):
        silo.write_text(text + section)
        main(["doctor", str(silo)])
        found = capsys.readouterr()
        return [x for x in found.out.splitlines() if x[6:].startswith(("audit", "disclo"))], found

    assert "ok    audit: no [audit]: requests for counts are refused" in lines("")[0]
    (north / "policy.toml").write_text("[disclosure]\nmin_rows = 25\n")
    said, _ = lines('\n[audit]\nlabel = "hired"\nsensitive = ["sex"]\nmodels = true\n')
    warned, *fine = said
    assert warned.startswith("warn  audit: models = true: models that the coordinator sends")
    assert (
        "ok    audit: rows.csv: hired, sex may be counted, by no fewer than 25 rows of a group "
        "and label"
    ) in fine
    _, found = lines('\n[audit]\nprediction = "decision"\nsensitive = ["sex"]\n')
    assert "rows.csv: unknown column 'decision'" in found.err + found.out
    section = text[text.index("# [audit]") :].replace("# ", "", 1).replace("\n# ", "\n")
    silo.write_text(text + "\n" + section)
    consent = load_silo(silo).audit
    assert (consent.label, consent.score, consent.models) == ("hired", "score", False)


def told(silo, check, capsys):
    main(["doctor", str(silo)])
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line[6:].startswith(f"{check}: ")]


def test_doctor_lists_the_disclosure_settings(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    (north / "policy.toml").write_text("[disclosure]\nmin_rows = 25\n")
    found = told(north / "silo.toml", "disclosure", capsys)
    assert len(found) == len(Disclosure.model_fields)
    for line, (key, field) in zip(found, Disclosure.model_fields.items(), strict=True):
        assert line.startswith(f"ok    disclosure: {key} = ")
        assert line.endswith(f": {field.description.rstrip('.')}")
        assert ("(of policy.toml)" in line) == (key == "min_rows")
        assert ("(by default)" in line) == (key != "min_rows")
    assert "min_rows = 25 (of policy.toml): " in found[0]


def test_doctor_names_code_and_does_not_import_it(folder, tmp_path, capsys, monkeypatch):
    coordinator, north = folder / "coordinator", folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    task = '[task]\nlabel = "hired"\nfavourable = "yes"\nsensitive = ["sex"]\n'
    rule = '[strategy]\nname = "evil:Rule"\n[fairness]\nnotion = "evil:NOTION"\n'
    (coordinator / "run.toml").write_text(task + rule)
    silo = north / "silo.toml"
    listed = 'extensions = ["evil:NOTION", "evil:net"]'
    silo.write_text(silo.read_text().replace("extensions = []", listed))
    named = "names code outside mfairfl, evil"
    both = told(coordinator / "federation.toml", "code", capsys)
    assert [line.partition(named)[0] for line in both] == [
        "note  code: fairness.notion ",
        "note  code: strategy.name ",
    ]
    for line, name in zip(told(silo, "code", capsys), ("NOTION", "net"), strict=True):
        assert line.startswith(f"note  code: extensions {named}:{name}: it is not imported here, ")
        assert "the silo imports evil when it starts" in line
    assert "evil" not in sys.modules


def test_doctor_lists_what_the_server_sees_for_both_parties(folder, tmp_path, capsys):
    """The run of the template: mfairfl, robust, which the silo has a copy of."""
    coordinator, north = folder / "coordinator", folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    lines = server_view(make_config(load_toml(coordinator / "run.toml")))
    expected = [f"ok    server sees: {line.sentence}" for line in lines]
    assert told(north / "silo.toml", "server sees", capsys) == expected
    assert told(coordinator / "federation.toml", "server sees", capsys) == expected


@pytest.mark.parametrize(
    "section", ["", '[strategy]\nname = "fedavg"\n', "[strategy]\nweights = 'size'\n"]
)
def test_silo_lists_what_crosses_from_its_copy_of_the_settings(folder, tmp_path, section, capsys):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    task = '[task]\nlabel = "hired"\nfavourable = "yes"\nsensitive = ["sex"]\n'
    (north / "run.toml").write_text(task + section)
    (first, *_) = told(north / "silo.toml", "server sees", capsys)
    assert first.startswith("ok    server sees: file description: ")


def test_silo_lists_what_crosses_without_loading_code(folder, tmp_path, capsys, monkeypatch):
    north = folder / "silos" / "north"
    (north / "rows.csv").write_bytes(write_files(tmp_path)["north"].read_bytes())
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    task = '[task]\nlabel = "hired"\nfavourable = "yes"\nsensitive = ["sex"]\n'
    (north / "run.toml").write_text(task + '[strategy]\nname = "evil:Rule"\n')
    (line,) = told(north / "silo.toml", "code", capsys)
    assert line.startswith("note  code: strategy.name names code outside mfairfl, evil:Rule")
    assert not told(north / "silo.toml", "server sees", capsys)
    assert "evil" not in sys.modules


def test_doctor_reads_values_of_few_rows_as_the_silo_does_and_counts_all(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    rows = pd.read_csv(write_files(tmp_path)["north"])
    rows.loc[3, "sex"] = "X"
    rows.to_csv(north / "rows.csv", index=False)
    counts = rows["sex"].value_counts().sort_index()
    sizes = ", ".join(f"{group} ({n})" for group, n in counts.items())
    (north / "policy.toml").write_text('[disclosure]\nkinds = ["profile", "sums"]\n')

    main(["doctor", str(north / "silo.toml")])
    said = capsys.readouterr()
    assert "X (1)" in sizes
    assert f"sex: {sizes}" in said.out
    assert "unknown group" not in said.err + said.out
    assert 'disclosure: kinds = ["profile", "sums"] (of policy.toml)' in said.out
    (north / "policy.toml").write_text("[disclosure]\nmin_rows = 1\n")
    main(["doctor", str(north / "silo.toml")])
    assert f"sex: {sizes}" in capsys.readouterr().out


def test_silo_without_the_attribute_gets_a_warning(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    frame_rows = write_files(tmp_path)["north"].read_text().splitlines()
    at = frame_rows[0].split(",").index("sex")
    cut = [",".join(v for i, v in enumerate(r.split(",")) if i != at) for r in frame_rows]
    (north / "rows.csv").write_text("\n".join(cut) + "\n")
    main(["doctor", str(north / "silo.toml")])
    assert "sex is not recorded here" in capsys.readouterr().out


def test_silo_columns_are_checked(folder, tmp_path, capsys):
    north = folder / "silos" / "north"
    frame = pd.read_csv(write_files(tmp_path)["north"])
    frame = frame.assign(person_id=range(len(frame)), country="here")
    frame.loc[frame.index % 9 == 0, "years"] = -9
    frame.to_csv(north / "rows.csv", index=False)
    main(["doctor", str(north / "silo.toml")])
    lines = capsys.readouterr().out.splitlines()
    n, gaps = len(frame), (frame["years"] == -9).sum()
    said = f"column 'person_id' names rows ({n} different whole numbers in {n} rows)"
    assert f"warn  identifiers: {said}: list it in ignore" in lines
    assert "note  constants: column 'country' never changes (here): list it in ignore" in lines
    assert any(
        line.startswith(f"warn  missing codes: column 'years': -9 in {gaps} rows; the others are")
        for line in lines
    )
    assert any(line.split()[:3] == ["years", "feature", "number"] for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--silo", "one"], "at least two silos"),
        (["--silo", "one", "--silo", "one"], "given twice"),
        (["--silo", "one", "--silo", "Two!"], "use lower-case letters"),
    ],
)
def test_invalid_silo_names_are_refused(tmp_path, words, message, capsys):
    assert main(["deploy", "init", str(tmp_path / "x"), *words, "--host", "h"]) == 2
    assert message in capsys.readouterr().err


def test_given_settings_are_copied_without_their_data(tmp_path):
    (tmp_path / "my.toml").write_text(
        'seed = 4\n[data]\ncsv = "all.csv"\n[task]\nlabel = "y"\nfavourable = 1\n'
        'sensitive = ["s"]\nclient = "site"\n[clients]\ntest = 0.3\n[strategy]\nname = "fedfb"\n'
    )
    made = tmp_path / "made"
    words = ["--silo", "a", "--silo", "b", "--host", "h", "--run", str(tmp_path / "my.toml")]
    assert main(["deploy", "init", str(made), *words]) == 0
    config = load_federation(made / "coordinator" / "federation.toml").config()
    assert (config.seed, config.strategy.name, config.clients.test) == (4, "fedfb", 0.3)
    assert (config.data.csv, config.task.client) == (None, None)
    assert main(["deploy", "init", str(made), *words]) == 2  # never into a folder in use


def test_missing_flower_gives_one_line_with_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "from mfairfl.cli import main; sys.exit(main(['deploy', 'key', sys.argv[1]]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "key")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'mfairfl[flower]'" in done.stderr


def test_help_of_deploy_names_examples():
    done = mfairfl_cli("deploy", "--help")
    assert done.returncode == 0
    assert "mfairfl deploy local --data adult --clients 3" in " ".join(done.stdout.split())
