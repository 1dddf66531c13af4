"""Commands for products: aggregate, lookup, tune, predict, links."""
