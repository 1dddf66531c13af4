"""A device that exists in name, and memory by its address."""


class Device:
    def __init__(self, number):
        self.device_id = number

    def set_current(self):
        pass


class Buffer:
    def __init__(self, handle, size):
        self.handle, self.size = handle, size

    @classmethod
    def from_handle(cls, ptr, size):
        assert type(ptr) is int and type(size) is int
        return cls(ptr, size)
