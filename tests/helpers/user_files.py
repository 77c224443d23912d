"""Small invented files in the shape of well-known ones, with their traps."""

from __future__ import annotations

import numpy as np
import pandas as pd

Roles = dict[str, str]

HEART: Roles = {"label": "num", "favourable": "0", "sensitive": "sex", "client": "site"}
ATTRITION: Roles = {"label": "Attrition", "favourable": "No", "sensitive": "Gender"}
TITANIC: Roles = {"label": "Survived", "favourable": "1", "sensitive": "Sex"}
STUDENTS: Roles = {"label": "passed", "favourable": "yes", "sensitive": "sex"}
CREDIT: Roles = {"label": "default", "favourable": "0", "sensitive": "SEX"}
COURSES: Roles = {"label": "final_result", "favourable": "Pass", "sensitive": "gender"}
CENSUS: Roles = {"label": "occupation", "favourable": "1", "sensitive": "sex"}
GERMAN: Roles = {"label": "class", "favourable": "1", "sensitive": "sex"}


def flags(roles: Roles) -> list[str]:
    """Return the roles as flags of `mfairfl init`; heart disease has four values."""
    several = ["--others-unfavourable"] if roles is HEART else []
    return [word for key, value in roles.items() for word in (f"--{key}", value)] + several


def plain_toml(csv: str, roles: Roles, more: str = "") -> str:
    """Return settings that name the roles only: every other column is a feature."""
    lines = [f'{key} = "{value}"' for key, value in roles.items() if key != "sensitive"]
    lines += [f'sensitive = ["{roles["sensitive"]}"]']
    lines += ["others_unfavourable = true"] * (roles is HEART)
    return "\n".join([f'[data]\ncsv = "{csv}"\n[task]', *lines, more]) + "\n"


def _risk(rng: np.random.Generator, *parts: np.ndarray) -> np.ndarray:
    """Return labels that depend on some columns, and on chance."""
    score = sum((part - part.mean()) / part.std() for part in parts)
    return (score + rng.normal(0, 1.5, len(parts[0])) > 0).astype(int)


def heart() -> pd.DataFrame:
    """Four hospitals: Zurich writes 0 for cholesterol, Basel measures it in mmol/l."""
    rng = np.random.default_rng(20)
    sizes = {"basel": 80, "budapest": 90, "cleveland": 100, "zurich": 60, "locum": 3}
    site = np.repeat(list(sizes), list(sizes.values()))
    n = len(site)
    age, pressure = rng.normal(54, 9, n).round(), rng.normal(131, 17, n).round()
    chol = rng.normal(246, 50, n).round()
    disease = _risk(rng, age, pressure) * rng.integers(1, 5, n)
    chol = np.where(site == "basel", (chol / 38.67).round(2), chol)
    thal = pd.Series(rng.choice(["fixed", "normal", "reversible"], n)).mask(site == "budapest")
    return pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice([0, 1], n, p=[0.3, 0.7]),
            "trestbps": pressure,
            "chol": np.where(site == "zurich", 0, chol),
            "slope": np.where(
                (site == "cleveland") & (rng.random(n) < 0.1), -9, rng.integers(1, 4, n)
            ),
            "thal": thal,
            "site": site,
            "num": disease,
        }
    )


def attrition() -> pd.DataFrame:
    """Employees with a number each, and three columns that never change."""
    rng = np.random.default_rng(21)
    n = 400
    income, years = rng.lognormal(8.6, 0.5, n).round(), rng.integers(0, 30, n)
    leaves = _risk(rng, -income, -years) * (rng.random(n) < 0.5)
    return pd.DataFrame(
        {
            "Age": rng.integers(18, 61, n),
            "DailyRate": rng.integers(100, 1500, n),
            "DistanceFromHome": rng.integers(1, 30, n),
            "EmployeeCount": 1,
            "EmployeeNumber": np.cumsum(rng.integers(1, 3, n)),
            "Gender": rng.choice(["Female", "Male"], n),
            "JobRole": rng.choice(["Analyst", "Manager", "Nurse", "Technician"], n),
            "MonthlyIncome": income.astype(int),
            "Over18": "Y",
            "StandardHours": 80,
            "YearsAtCompany": years,
            "Attrition": np.where(leaves, "Yes", "No"),
        }
    )


def titanic() -> pd.DataFrame:
    """Passengers with a number, a name and a ticket; most have no cabin."""
    rng = np.random.default_rng(22)
    n = 300
    sex = rng.choice(["female", "male"], n, p=[0.35, 0.65])
    fare = rng.lognormal(2.9, 0.9, n).round(4)
    cabins = [f"{rng.choice(list('ABCDE'))}{i}" for i in rng.integers(1, 130, n)]
    return pd.DataFrame(
        {
            "PassengerId": np.arange(1, n + 1),
            "Survived": _risk(rng, (sex == "female").astype(float) * 2, fare),
            "Pclass": rng.choice([1, 2, 3], n, p=[0.25, 0.2, 0.55]),
            "Name": [f"Passenger, Mx. Number {i}" for i in range(n)],
            "Sex": sex,
            "Age": pd.Series(rng.normal(30, 14, n).clip(1).round()).mask(rng.random(n) < 0.2),
            "Ticket": [f"PC {t}" for t in rng.integers(10_000, 10_400, n)],
            "Fare": fare,
            "Cabin": pd.Series(cabins).mask(rng.random(n) < 0.77),
            "Embarked": rng.choice(["C", "Q", "S"], n, p=[0.2, 0.1, 0.7]),
        }
    )


