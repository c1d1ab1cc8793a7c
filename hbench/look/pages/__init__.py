"""What all folders of pages share: how they are written, their data, templates and style."""
