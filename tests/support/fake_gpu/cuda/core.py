"""A device that exists in name."""


class Device:
    def __init__(self, number):
        self.device_id = number

    def set_current(self):
        pass