def students() -> pd.DataFrame:
    """Pupils with three grades; having passed is the third, and nearly the second."""
    rng = np.random.default_rng(23)
    n = 395
    first = rng.normal(11, 3.3, n).clip(0, 20).round()
    second = (first + rng.normal(0, 1.2, n)).clip(0, 20).round()
    third = (second + rng.normal(0, 0.7, n)).clip(0, 20).round()
    return pd.DataFrame(
        {
            "school": rng.choice(["GP", "MS"], n, p=[0.8, 0.2]),
            "sex": rng.choice(["F", "M"], n),
            "age": rng.integers(15, 20, n),
            "Mjob": rng.choice(["at_home", "health", "other", "teacher"], n),
            "absences": rng.poisson(5, n),
            "G1": first.astype(int),
            "G2": second.astype(int),
            "G3": third.astype(int),
            "passed": np.where(third >= 10, "yes", "no"),
        }
    )


def credit() -> pd.DataFrame:
    """Borrowers with a number; status is a code, and education knows codes nobody explained."""
    rng = np.random.default_rng(24)
    n = 600
    limit, late = rng.integers(1, 80, n) * 10_000, rng.integers(-2, 9, n)
    return pd.DataFrame(
        {
            "ID": np.arange(1, n + 1),
            "LIMIT_BAL": limit,
            "SEX": rng.choice([1, 2], n),
            "EDUCATION": rng.choice(
                [0, 1, 2, 3, 4, 5, 6], n, p=[0.01, 0.35, 0.45, 0.16, 0.01, 0.01, 0.01]
            ),
            "MARRIAGE": rng.choice([0, 1, 2, 3], n, p=[0.01, 0.45, 0.53, 0.01]),
            "AGE": rng.integers(21, 70, n),
            "PAY_0": late,
            "BILL_AMT1": rng.normal(50_000, 40_000, n).round(),
            "default": _risk(rng, late.astype(float), -limit.astype(float)),
        }
    )


def courses() -> pd.DataFrame:
    """Enrolments in courses: a student may enrol twice, and many rows were copied."""
    rng = np.random.default_rng(25)
    n = 500
    points = rng.choice([30, 60, 90, 120], n)
    frame = pd.DataFrame(
        {
            "code_module": rng.choice(["AAA", "BBB", "CCC"], n),
            "id_student": rng.choice(rng.integers(3_000, 2_700_000, 450), n),
            "gender": rng.choice(["F", "M"], n),
            "imd_band": rng.choice(["0-10%", "10-20%", "20-30%", "unknown"], n),
            "num_of_prev_attempts": rng.choice([0, 1, 2], n, p=[0.85, 0.1, 0.05]),
            "studied_credits": points,
            "clicks": rng.lognormal(6, 1, n).round(),
            "final_result": np.where(_risk(rng, -points.astype(float)), "Pass", "Fail"),
        }
    )
    return pd.concat([frame, frame.sample(100, random_state=0)], ignore_index=True)


def census() -> pd.DataFrame:
    """Dutch households: positions, sizes and activities are codes."""
    rng = np.random.default_rng(26)
    n = 1000
    education = rng.integers(0, 6, n)
    return pd.DataFrame(
        {
            "sex": rng.choice([1, 2], n),
            "age": rng.integers(4, 16, n),
            "household_position": rng.choice([1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220], n),
            "household_size": rng.choice([111, 112, 113, 114, 125, 126], n),
            "edu_level": education,
            "economic_status": rng.choice([111, 112, 120], n),
            "cur_eco_activity": rng.choice([111, 122, 131, 132, 133, 134, 135, 136, 137, 138], n),
            "occupation": _risk(rng, education.astype(float)),
        }
    )


def german() -> pd.DataFrame:
    """Loans; "none" is an answer here, and the telephone is there twice."""
    rng = np.random.default_rng(27)
    n = 500
    amount = rng.lognormal(7.8, 0.8, n).round()
    telephone = rng.choice(["A191", "A192"], n)
    return pd.DataFrame(
        {
            "status": rng.choice(["A11", "A12", "A13", "A14"], n),
            "months": rng.choice([6, 12, 18, 24, 36, 48], n),
            "amount": amount.astype(int),
            "debtors": rng.choice(["none", "guarantor", "co-applicant"], n, p=[0.9, 0.05, 0.05]),
            "sex": rng.choice(["female", "male"], n),
            "telephone": telephone,
            "phone": np.where(telephone == "A192", "yes", "no"),
            "class": 2 - _risk(rng, -amount),
        }
    )
