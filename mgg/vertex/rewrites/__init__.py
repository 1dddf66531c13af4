"""Rewrites of vertex programs that keep their values (Seastar, EuroSys'21, section 6)."""
