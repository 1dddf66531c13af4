"""What of ``cupy.lib`` is called."""
