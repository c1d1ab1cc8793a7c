"""Made pictures of shapes with their boxes, in the layout of Pascal VOC."""

import random

from PIL import Image, ImageDraw

CLASSES = ("disc", "square", "bar")
COLOURS = {"disc": (220, 60, 60), "square": (60, 200, 80), "bar": (70, 90, 230)}
SIZE = 64


def draw(year, part, number):
    """`number` pictures of one or two shapes in the folder of a year, listed under `part`."""
    rng = random.Random(part)
    names = [f"{part}_{place:04d}" for place in range(number)]
    for name in names:
        image = Image.new("RGB", (SIZE, SIZE), (rng.randrange(90, 130),) * 3)
        objects = []
        # side by side: none covers another
        for column, kind in enumerate(rng.sample(CLASSES, rng.randint(1, 2))):
            width = rng.randint(16, 26)
            height = width // 2 if kind == "bar" else width
            x, y = 32 * column + rng.randrange(33 - width), rng.randrange(SIZE - height)
            pen = ImageDraw.Draw(image)
            painted = pen.ellipse if kind == "disc" else pen.rectangle
            painted((x, y, x + width - 1, y + height - 1), fill=COLOURS[kind])
            objects.append((kind, (x + 1, y + 1, x + width, y + height), 0))
        write(year, name, image, objects)
    list_file = year / "ImageSets" / "Main" / f"{part}.txt"
    list_file.parent.mkdir(parents=True, exist_ok=True)
    list_file.write_text("".join(f"{name}\n" for name in names))


def write(year, name, image, objects):
    """A picture and its annotation: (class, corners counted from 1, difficult) of each object."""
    for folder in ("JPEGImages", "Annotations"):
        (year / folder).mkdir(parents=True, exist_ok=True)
    image.save(year / "JPEGImages" / f"{name}.jpg", quality=95)
    (year / "Annotations" / f"{name}.xml").write_text(annotation(objects))


def annotation(objects):
    """The XML of VOC."""
    texts = []
    for kind, corners, difficult in objects:
        edges = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
        box = "".join(f"<{edge}>{at}</{edge}>" for edge, at in edges)
        texts.append(
            f"<object><name>{kind}</name><difficult>{difficult}</difficult><bndbox>{box}</bndbox></object>"
        )
    return f"<annotation><size><width>{SIZE}</width><height>{SIZE}</height></size>{''.join(texts)}</annotation>"
