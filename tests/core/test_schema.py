"""Texts that do not fit their schema are refused with the place and the nearest known key."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hbench.core.errors import ConfigError
from hbench.core.schema import STRICT, parse

pytestmark = pytest.mark.fast


class Wheel(BaseModel):
    model_config = STRICT
    name: str
    radius: Decimal
    spokes: int = 0


class Car(BaseModel):
    model_config = STRICT
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    doors: dict[str, Wheel] = {}


ONE = '[[wheels]]\nname = "a"\nradius = 1.0\n'
SPARE = 'spare = {{ name = "s", radius = 1.0, {} }}'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            f"{ONE}{ONE.replace('a', 'b', 1)}spoke = 3",
            ["car.toml", "wheels 2 ", "unknown key 'spoke'", "mean 'spokes'?"],
        ),
        (SPARE.format("radus = 2"), ["spare: unknown key 'radus'"]),
        (
            'doors = { front = { name = "s", radius = 1.0, spoks = 2 } }',
            ["doors.front: unknown key 'spoks'", "'spokes'?"],
        ),
        (
            '[[wheels]]\nname = 3\nspokes = "many"',
            ["wheels 1, name: expected a text, found 3", "radius: missing"],
        ),
        (
            '[[wheels]]\nname = 3\nspokes = "many"',
            ["wheels 1, spokes: expected an integer, found many"],
        ),
        (
            SPARE.format("spokes = 3.0"),
            ["expected an integer, found 3.0"],
        ),  # values are never converted
        (SPARE.format("spokes = true"), ["expected an integer, found True"]),
        ("[[wheels]]\n" * 4, ["and 3 more"]),
        ("wheels = [\n1,,", ["car.toml is not TOML", "line 2"]),
    ],
)
def test_what_does_not_fit_is_named_by_its_place_with_what_was_expected(text, parts):
    with pytest.raises(ConfigError) as caught:
        parse(Car, text, source="car.toml")
    assert all(part in str(caught.value) for part in parts)


def test_a_number_with_a_point_keeps_its_digits():
    car = parse(Car, '[[wheels]]\nname = "left"\nradius = 30.10', source="car.toml")
    assert str(car.wheels[0].radius) == "30.10"


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_as_a_config_error(text):
    try:
        assert parse(Car, text, source="car.toml") == Car()
    except ConfigError as error:
        assert "car.toml" in str(error)  # noqa: PT017
