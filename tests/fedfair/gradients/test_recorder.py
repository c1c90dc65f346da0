"""The hook recorder: every call is passed on, and no hook stays behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfair.gradients.passes import ForwardCall, recorder


def test_calls_are_passed_on_in_order_with_inputs_and_outputs_in_the_graph() -> None:
    model, calls = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), list[ForwardCall]()
    x = torch.randn(4, 3)
    with recorder([model[0], model[2]], calls.append):
        output = model(x)
    assert [call.layer for call in calls] == [model[0], model[2]]
    assert calls[0].inputs is x
    assert calls[1].output is output
    assert calls[0].output.requires_grad
    model(x)
    assert len(calls) == 2


def test_what_keep_returns_takes_the_place_of_the_output_and_keyword_arguments_are_inputs() -> None:
    layer = nn.Linear(3, 2)
    with recorder([layer], lambda call: call.inputs + 1):
        assert torch.equal(layer(input=torch.zeros(1, 3)), torch.ones(1, 3))


def test_hooks_are_removed_when_the_model_fails() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    with pytest.raises(RuntimeError), recorder(model, lambda call: None):
        model(torch.randn(4, 3))
    assert not any(layer._forward_hooks for layer in model)
