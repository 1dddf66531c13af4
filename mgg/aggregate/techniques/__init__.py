"""One technique per module, or per folder if it has several files; adding a module adds a technique."""
