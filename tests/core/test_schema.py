"""Texts that do not fit their schema are refused with the place and the nearest known key."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hbench.core.errors import ConfigError
from hbench.core.schema import STRICT, parse


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


def refusal(text):
    with pytest.raises(ConfigError) as caught:
        parse(Car, text, source="car.toml")
    return str(caught.value)


def test_a_number_with_a_point_keeps_its_digits():
    car = parse(Car, '[[wheels]]\nname = "left"\nradius = 30.10', source="car.toml")
    assert str(car.wheels[0].radius) == "30.10"


def test_an_unknown_key_in_a_list_names_the_element_and_suggests():
    message = refusal('[[wheels]]\nname = "a"\nradius = 1.0\n[[wheels]]\nname = "b"\nradius = 1.0\nspoke = 3')
    assert "car.toml" in message
    assert "wheels 2 ('b'): unknown key 'spoke'" in message
    assert "did you mean 'spokes'?" in message


def test_an_unknown_key_in_an_optional_table_and_in_a_table_of_tables_is_found():
    assert "spare: unknown key 'radus'" in refusal('spare = { name = "s", radius = 1.0, radus = 2 }')
    message = refusal('doors = { front = { name = "s", radius = 1.0, spoks = 2 } }')
    assert "doors, front: unknown key 'spoks'" in message
    assert "did you mean 'spokes'?" in message


def test_a_missing_key_and_a_wrong_type_say_what_was_expected():
    message = refusal('[[wheels]]\nname = 3\nspokes = "many"')
    assert "wheels 1, name: expected a text, found 3" in message
    assert "wheels 1, radius: missing" in message
    assert "wheels 1, spokes: expected an integer, found many" in message


def test_values_are_never_converted():
    assert "expected an integer, found 3.0" in refusal('spare = { name = "s", radius = 1.0, spokes = 3.0 }')
    assert "expected an integer, found True" in refusal('spare = { name = "s", radius = 1.0, spokes = true }')


def test_many_problems_are_counted_and_the_first_shown():
    message = refusal("[[wheels]]\n" * 4)
    assert message.count(": missing") == 5
    assert "and 3 more" in message


def test_a_text_that_is_no_toml_names_the_line():
    message = refusal("wheels = [\n1,,")
    assert "car.toml is not TOML" in message
    assert "line 2" in message


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_as_a_config_error(text):
    try:
        assert parse(Car, text, source="car.toml") == Car()
    except ConfigError as error:
        assert "car.toml" in str(error)  # noqa: PT017
