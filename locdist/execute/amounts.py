"""Seconds and bytes as people read them."""


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as far as it has them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if seconds >= 10 else f"{seconds:.1f} s"


def size(count: float) -> str:
    """Bytes in the largest unit that leaves at least one."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
