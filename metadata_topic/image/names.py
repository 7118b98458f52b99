"""Topics whose names a metric cannot tell apart, because "." and "_" look the same in it."""

from metadata_topic.image.image import MetadataImage


def metric_name(name: str) -> str:
    """The name as a metric shows it: two topics must not share it."""
    return name.replace(".", "_")


def colliding_topic(image: MetadataImage, name: str) -> str | None:
    """Find another topic that the metrics could not tell from `name`, without looking at all.

    Returns:
        The other topic's name; None if there is none, or only `name` itself.
    """
    shown = metric_name(name)
    if shown != name and shown in image.topics_by_name:
        return shown
    return next((other for other in image.dotted_names.get(shown, ()) if other != name), None)
