"""The only place that imports training frameworks, each in its own module, loaded on demand."""
