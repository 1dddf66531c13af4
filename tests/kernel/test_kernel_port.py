"""kernels/aggregate/port.cu, compiled for the host: messages share the port, and streams wait for the last of them."""

import ctypes

import numpy as np
import pytest
from support.devices.on_host import build, launch

pytestmark = pytest.mark.slow  # a compiler works for most of it


def test_messages_share_a_port():
    kernels = build("port")
    now = ctypes.c_ulonglong.in_dll(kernels, "host_time")
    state = np.zeros(3, np.uint64)

    def take(taken, latency, stream=1):
        launch(kernels, "port_take", (1, 1), 32, state, np.int32(stream), np.uint64(taken), np.uint64(latency))

    def settle(stream=1):
        launch(kernels, "port_settle", (1, 1), 32, state, np.int32(stream))

    now.value = 1000
    take(400, 50)
    assert state.tolist() == [1400, 1450, 0]
    now.value = 1100
    take(200, 50)  # behind the first
    assert state.tolist() == [1600, 1650, 0]
    take(0, 0)  # a signal does not arrive before what left earlier
    assert state.tolist() == [1600, 1650, 0]
    settle()
    assert 1650 <= now.value < 1750
    settle()  # nothing is on its way
    assert now.value < 1750
    now.value = 5000
    take(10, 5, stream=2)  # beside the other one, whose messages have the same port
    take(10, 5)
    assert state.tolist() == [5020, 5025, 5015]
    settle(2)
    assert 5015 <= now.value < 5115
