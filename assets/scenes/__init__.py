"""Scenes of the source: found (`discovery`), judged, placed on the Earth, and listed (`manifest`). Values are in `model`.

Nothing is imported here: the children that open rasters load this package too, and must start fast.
"""
