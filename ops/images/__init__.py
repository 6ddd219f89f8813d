"""Container images from Debian packages and the wheel mirror, with no network and the same digest every time.

``python -m ops.images --help``. What an image is made of is data: ``packages.toml`` names every Debian package,
``images.toml`` every image, ``trim.toml`` every file of a wheel that is left out, with the reason.
"""
