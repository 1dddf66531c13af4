"""Commands around products: aggregate, lookup, tune, predict, links."""
