"""One technique per module, or per folder where it has parts of its own; adding a module adds a technique."""
