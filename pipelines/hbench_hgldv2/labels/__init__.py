"""From landmarks to raw labels: scraping, cleaning, and reading the released files."""
